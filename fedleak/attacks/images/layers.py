"""Compute the gradients of many reconstructions at once, by layers whose weights have an axis of reconstructions.

In a copy of the model each convolution, batch norm and fully connected layer takes weights with an additional first
axis, ``[N, ...]``, and images ``[N * B, C, H, W]``, B for each of the N reconstructions. The N weights are equal, so
that one forward pass suffices, but the gradient with respect to them is N gradients. Convolutions, and batch norms with
running statistics, have an explicit second derivative.
"""

import copy
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.modules.batchnorm import _BatchNorm

from fedleak.attacks.images.convolution import SAME_3X3, Geometry, convolve, prefers_batched_kernels
from fedleak.attacks.images.factored import Matrices, apply_factored, is_cheaper


def _per_run(bias: Tensor, dims: int) -> Tensor:
    """Make ``[N, C]`` broadcast over ``[N, B, C, ...]``."""
    return bias.view(len(bias), 1, -1, *[1] * (dims - 2))


class _StackedConv(nn.Conv2d):
    constant: bool
    matrices: Matrices | None = None

    @property
    def geometry(self) -> Geometry:
        assert not isinstance(self.padding, str)
        return list(self.stride), list(self.padding), list(self.dilation), self.groups

    def forward(self, x: Tensor) -> Tensor:
        if self.matrices is None:
            out = convolve(x, self.weight, self.geometry, self.constant)
        else:
            out = apply_factored(x, self.weight, self.matrices)
        if self.bias is not None:
            out = (out.unflatten(0, (len(self.bias), -1)) + _per_run(self.bias, out.dim())).flatten(0, 1)
        return out


class _StackedLinear(nn.Linear):
    matrices: Matrices | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.matrices is None:
            out = x.reshape(len(self.weight), -1, x.shape[-1]) @ self.weight.transpose(1, 2)
        else:
            out = apply_factored(x, self.weight, self.matrices).unflatten(0, (len(self.weight), -1))
        out = out if self.bias is None else out + self.bias[:, None]
        return out.reshape(*x.shape[:-1], -1)


class _Norm(Function):
    """Batch norm by running statistics, with equal weights ``[N, C]``; `unit` is the inverse standard deviation.

    The derivatives are explicit; with respect to the weights there is no second one.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, unit: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, mean, unit)
        scale = weight[0] * unit  # the N weights are equal: one pass over all images serves every reconstruction
        return torch.addcmul((bias[0] - mean * scale)[:, None, None], x, scale[:, None, None])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        # The matched gradient needs a graph; the pass from the distance to the images does not.
        if torch.is_grad_enabled():
            return *_NormBackward.apply(*grads, *ctx.saved_tensors), None, None
        _, weight, _, unit = ctx.saved_tensors
        return grads[0] * (weight[0] * unit)[:, None, None], None, None, None, None


class _NormBackward(Function):
    @staticmethod
    def forward(ctx: Any, grad: Tensor, x: Tensor, weight: Tensor, mean: Tensor, unit: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(grad, x, weight, mean, unit)
        if prefers_batched_kernels(x):
            shape = (len(weight), -1)
            centred_products = grad * (x - mean[:, None, None])
            on_weight, on_bias = (part.unflatten(0, shape).sum((1, 3, 4)) for part in (centred_products, grad))
            return grad * (weight[0] * unit)[:, None, None], on_weight * unit, on_bias
        # unit**-2 is the running variance plus eps, so that the kernel's eps is 0.
        fixed = (weight[0], mean, unit**-2, None, None, False, 0.0, [True, True, True])
        pairs = zip(grad.chunk(len(weight)), x.chunk(len(weight)), strict=True)
        parts = [torch.ops.aten.native_batch_norm_backward(g, p, *fixed) for g, p in pairs]
        on_x, on_weight, on_bias = zip(*parts, strict=True)
        return torch.cat(on_x) if len(parts) > 1 else on_x[0], torch.stack(on_weight), torch.stack(on_bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        on_x, on_weight, on_bias = grads
        grad, x, weight, mean, unit = ctx.saved_tensors
        # The outputs are linear in grad and affine in x, so that their derivatives need no other intermediate results.
        runs, slope = len(weight), unit * on_weight
        shift, slope = _per_run(on_bias - mean * slope, 4), _per_run(slope, 4)
        on_grad = torch.addcmul(shift, x.unflatten(0, (runs, -1)), slope)
        on_grad.addcmul_(on_x.unflatten(0, (runs, -1)), (weight[0] * unit)[:, None, None])
        return on_grad.flatten(0, 1), (grad.unflatten(0, (runs, -1)) * slope).flatten(0, 1), None, None, None


class _StackedNorm(nn.BatchNorm2d):
    constant: bool

    def forward(self, x: Tensor) -> Tensor:
        runs = len(self.weight)
        if self.training or self.running_mean is None:
            # Reconstructions as channels have their own statistics. Pixels are rows, because PyTorch 2.14's gradient of
            # a batch norm on [1, C, H, W] is wrong on a CPU if strides differ (book/pitfalls.md).
            pixels = x.unflatten(0, (runs, -1)).permute(1, 3, 4, 0, 2)
            scale, shift = self.weight.flatten(), self.bias.flatten()
            rows = pixels.flatten(3).flatten(0, 2)
            out = nn.functional.batch_norm(rows, None, None, scale, shift, True, 0.0, self.eps)
            return out.view(pixels.shape).permute(3, 0, 4, 1, 2).flatten(0, 1)
        assert self.running_var is not None
        unit = (self.running_var + self.eps).rsqrt()
        if self.constant:
            return _Norm.apply(x, self.weight, self.bias, self.running_mean, unit)
        scale = self.weight * unit
        shift = self.bias - self.running_mean * scale
        parts = x.unflatten(0, (runs, -1))
        return torch.addcmul(_per_run(shift, x.dim()), parts, _per_run(scale, x.dim())).flatten(0, 1)


_STACKED: dict[type, type] = {nn.Conv2d: _StackedConv, nn.Linear: _StackedLinear, nn.BatchNorm2d: _StackedNorm}


def is_stackable(model: nn.Module) -> bool:
    """Return whether each layer with parameters has a stacked form."""
    for module in model.modules():
        if isinstance(module, _BatchNorm) and not module.affine:
            return False
        if type(module) in _STACKED and not all(
            isinstance(t, nn.Parameter | None) for t in (module.weight, module.bias)
        ):
            return False  # a withheld or frozen tensor that is kept as a constant has no set per reconstruction
        if next(module.parameters(recurse=False), None) is None:
            continue
        if type(module) not in _STACKED:
            return False
        if isinstance(module, nn.Conv2d) and (module.padding_mode != "zeros" or isinstance(module.padding, str)):
            return False
    return True


def factorise(
    stacked_model: nn.Module, shapes: Mapping[str, list[tuple[int, ...]]], targets: dict[str, Tensor]
) -> dict[str, Matrices]:
    """Let layers return products of their gradient with the target and itself where that is cheaper.

    Parameters
    ----------
    stacked_model
        A model from `stack_layers` with constant weights.
    shapes
        The shapes of each layer's inputs, for the images of one reconstruction.
    targets
        The observed gradients ``[N, ...]`` by parameter name; those of such layers become a `placeholder`.

    Returns
    -------
    dict of str to Matrices
        The constants of these layers by the names of their weights. The layers now take ``[N, 2]`` zeros as weights,
        and their own are freed.
    """
    uses = Counter(id(p) for _, p in stacked_model.named_parameters(remove_duplicate=False))
    factorised = {}
    for name, module in stacked_model.named_modules():
        # The norm of a sum over several uses of one weight is no sum over uses.
        if len(shapes.get(name, ())) == 1 and uses[id(module.weight)] == 1 and _is_factored(module, *shapes[name]):
            weight = f"{name}.weight"
            module.matrices = factorised[weight] = Matrices(module.weight.detach(), targets[weight])
            module.weight.data, targets[weight] = placeholder(module.weight.data), placeholder(targets[weight])
    return factorised


def placeholder(tensor: Tensor) -> Tensor:
    """Return NaN in the same shape, which take no memory."""
    return tensor.new_full((), torch.nan).expand(tensor.shape)


def _is_factored(module: Any, shape: tuple[int, ...]) -> bool:
    outputs, inputs = module.weight.shape[:2]
    if isinstance(module, _StackedLinear):
        return len(shape) == 2 and is_cheaper(inputs, outputs, shape[0], 1)
    supported: dict[tuple[int, ...], Geometry] = {(1, 1): ([1, 1], [0, 0], [1, 1], 1), (3, 3): SAME_3X3}
    positions, window = shape[0] * shape[2] * shape[3], module.weight[0, 0].numel()
    keeps_size = module.geometry == supported.get(module.kernel_size)
    return keeps_size and is_cheaper(inputs, outputs, positions, window)


def stack_layers(model: nn.Module, *, constant: bool = True) -> nn.Module:
    """Return a copy of the model that is called with parameters ``[N, ...]``, one set per reconstruction.

    Parameters
    ----------
    model
        A model for which `is_stackable` is true.
    constant
        Whether the weights are equal for all reconstructions and depend on nothing, so that no second derivative with
        respect to them is needed.
    """
    stacked_model = copy.deepcopy(model)
    for module in stacked_model.modules():
        if type(module) in _STACKED:
            module.__class__ = _STACKED[type(module)]  # in place, so names, buffers and shared modules stay as they are
            if isinstance(module, _StackedConv | _StackedNorm):
                module.constant = constant
        elif isinstance(module, nn.ReLU):
            module.inplace = False
    return stacked_model
