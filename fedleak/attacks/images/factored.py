"""Match gradients of layers with many weights without computing these gradients.

A weight's gradient is a product of factors, ``G = sum over p of g_p x_p^T``: the outputs' gradients and the windows of
the input at each position p. A cosine needs only two numbers of it (AGIC's Eq. 3), and both follow from the factors:

- ``<G, T> = sum over p of g_p . (T x_p)``, the outputs' gradients times a convolution with the observed gradient T;
- ``|G|^2 = sum over p, q of (g_p . g_q) (x_p . x_q)``, a product of two Gram matrices of positions.

With few positions and many weights (the last convolutions of a ResNet, fully connected layers) this takes fewer
multiplications and no memory for G, its slope and their second derivatives, and all convolutions have constant weights.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from fedleak.attacks.images.convolution import SAME_3X3, runs_backward


def is_cheaper(inputs: int, outputs: int, positions: int, window: int) -> bool:
    """Say whether Gram matrices and their products with both factors cost less than half of the gradient.

    `inputs` and `outputs` are the channels, `positions` those of all images of a reconstruction, and `window` is the
    number of weights per pair of channels.
    """
    return 2 * positions * (inputs + outputs) < window * inputs * outputs / 2


def _windows(x: Tensor, window: int) -> Tensor:
    """Return the window at each position, ``[B * H * W, window * C]``, of images ``[B, C, H, W]`` or rows."""
    if window == 1:
        return _rows(x)
    rows = nn.functional.pad(x.movedim(1, -1), (0, 0, 1, 1, 1, 1))
    return rows.unfold(1, 3, 1).unfold(2, 3, 1).permute(0, 1, 2, 4, 5, 3).flatten(3).flatten(0, 2)


def _rows(x: Tensor) -> Tensor:
    """Return images ``[B, C, H, W]`` as ``[B * H * W, C]``, without a copy if the channels are last."""
    return x if x.dim() == 2 else x.movedim(1, -1).flatten(0, 2)


def _images(rows: Tensor, shape: torch.Size) -> Tensor:
    """Return rows ``[B * H * W, C]`` as images with the batch, height and width of this shape."""
    return rows if len(shape) == 2 else rows.view(shape[0], *shape[2:], -1).movedim(-1, 1)


def _sum_over_windows(gram: Tensor, shape: torch.Size, window: int) -> Tensor:
    """Return the Gram matrices of windows from those of pixels, ``[N, P, P]``: the sum over shifts of both positions.

    It is its own transpose, because a window is symmetric. `shape` is that of the images.
    """
    if window == 1:
        return gram
    runs, positions, _ = gram.shape
    height, width = shape[2:]
    total = gram.view(runs, -1, height, width, positions // height // width, height, width)
    for row, column, size in ((2, 5, height), (3, 6, width)):
        pixels, total = total, total.clone()
        for to, source in ((0, 1), (1, 0)):
            shifted = pixels.narrow(row, source, size - 1).narrow(column, source, size - 1)
            total.narrow(row, to, size - 1).narrow(column, to, size - 1).add_(shifted)
    return total.view_as(gram)


def _rows_of(weights: Tensor) -> Tensor:
    """Return weights ``[N, O, I]`` or ``[N, O, I, h, w]`` as ``[N, O, window * I]``, the channels last."""
    return weights.movedim(2, -1).flatten(2).contiguous()


class Matrices:
    """A layer's weights ``[O, I]`` or ``[O, I, h, w]`` and the observed gradients ``[N, ...]``, as constant matrices.

    Attributes
    ----------
    window
        Number of weights per pair of channels: 9 or 1.
    weight, targets
        ``[O, window * I]`` and ``[N, O, window * I]``, as `_windows` has its columns.
    runs
        The reconstructions that the next pass computes.
    """

    def __init__(self, weight: Tensor, target: Tensor):
        self.window, self.runs = weight[0, 0].numel(), slice(None)
        self.weight, self.targets = _rows_of(weight[None])[0], _rows_of(target)


def _on_inputs(grad: Tensor, x: Tensor, weights: Tensor, window: int) -> Tensor:
    """Return the gradient with respect to the inputs `x`, from that of the outputs, for weights ``[N, O, window * I]``.

    The weights are those of each reconstruction, or one set for all. A convolution adds up the windows as it goes, so
    that it takes half the time of a product and a sum.
    """
    if window == 1:
        rows = _rows(grad).unflatten(0, (len(weights), -1))
        return _images(torch.bmm(rows, weights).flatten(0, 1), x.shape)
    kernels = weights.unflatten(2, (3, 3, -1)).movedim(-1, 2)
    return runs_backward(grad, x, kernels, SAME_3X3, of_weight=False)


def apply_factored(x: Tensor, products: Tensor, matrices: Matrices) -> Tensor:
    """Apply a layer of which the gradient with respect to `products`, ``[N, 2]``, is ``<G, T>`` and ``|G|^2``.

    `x` are images ``[N * B, I, H, W]``, for convolutions of stride 1 that keep their size, or rows ``[N * B, I]``.
    """
    return _Product.apply(x, products, matrices)


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, products: Tensor, matrices: Matrices) -> Tensor:
        windows = _windows(x, matrices.window)
        ctx.save_for_backward(x, windows)
        ctx.matrices = matrices
        return _images(windows @ matrices.weight.T, x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, windows = ctx.saved_tensors
        # The matched gradient needs a graph; the pass from the distance to the images does not.
        if torch.is_grad_enabled():
            return *_ProductBackward.apply(*grads, x, windows.detach(), ctx.matrices), None
        return _on_inputs(grads[0], x, ctx.matrices.weight[None], ctx.matrices.window), None, None


class _ProductBackward(Function):
    @staticmethod
    def forward(ctx: Any, grad: Tensor, x: Tensor, windows: Tensor, matrices: Matrices) -> tuple[Tensor, Tensor]:
        target = matrices.targets[matrices.runs]
        shape = (len(target), -1)
        g, pixels = _rows(grad).unflatten(0, shape), _rows(x).unflatten(0, shape)
        on_target = torch.bmm(windows.unflatten(0, shape), target.transpose(1, 2))
        of_windows = _sum_over_windows(torch.bmm(pixels, pixels.transpose(1, 2)), x.shape, matrices.window)
        of_grad = torch.bmm(g, g.transpose(1, 2))
        ctx.save_for_backward(g, pixels, on_target, of_windows, of_grad)
        ctx.shape, ctx.matrices, ctx.target = x.shape, matrices, target
        products = torch.stack([(g * on_target).sum((1, 2)), (of_grad * of_windows).sum((1, 2))], 1)
        return _on_inputs(grad, x, matrices.weight[None], matrices.window), products

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        v, slopes = grads
        g, pixels, on_target, of_windows, of_grad = ctx.saved_tensors
        matrices, window = ctx.matrices, ctx.matrices.window
        first, second = (s[:, None, None] for s in (slopes[:, 0], 2 * slopes[:, 1]))
        on_grad = torch.bmm(of_windows, g).mul_(second).addcmul_(on_target, first).flatten(0, 1)
        on_grad.addmm_(_windows(v, window), matrices.weight.T)
        on_x = torch.bmm(_sum_over_windows(of_grad, ctx.shape, window), pixels).mul_(second)
        grad, x = _images(g.flatten(0, 1), v.shape), _images(pixels.flatten(0, 1), ctx.shape)
        on_x.addcmul_(_rows(_on_inputs(grad, x, ctx.target, window)).view_as(on_x), first)
        return _images(on_grad, v.shape), _images(on_x.flatten(0, 1), ctx.shape), None, None
