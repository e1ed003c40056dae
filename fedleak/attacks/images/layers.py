"""Compute the gradients of many reconstructions at once, by layers whose weights have an axis of reconstructions.

In a copy of the model each convolution, batch norm and fully connected layer takes weights with an additional first
axis, ``[N, ...]``, and images ``[N * B, C, H, W]``, B for each of the N reconstructions. The N weights are equal, so
that one forward pass suffices, but the gradient with respect to them is N gradients. Convolutions have an explicit
second derivative, and compute batch norms by running statistics.
"""

import copy
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedleak.attacks.images.convolution import SAME_3X3, Geometry, convolve
from fedleak.attacks.images.factored import Matrices, apply_factored, is_cheaper


def _per_run(bias: Tensor, dims: int) -> Tensor:
    """Make ``[N, C]`` broadcast over ``[N, B, C, ...]``."""
    return bias.view(len(bias), 1, -1, *[1] * (dims - 2))


class _StackedConv(nn.Conv2d):
    constant: bool
    matrices: Matrices | None = None
    norm: tuple["_StackedNorm", ...] = ()
    """The batch norm that this convolution computes, by its kernel; in a tuple, its weights keep their names."""

    @property
    def geometry(self) -> Geometry:
        assert not isinstance(self.padding, str)
        return list(self.stride), list(self.padding), list(self.dilation), self.groups

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        if self.matrices is not None:
            out = apply_factored(x, weight, self.matrices)
            parts = out if bias is None else out.unflatten(0, (len(bias), -1)) + _per_run(bias, out.dim())
            return out if bias is None else parts.flatten(0, 1)
        for norm in self.norm:
            scale, shift = norm.scale_and_shift()
            weight, bias = weight * scale[..., None, None, None], shift if bias is None else shift + bias * scale
        return convolve(x, weight, bias, self.geometry, self.constant)


class _StackedLinear(nn.Linear):
    matrices: Matrices | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.matrices is None:
            out = x.reshape(len(self.weight), -1, x.shape[-1]) @ self.weight.transpose(1, 2)
        else:
            out = apply_factored(x, self.weight, self.matrices).unflatten(0, (len(self.weight), -1))
        out = out if self.bias is None else out + self.bias[:, None]
        return out.reshape(*x.shape[:-1], -1)


class _StackedNorm(nn.BatchNorm2d):
    is_folded = False

    def scale_and_shift(self) -> tuple[Tensor, Tensor]:
        """Return the factors and terms ``[N, C]`` of a norm by running statistics."""
        assert self.running_mean is not None
        assert self.running_var is not None
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        return scale, self.bias - self.running_mean * scale

    def forward(self, x: Tensor) -> Tensor:
        runs = len(self.weight)
        if self.is_folded:
            return x
        if self.training or self.running_mean is None:
            # Reconstructions as channels have their own statistics. Pixels are rows, because PyTorch 2.14's gradient of
            # a batch norm on [1, C, H, W] is wrong on a CPU if strides differ (book/pitfalls.md).
            pixels = x.unflatten(0, (runs, -1)).permute(1, 3, 4, 0, 2)
            scale, shift = self.weight.flatten(), self.bias.flatten()
            rows = pixels.flatten(3).flatten(0, 2)
            out = nn.functional.batch_norm(rows, None, None, scale, shift, True, 0.0, self.eps)
            return out.view(pixels.shape).permute(3, 0, 4, 1, 2).flatten(0, 1)
        scale, shift = self.scale_and_shift()
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


class Call(NamedTuple):
    """A layer's call in the pass over one reconstruction's images."""

    inputs: torch.Size
    outputs: int
    """Number of its outputs."""
    node: Any
    """Autograd's node, whose first input is the layer's."""


def factorise(
    stacked_model: nn.Module, calls: Mapping[str, list[Call]], targets: dict[str, Tensor]
) -> dict[str, Matrices]:
    """Let layers return products of their gradient with the target and itself where that is cheaper.

    Parameters
    ----------
    stacked_model
        A model from `stack_layers` with constant weights.
    calls
        The calls of each layer.
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
        is_once = len(calls.get(name, ())) == 1 and not isinstance(module, _StackedNorm)
        if is_once and uses[id(module.weight)] == 1 and _is_factored(module, calls[name][0].inputs):
            weight = f"{name}.weight"
            shape = calls[name][0].inputs
            positions = shape.numel() // shape[1]
            module.matrices = factorised[weight] = Matrices(module.weight.detach(), targets[weight], positions)
            module.weight.data, targets[weight] = placeholder(module.weight.data), placeholder(targets[weight])
    return factorised


def fold_norms(stacked_model: nn.Module, calls: Mapping[str, list[Call]], end: Any) -> None:
    """Let a convolution compute the batch norm behind it, if it has fewer weights than outputs and no other reader.

    The norm's factors then scale the kernel, instead of all outputs in each of four passes. `end` is the node of the
    model's outputs. A hook on either layer, batch statistics or a second call of one of them prevent it.
    """
    modules = dict(stacked_model.named_modules())
    layers = {calls[name][0].node: modules[name] for name in calls if len(calls[name]) == 1}
    nodes, readers = [end], Counter[Any]()
    for node in nodes:
        for before, _ in node.next_functions if node else ():
            readers[before] += 1
            nodes += [before] if readers[before] == 1 else []
    for norm, (call,) in ((modules[name], calls[name]) for name in calls if len(calls[name]) == 1):
        if not isinstance(norm, _StackedNorm) or norm.training or norm.running_mean is None or call.node is None:
            continue
        before = call.node.next_functions[0][0]
        conv = layers.get(before) if before else None
        if not isinstance(conv, _StackedConv) or conv.matrices or readers[before] > 1 or _has_hooks(conv, norm):
            continue
        if conv.weight.numel() < call.outputs:
            conv.norm, norm.is_folded = (norm,), True


def _has_hooks(*modules: nn.Module) -> bool:
    kinds = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
    return any(getattr(module, kind) for module in modules for kind in kinds)


def placeholder(tensor: Tensor) -> Tensor:
    """Return NaN in the same shape, which take no memory."""
    return tensor.new_full((), torch.nan).expand(tensor.shape)


def _is_factored(module: Any, shape: torch.Size) -> bool:
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
            if isinstance(module, _StackedConv):
                module.constant = constant
        elif isinstance(module, nn.ReLU):
            module.inplace = False
    return stacked_model
