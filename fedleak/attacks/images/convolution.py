"""Convolutions of many reconstructions at once, with weights ``[N, O, I, h, w]``, and two derivatives.

The second derivative is explicit: four convolutions in the fastest memory layout. PyTorch's, which works for any shape,
takes about twice the time. On a CPU 3 x 3 convolutions use Winograd's filtering if it is faster, which `convolve`
measures once per shape.
"""

import functools
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from fedleak.attacks.images import winograd

Geometry = tuple[list[int], list[int], list[int], int]
"""Stride, padding, dilation and groups of a convolution."""


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


def _runs_backward(grad: Tensor, x: Tensor, weight: Tensor, geometry: Geometry, of_weight: bool) -> Tensor:
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
        return _runs_backward(grad, x, weight, geometry, of_weight=False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (v,) = grads
        grad, weight, _ = ctx.saved_tensors
        on_grad = _convolve(v, weight[0], ctx.geometry) if ctx.constant else _convolve_runs(v, weight, ctx.geometry)
        on_weight = _runs_backward(grad, v, weight, ctx.geometry, of_weight=True) if ctx.needs_input_grad[1] else None
        return on_grad, on_weight, None, None, None


class _ConvWeight(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, grad: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(x, grad)
        ctx.geometry = geometry
        return _runs_backward(grad, x, weight, geometry, of_weight=True)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (v,) = grads
        x, grad = ctx.saved_tensors
        on_x = _runs_backward(grad, x, v, ctx.geometry, of_weight=False) if ctx.needs_input_grad[0] else None
        return on_x, _convolve_runs(x, v, ctx.geometry) if ctx.needs_input_grad[1] else None, None, None


class _Winograd(Function):
    """A convolution by Winograd's filtering, with equal weights ``[N, O, I, 3, 3]`` whose transform is `planes`.

    With `weights` the weights' gradient and its derivatives use the filtering, too; otherwise they are direct.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, planes: Tensor, weights: bool) -> Tensor:
        images = winograd.from_images(x, len(weight))
        ctx.save_for_backward(x, weight, planes, *[images] * weights)
        return winograd.to_outputs(torch.bmm(images, planes.transpose(1, 2)), x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, weight, planes, *images = ctx.saved_tensors
        (grad,) = grads
        if torch.is_grad_enabled():
            return *_WinogradBackward.apply(grad, x, weight.detach(), planes, *images), None, None
        outputs = winograd.from_outputs(grad, len(weight))
        return winograd.to_images(torch.bmm(outputs, planes), x.shape), None, None, None


class _WinogradBackward(Function):
    """The gradients with respect to the images and to the weights, and their derivative."""

    @staticmethod
    def forward(
        ctx: Any, grad: Tensor, x: Tensor, weight: Tensor, planes: Tensor, *images: Tensor
    ) -> tuple[Tensor, ...]:
        runs = len(weight)
        outputs = winograd.from_outputs(grad, runs)
        on_x = winograd.to_images(torch.bmm(outputs, planes), x.shape)
        ctx.shape, ctx.runs, ctx.weights = x.shape, runs, bool(images)
        if not images:
            ctx.save_for_backward(planes, x, grad)
            return on_x, _runs_backward(grad, x, weight, SAME_3X3, of_weight=True)
        ctx.save_for_backward(planes, *images, outputs)
        rows, columns = (_split_runs(t, runs) for t in (outputs, *images))
        return on_x, winograd.to_weights(torch.bmm(rows.transpose(1, 2), columns).view(36, -1, columns.shape[2]), runs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        v, tangent = grads
        planes, x, grad = ctx.saved_tensors
        products = torch.bmm(winograd.from_images(v, ctx.runs), planes.transpose(1, 2))
        if not ctx.weights:
            on_grad = winograd.to_outputs(products, ctx.shape).add_(_convolve_runs(x, tangent, SAME_3X3))
            return on_grad, _runs_backward(grad, x, tangent, SAME_3X3, of_weight=False), None, None, None
        images, outputs = _split_runs(x, ctx.runs), _split_runs(grad, ctx.runs)
        flipped = winograd.from_weights(tangent).view(36 * ctx.runs, -1, images.shape[2])
        _split_runs(products, ctx.runs).baddbmm_(images, flipped.transpose(1, 2))
        on_x = torch.bmm(outputs, flipped).view(36, -1, images.shape[2])
        return winograd.to_outputs(products, ctx.shape), winograd.to_images(on_x, ctx.shape), *[None] * 3


SAME_3X3: Geometry = ([1, 1], [1, 1], [1, 1], 1)
"""Stride 1 and padding 1."""
MIN_WINOGRAD_WORK = 2**20
"""Number of products per tap below which compiling the transforms is not worthwhile."""


def _split_runs(planes: Tensor, runs: int) -> Tensor:
    """View ``[36, N * rows, channels]`` as ``[36 * N, rows, channels]``."""
    return planes.view(36 * runs, -1, planes.shape[2])


def convolve(x: Tensor, weight: Tensor, geometry: Geometry, constant: bool, transformed: dict) -> Tensor:
    """Convolve images ``[N * B, I, H, W]`` with weights ``[N, O, I, h, w]``, differentiably up to the second order.

    On a CPU, 3 x 3 convolutions of stride 1 and padding 1 in single precision use the method that is measured to be
    fastest. Winograd's filtering rounds by up to 1e-5 of the largest entry, a direct convolution by 1e-7.

    Parameters
    ----------
    x, weight, geometry
        Images, weights, and the convolution's stride, padding, dilation and groups.
    constant
        Whether the weights are equal and depend on nothing.
    transformed
        Cache for the transform of constant weights, by their address and version.
    """
    has_shape = constant and geometry == SAME_3X3 and weight.shape[3:] == (3, 3) and x.dim() == 4 and x.shape[1] >= 16
    is_large = has_shape and x.numel() * weight.shape[1] >= MIN_WINOGRAD_WORK
    if not is_large or x.dtype != torch.float32 or x.device.type != "cpu" or not winograd.is_available():
        return _Conv.apply(x, weight, geometry, constant)
    method = measure_fastest_method(x.shape, weight.shape[1], len(weight), torch.get_num_threads())
    if method == "direct":
        return _Conv.apply(x, weight, geometry, constant)
    key = (weight.data_ptr(), weight._version)
    if key not in transformed:
        transformed.clear()
        transformed[key] = winograd.from_weights(weight[:1])
    return _Winograd.apply(x, weight, transformed[key], method == "all")


@functools.cache
def measure_fastest_method(shape: torch.Size, outputs: int, runs: int, threads: int) -> str:
    """Measure once which method is fastest for images of this shape, and return it.

    It is ``"direct"``, or Winograd's filtering for ``"images"`` (convolutions with constant weights) or for ``"all"``.
    """
    x = torch.ones(shape).contiguous(memory_format=torch.channels_last).requires_grad_()
    weight = torch.ones(outputs, 3, 3, shape[1]).movedim(-1, 1).expand(runs, -1, -1, -1, -1).requires_grad_()
    planes = winograd.from_weights(weight[:1])

    def measure(method: str) -> float:
        start = time.perf_counter()
        with torch.enable_grad():
            direct = method == "direct"
            winograd_options = (planes, method == "all")
            y = _Conv.apply(x, weight, SAME_3X3, True) if direct else _Winograd.apply(x, weight, *winograd_options)
            gradients = torch.autograd.grad(y, [x, weight], y, create_graph=True)
            torch.autograd.grad(gradients, x, [g.detach() for g in gradients])
        return time.perf_counter() - start

    methods = ("direct", "images", "all")
    rounds = [[measure(m) for m in methods] for _ in range(5)]
    return methods[torch.tensor(rounds[1:]).amin(0).argmin()]
