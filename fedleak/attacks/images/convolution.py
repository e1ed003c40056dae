"""Convolutions of many reconstructions at once, with weights ``[N, O, I, h, w]``, and two derivatives.

The second derivative is explicit: four convolutions in the fastest memory layout. PyTorch's, which works for any shape,
takes about twice the time.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

Geometry = tuple[list[int], list[int], list[int], int]
"""Stride, padding, dilation and groups of a convolution."""
SAME_3X3: Geometry = ([1, 1], [1, 1], [1, 1], 1)
"""Stride 1 and padding 1."""


def _convolve(x: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    stride, padding, dilation, groups = geometry
    return torch.ops.aten.convolution(x, weight, None, stride, padding, dilation, False, [0, 0], groups)


def _backward(grad: Tensor, x: Tensor, weight: Tensor, geometry: Geometry, of_weight: bool) -> Tensor:
    """Return the gradient with respect to the weights (`of_weight`) or to the images."""
    stride, padding, dilation, groups = geometry
    needs_weight = [not of_weight, of_weight, False]
    return torch.ops.aten.convolution_backward(
        grad, x, weight, None, stride, padding, dilation, False, [0, 0], groups, needs_weight
    )[of_weight]


def prefers_batched_kernels(x: Tensor) -> bool:
    """Return whether one operation on all reconstructions is faster than a loop, as on a GPU."""
    return x.device.type != "cpu"


def _uses_product(x: Tensor, geometry: Geometry) -> bool:
    """Return whether a convolution is computed as one batched matrix product, which is faster on a GPU."""
    return prefers_batched_kernels(x) and geometry[2] == [1, 1] and geometry[3] == 1


def _unfold_columns(
    x: Tensor, runs: int, window: torch.Size, stride: list[int], pad: list[int]
) -> tuple[Tensor, list[int]]:
    """Return the pixels of each window ``h, w`` as columns, ``[N, C * h * w, B * H' * W']``, and ``[B, H', W']``.

    `pad` is that on the left, right, top and bottom, and can be negative.
    """
    windows = nn.functional.pad(x, pad).unfold(2, window[0], stride[0]).unfold(3, window[1], stride[1])
    parts = windows.unflatten(0, (runs, -1)).permute(0, 2, 5, 6, 1, 3, 4)
    return parts.flatten(4).flatten(1, 3), list(parts.shape[4:])


def _padding_of_sides(padding: list[int]) -> list[int]:
    return [padding[1], padding[1], padding[0], padding[0]]


def _convolve_by_product(x: Tensor, weight: Tensor, stride: list[int], pad: list[int]) -> Tensor:
    columns, sizes = _unfold_columns(x, len(weight), weight.shape[-2:], stride, pad)
    return torch.bmm(weight.flatten(2), columns).unflatten(2, sizes).transpose(1, 2).flatten(0, 1)


def _product_backward(grad: Tensor, x: Tensor, weight: Tensor, geometry: Geometry, of_weight: bool) -> Tensor:
    stride, padding, _, _ = geometry
    runs, window = len(weight), weight.shape[-2:]
    if of_weight:
        columns, _ = _unfold_columns(x, runs, window, stride, _padding_of_sides(padding))
        rows = grad.unflatten(0, (runs, -1)).transpose(1, 2).flatten(2)
        return torch.bmm(rows, columns.transpose(1, 2)).unflatten(2, weight.shape[2:])
    sizes = [(n - 1) * s + 1 for n, s in zip(grad.shape[2:], stride, strict=True)]
    dilated = grad.new_zeros(*grad.shape[:2], *sizes)
    dilated[:, :, :: stride[0], :: stride[1]] = grad
    before = [k - 1 - p for k, p in zip(window, padding, strict=True)]
    after = [n + k - 1 - s - b for n, k, s, b in zip(x.shape[2:], window, sizes, before, strict=True)]
    flipped = weight.flip(-1, -2).transpose(1, 2)
    return _convolve_by_product(dilated, flipped, [1, 1], [before[1], after[1], before[0], after[0]])


def _convolve_runs(x: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Convolve each reconstruction's images with its weights ``[N, O, I, h, w]``."""
    runs = len(weight)
    if _uses_product(x, geometry):
        return _convolve_by_product(x, weight, geometry[0], _padding_of_sides(geometry[1]))
    parts = [_convolve(p, w, geometry) for p, w in zip(x.chunk(runs), weight, strict=True)]
    return torch.cat(parts) if runs > 1 else parts[0]


def runs_backward(grad: Tensor, x: Tensor, weight: Tensor, geometry: Geometry, of_weight: bool) -> Tensor:
    """Return each reconstruction's gradient with respect to its weights ``[N, O, I, h, w]`` or its images."""
    runs = len(weight)
    if _uses_product(x, geometry):
        return _product_backward(grad, x, weight, geometry, of_weight)
    pieces = zip(grad.chunk(runs), x.chunk(runs), weight, strict=True)
    parts = [_backward(g, p, w, geometry, of_weight) for g, p, w in pieces]
    if of_weight:
        return torch.stack(parts) if runs > 1 else parts[0][None]
    return torch.cat(parts) if runs > 1 else parts[0]


class _Conv(Function):
    """A convolution with weights ``[N, O, I, h, w]``; `constant` weights need no further derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, geometry: Geometry, constant: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.geometry, ctx.constant = geometry, constant
        # Equal weights: all images in one convolution.
        return _convolve(x, weight[0], geometry) if constant else _convolve_runs(x, weight, geometry)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        w = weight.detach() if ctx.constant else weight
        on_x = _ConvInput.apply(grad, w, x, ctx.geometry, ctx.constant) if ctx.needs_input_grad[0] else None
        needs_weight = ctx.needs_input_grad[1] and (torch.is_grad_enabled() or not ctx.constant)
        on_weight = _ConvWeight.apply(x, grad, w, ctx.geometry) if needs_weight else None
        return on_x, on_weight, None, None


class _ConvInput(Function):
    @staticmethod
    def forward(ctx: Any, grad: Tensor, weight: Tensor, x: Tensor, geometry: Geometry, constant: bool) -> Tensor:
        ctx.save_for_backward(grad, weight, x)
        ctx.geometry, ctx.constant = geometry, constant
        if constant:
            return _backward(grad, x, weight[0], geometry, of_weight=False)
        return runs_backward(grad, x, weight, geometry, of_weight=False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (v,) = grads
        grad, weight, _ = ctx.saved_tensors
        on_grad = _convolve(v, weight[0], ctx.geometry) if ctx.constant else _convolve_runs(v, weight, ctx.geometry)
        on_weight = runs_backward(grad, v, weight, ctx.geometry, of_weight=True) if ctx.needs_input_grad[1] else None
        return on_grad, on_weight, None, None, None


class _ConvWeight(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, grad: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(x, grad)
        ctx.geometry = geometry
        return runs_backward(grad, x, weight, geometry, of_weight=True)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (v,) = grads
        x, grad = ctx.saved_tensors
        on_x = runs_backward(grad, x, v, ctx.geometry, of_weight=False) if ctx.needs_input_grad[0] else None
        return on_x, _convolve_runs(x, v, ctx.geometry) if ctx.needs_input_grad[1] else None, None, None


def convolve(x: Tensor, weight: Tensor, geometry: Geometry, constant: bool) -> Tensor:
    """Convolve images ``[N * B, I, H, W]`` with weights ``[N, O, I, h, w]``, differentiably up to the second order.

    `geometry` has the convolution's stride, padding, dilation and groups; `constant` says whether the weights are equal
    and depend on nothing.
    """
    return _Conv.apply(x, weight, geometry, constant)
