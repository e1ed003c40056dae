"""Gradients of many reconstructions at once, by layers whose weights carry an axis of reconstructions.

In a copy of the model every convolution, batch norm and fully connected layer takes weights with one more axis in
front, ``[N, ...]``, and images ``[N * B, C, H, W]``, B for each of the N reconstructions. The N weights have the same
values, so that one forward pass serves all; but a gradient with respect to them is N gradients. A convolution's second
derivative is written out as four convolutions in the layout that the processor is fastest in. PyTorch's own, made for
any shape, takes about twice the time. So is that of a batch norm by running statistics.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.modules.batchnorm import _BatchNorm

Geometry = tuple[list[int], list[int], list[int], int]
"""Stride, padding, dilation and groups of a convolution."""


def _convolve(x: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    stride, padding, dilation, groups = geometry
    return torch.ops.aten.convolution(x, weight, None, stride, padding, dilation, False, [0, 0], groups)


def _backward(grad: Tensor, x: Tensor, weight: Tensor, geometry: Geometry, of_weight: bool) -> Tensor:
    """Return the gradient with respect to the weights, or to the images."""
    stride, padding, dilation, groups = geometry
    wanted = [not of_weight, of_weight, False]
    return torch.ops.aten.convolution_backward(
        grad, x, weight, None, stride, padding, dilation, False, [0, 0], groups, wanted
    )[of_weight]


def _grouped(x: Tensor, runs: int) -> Tensor:
    """Lay reconstructions side by side as channels: ``[N * B, C, H, W]`` to ``[B, N * C, H, W]``."""
    return x.unflatten(0, (runs, -1)).transpose(0, 1).flatten(1, 2)


def _ungrouped(x: Tensor, runs: int) -> Tensor:
    return x.unflatten(1, (runs, -1)).transpose(0, 1).flatten(0, 1)


def side_by_side(x: Tensor) -> bool:
    """Whether one operation on all beats a loop over the reconstructions: where launching a kernel is what costs."""
    return x.device.type != "cpu"


def _as_product(x: Tensor, geometry: Geometry) -> bool:
    """Whether a convolution is to be one batched matrix product, as a GPU wants it."""
    return side_by_side(x) and geometry[2] == [1, 1] and geometry[3] == 1


def _columns(x: Tensor, runs: int, window: torch.Size, stride: list[int], pad: list[int]) -> tuple[Tensor, list[int]]:
    """Lay out what a window ``h, w`` sees, ``[N, C * h * w, B * H' * W']``, and return ``[B, H', W']`` with it.

    `pad` is left, right, above and below, and can be negative.
    """
    seen = nn.functional.pad(x, pad).unfold(2, window[0], stride[0]).unfold(3, window[1], stride[1])
    parts = seen.unflatten(0, (runs, -1)).permute(0, 2, 5, 6, 1, 3, 4)
    return parts.flatten(4).flatten(1, 3), list(parts.shape[4:])


def _around(padding: list[int]) -> list[int]:
    return [padding[1], padding[1], padding[0], padding[0]]


def _product(x: Tensor, weight: Tensor, stride: list[int], pad: list[int]) -> Tensor:
    columns, sizes = _columns(x, len(weight), weight.shape[-2:], stride, pad)
    return torch.bmm(weight.flatten(2), columns).unflatten(2, sizes).transpose(1, 2).flatten(0, 1)


def _product_backward(grad: Tensor, x: Tensor, weight: Tensor, geometry: Geometry, of_weight: bool) -> Tensor:
    stride, padding, _, _ = geometry
    runs, window = len(weight), weight.shape[-2:]
    if of_weight:
        columns, _ = _columns(x, runs, window, stride, _around(padding))
        rows = grad.unflatten(0, (runs, -1)).transpose(1, 2).flatten(2)
        return torch.bmm(rows, columns.transpose(1, 2)).unflatten(2, weight.shape[2:])
    sizes = [(n - 1) * s + 1 for n, s in zip(grad.shape[2:], stride, strict=True)]
    spread = grad.new_zeros(*grad.shape[:2], *sizes)
    spread[:, :, :: stride[0], :: stride[1]] = grad
    before = [k - 1 - p for k, p in zip(window, padding, strict=True)]
    after = [n + k - 1 - s - b for n, k, s, b in zip(x.shape[2:], window, sizes, before, strict=True)]
    turned = weight.flip(-1, -2).transpose(1, 2)
    return _product(spread, turned, [1, 1], [before[1], after[1], before[0], after[0]])


def _each(x: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Convolve every reconstruction's images with its own weights ``[N, O, I, h, w]``."""
    runs = len(weight)
    if _as_product(x, geometry):
        return _product(x, weight, geometry[0], _around(geometry[1]))
    parts = [_convolve(p, w, geometry) for p, w in zip(x.chunk(runs), weight, strict=True)]
    return torch.cat(parts) if runs > 1 else parts[0]


def _each_backward(grad: Tensor, x: Tensor, weight: Tensor, geometry: Geometry, of_weight: bool) -> Tensor:
    """Return every reconstruction's gradient with respect to its weights ``[N, O, I, h, w]``, or to its images."""
    runs = len(weight)
    if _as_product(x, geometry):
        return _product_backward(grad, x, weight, geometry, of_weight)
    each = zip(grad.chunk(runs), x.chunk(runs), weight, strict=True)
    parts = [_backward(g, p, w, geometry, of_weight) for g, p, w in each]
    if of_weight:
        return torch.stack(parts) if runs > 1 else parts[0][None]
    return torch.cat(parts) if runs > 1 else parts[0]


class _Conv(Function):
    """A convolution with weights ``[N, O, I, h, w]``; ``constant`` says that nothing depends on them in turn."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, geometry: Geometry, constant: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.geometry, ctx.constant = geometry, constant
        # Equal weights: all images in one convolution.
        return _convolve(x, weight[0], geometry) if constant else _each(x, weight, geometry)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        held = weight.detach() if ctx.constant else weight
        on_x = _ConvInput.apply(grad, held, x, ctx.geometry, ctx.constant) if ctx.needs_input_grad[0] else None
        wanted = ctx.needs_input_grad[1] and (torch.is_grad_enabled() or not ctx.constant)
        on_weight = _ConvWeight.apply(x, grad, held, ctx.geometry) if wanted else None
        return on_x, on_weight, None, None


class _ConvInput(Function):
    @staticmethod
    def forward(ctx: Any, grad: Tensor, weight: Tensor, x: Tensor, geometry: Geometry, constant: bool) -> Tensor:
        ctx.save_for_backward(grad, weight, x)
        ctx.geometry, ctx.constant = geometry, constant
        if constant:
            return _backward(grad, x, weight[0], geometry, of_weight=False)
        return _each_backward(grad, x, weight, geometry, of_weight=False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (v,) = grads
        grad, weight, _ = ctx.saved_tensors
        on_grad = _convolve(v, weight[0], ctx.geometry) if ctx.constant else _each(v, weight, ctx.geometry)
        on_weight = _each_backward(grad, v, weight, ctx.geometry, of_weight=True) if ctx.needs_input_grad[1] else None
        return on_grad, on_weight, None, None, None


class _ConvWeight(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, grad: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(x, grad)
        ctx.geometry = geometry
        return _each_backward(grad, x, weight, geometry, of_weight=True)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (v,) = grads
        x, grad = ctx.saved_tensors
        on_x = _each_backward(grad, x, v, ctx.geometry, of_weight=False) if ctx.needs_input_grad[0] else None
        return on_x, _each(x, v, ctx.geometry) if ctx.needs_input_grad[1] else None, None, None


def _per_run(bias: Tensor, dims: int) -> Tensor:
    """Make ``[N, C]`` broadcast over ``[N, B, C, ...]``."""
    return bias.view(len(bias), 1, -1, *[1] * (dims - 2))


class _StackedConv(nn.Conv2d):
    constant: bool

    def forward(self, x: Tensor) -> Tensor:
        geometry = (list(self.stride), list(self.padding), list(self.dilation), self.groups)
        out = _Conv.apply(x, self.weight, geometry, self.constant)
        if self.bias is not None:
            out = (out.unflatten(0, (len(self.bias), -1)) + _per_run(self.bias, out.dim())).flatten(0, 1)
        return out


class _StackedLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        parts = x.reshape(len(self.weight), -1, x.shape[-1])
        out = parts @ self.weight.transpose(1, 2)
        return (out if self.bias is None else out + self.bias[:, None]).flatten(0, 1)


class _Norm(Function):
    """Batch norm by running statistics of equal weights ``[N, C]``, with `unit` one over the standard deviation.

    Its derivatives are written out, and none with respect to the weights is taken after the first.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, unit: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, mean, unit)
        scale = weight[0] * unit
        return torch.addcmul((bias[0] - mean * scale)[:, None, None], x, scale[:, None, None])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            return *_NormBackward.apply(*grads, *ctx.saved_tensors), None, None
        _, weight, _, unit = ctx.saved_tensors
        return grads[0] * (weight[0] * unit)[:, None, None], None, None, None, None


class _NormBackward(Function):
    @staticmethod
    def forward(ctx: Any, grad: Tensor, x: Tensor, weight: Tensor, mean: Tensor, unit: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(grad, x, weight, mean, unit)
        if side_by_side(x):
            shape = (len(weight), -1)
            seen = grad * (x - mean[:, None, None])
            on_weight, on_bias = (part.unflatten(0, shape).sum((1, 3, 4)) for part in (seen, grad))
            return grad * (weight[0] * unit)[:, None, None], on_weight * unit, on_bias
        fixed = (weight[0], mean, unit**-2, None, None, False, 0.0, [True, True, True])
        pairs = zip(grad.chunk(len(weight)), x.chunk(len(weight)), strict=True)
        parts = [torch.ops.aten.native_batch_norm_backward(g, p, *fixed) for g, p in pairs]
        on_x, on_weight, on_bias = zip(*parts, strict=True)
        return torch.cat(on_x) if len(parts) > 1 else on_x[0], torch.stack(on_weight), torch.stack(on_bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        on_x, on_weight, on_bias = grads
        grad, x, weight, mean, unit = ctx.saved_tensors
        runs, slope = len(weight), unit * on_weight
        shift, slope = _per_run(on_bias - mean * slope, 4), _per_run(slope, 4)
        twice = torch.addcmul(shift, x.unflatten(0, (runs, -1)), slope)
        twice.addcmul_(on_x.unflatten(0, (runs, -1)), (weight[0] * unit)[:, None, None])
        return twice.flatten(0, 1), (grad.unflatten(0, (runs, -1)) * slope).flatten(0, 1), None, None, None


class _StackedNorm(nn.BatchNorm2d):
    constant: bool

    def forward(self, x: Tensor) -> Tensor:
        runs = len(self.weight)
        if self.training or self.running_mean is None:
            parts = _grouped(x, runs)
            scale, shift = self.weight.flatten(), self.bias.flatten()
            return _ungrouped(nn.functional.batch_norm(parts, None, None, scale, shift, True, 0.0, self.eps), runs)
        assert self.running_var is not None
        unit = (self.running_var + self.eps).rsqrt()
        if self.constant:
            return _Norm.apply(x, self.weight, self.bias, self.running_mean, unit)
        scale = self.weight * unit
        shift = self.bias - self.running_mean * scale
        parts = x.unflatten(0, (runs, -1))
        return torch.addcmul(_per_run(shift, x.dim()), parts, _per_run(scale, x.dim())).flatten(0, 1)


_STACKED: dict[type, type] = {nn.Conv2d: _StackedConv, nn.Linear: _StackedLinear, nn.BatchNorm2d: _StackedNorm}


def stackable(model: nn.Module) -> bool:
    """Say whether every layer with parameters is one that has a stacked form."""
    for module in model.modules():
        if next(module.parameters(recurse=False), None) is None:
            continue
        if type(module) not in _STACKED or (isinstance(module, _BatchNorm) and not module.affine):
            return False
        if isinstance(module, nn.Conv2d) and (module.padding_mode != "zeros" or isinstance(module.padding, str)):
            return False
    return True


def stacked(model: nn.Module, *, constant: bool = True) -> nn.Module:
    """Return a copy of the model whose parameters, when it is called, have an axis of reconstructions in front.

    Parameters
    ----------
    model
        See `stackable`.
    constant
        The weights are the same for all reconstructions and depend on nothing, so that no derivative with respect to
        them is taken after the first.
    """
    twin = copy.deepcopy(model)
    for module in twin.modules():
        if type(module) in _STACKED:
            module.__class__ = _STACKED[type(module)]
            if isinstance(module, _StackedConv | _StackedNorm):
                module.constant = constant
        elif isinstance(module, nn.ReLU):
            module.inplace = False
    return twin
