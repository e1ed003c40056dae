"""Convolutions of many reconstructions at once, ``[N, O, I, h, w]`` weights, with first and second derivatives.

The second derivative is written out as four convolutions in the layout that the processor is fastest in. PyTorch's
own, made for any shape, takes about twice the time. On a processor, 3 x 3 convolutions take Winograd's filtering where
that is faster: `convolve` measures it once per shape.
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
    """Return the gradient with respect to the weights, or to the images."""
    stride, padding, dilation, groups = geometry
    wanted = [not of_weight, of_weight, False]
    return torch.ops.aten.convolution_backward(
        grad, x, weight, None, stride, padding, dilation, False, [0, 0], groups, wanted
    )[of_weight]


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


class _Winograd(Function):
    """A convolution with equal weights ``[N, O, I, 3, 3]``, whose transform is `planes`, by Winograd's filtering.

    With `weights`, so are the weights' gradient and what depends on its tangent; else those are direct.
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
            return on_x, _each_backward(grad, x, weight, SAME, of_weight=True)
        ctx.save_for_backward(planes, *images, outputs)
        rows, columns = (_by_run(t, runs) for t in (outputs, *images))
        return on_x, winograd.to_weights(torch.bmm(rows.transpose(1, 2), columns).view(36, -1, columns.shape[2]), runs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        v, tangent = grads
        planes, x, grad = ctx.saved_tensors
        products = torch.bmm(winograd.from_images(v, ctx.runs), planes.transpose(1, 2))
        if not ctx.weights:
            on_grad = winograd.to_outputs(products, ctx.shape).add_(_each(x, tangent, SAME))
            return on_grad, _each_backward(grad, x, tangent, SAME, of_weight=False), None, None, None
        images, outputs = _by_run(x, ctx.runs), _by_run(grad, ctx.runs)
        turned = winograd.from_weights(tangent).view(36 * ctx.runs, -1, images.shape[2])
        _by_run(products, ctx.runs).baddbmm_(images, turned.transpose(1, 2))
        on_x = torch.bmm(outputs, turned).view(36, -1, images.shape[2])
        return winograd.to_outputs(products, ctx.shape), winograd.to_images(on_x, ctx.shape), *[None] * 3


SAME: Geometry = ([1, 1], [1, 1], [1, 1], 1)
"""Stride 1 and padding 1."""
LEAST = 2**20
"""Products per weight's tap below which no time is lost on compiling transforms."""


def _by_run(planes: Tensor, runs: int) -> Tensor:
    """View ``[36, N * rows, channels]`` as ``[36 * N, rows, channels]``."""
    return planes.view(36 * runs, -1, planes.shape[2])


def convolve(x: Tensor, weight: Tensor, geometry: Geometry, constant: bool, transformed: dict) -> Tensor:
    """Convolve images ``[N * B, I, H, W]`` with weights ``[N, O, I, h, w]``, differentiably up to the second order.

    On a processor, a 3 x 3 convolution of stride 1 and padding 1 in single precision runs by the method that `fastest`
    measured. Winograd's filtering rounds by up to 1e-5 of the largest entry, a direct convolution by 1e-7.

    Parameters
    ----------
    x, weight, geometry
        The images, the weights, and how to move them over the images.
    constant
        The weights are equal and depend on nothing.
    transformed
        Where the transform of constant weights is stored, by their address and version.
    """
    fits = constant and geometry == SAME and weight.shape[3:] == (3, 3) and x.dtype == torch.float32 and x.dim() == 4
    work = x.numel() * weight.shape[1]
    if not fits or x.device.type != "cpu" or x.shape[1] < 16 or work < LEAST or not winograd.available():
        return _Conv.apply(x, weight, geometry, constant)
    method = fastest(x.shape, weight.shape[1], len(weight), torch.get_num_threads())
    if method == "direct":
        return _Conv.apply(x, weight, geometry, constant)
    key = (weight.data_ptr(), weight._version)
    if key not in transformed:
        transformed.clear()
        transformed[key] = winograd.from_weights(weight[:1])
    return _Winograd.apply(x, weight, transformed[key], method == "all")


@functools.cache
def fastest(shape: torch.Size, outputs: int, runs: int, threads: int) -> str:
    """Return the fastest method for images of this shape, measured here once.

    ``"direct"``, Winograd's filtering for ``"images"`` (convolutions with the constant weights), or for ``"all"``.
    """
    x = torch.ones(shape).contiguous(memory_format=torch.channels_last).requires_grad_()
    weight = torch.ones(outputs, 3, 3, shape[1]).movedim(-1, 1).expand(runs, -1, -1, -1, -1).requires_grad_()
    planes = winograd.from_weights(weight[:1])

    def measure(method: str) -> float:
        start = time.perf_counter()
        with torch.enable_grad():
            direct = method == "direct"
            y = _Conv.apply(x, weight, SAME, True) if direct else _Winograd.apply(x, weight, planes, method == "all")
            gradients = torch.autograd.grad(y, [x, weight], y, create_graph=True)
            torch.autograd.grad(gradients, x, [g.detach() for g in gradients])
        return time.perf_counter() - start

    methods = ("direct", "images", "all")
    rounds = [[measure(m) for m in methods] for _ in range(5)]
    return methods[torch.tensor(rounds[1:]).amin(0).argmin()]
