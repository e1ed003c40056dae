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

from fedleak.attacks.images.convolution import SAME_3X3, convolve_runs, runs_backward


def is_cheaper(inputs: int, outputs: int, positions: int, window: int) -> bool:
    """Say whether Gram matrices and their products with both factors cost less than half of the gradient.

    `inputs` and `outputs` are the channels, `positions` those of all images of a reconstruction, and `window` is the
    number of weights per pair of channels.
    """
    return 2 * positions * (inputs + outputs) < window * inputs * outputs / 2


def _rows(x: Tensor, runs: int) -> Tensor:
    """Return images ``[N * B, C, H, W]`` or rows as ``[N, P, C]``, without a copy if the channels are last."""
    return (x if x.dim() == 2 else x.movedim(1, -1).flatten(0, 2)).unflatten(0, (runs, -1))


def _images(rows: Tensor, like: Tensor) -> Tensor:
    """Return rows ``[N, P, C]`` in the shape of `like`."""
    return rows.view_as(like) if like.dim() == 2 else rows.view_as(like.movedim(1, -1)).movedim(-1, 1)


def _sum_over_windows(gram: Tensor, shape: torch.Size) -> Tensor:
    """Return the Gram matrices of windows from those of pixels, ``[N, P, P]``: the sum over shifts of both positions.

    It is its own transpose, because a window is symmetric. `shape` is that of the images; a row is its own window.
    """
    if len(shape) == 2:
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


def _outputs(x: Tensor, weights: Tensor) -> Tensor:
    """Apply weights to rows or images; N = 1 set serves all reconstructions.

    They are ``[N, O, I]`` for rows. For images they are ``[N, O, I, 3, 3]``, or ``[N, O, I * 9]`` to multiply windows.
    """
    if x.dim() == 2:
        return torch.bmm(_rows(x, len(weights)), weights.transpose(1, 2)).flatten(0, 1)
    if weights.dim() == 5:
        return convolve_runs(x, weights, SAME_3X3)
    windows = nn.functional.unfold(x, 3, padding=1).mT
    rows = torch.bmm(windows.reshape(len(weights), -1, windows.shape[2]), weights.mT)
    return rows.view(len(x), *x.shape[2:], -1).movedim(-1, 1)


def _inputs(grad: Tensor, x: Tensor, weights: Tensor) -> Tensor:
    """Return the gradient with respect to the inputs `x` of `_outputs`."""
    if x.dim() == 2:
        return torch.bmm(_rows(grad, len(weights)), weights).flatten(0, 1)
    if weights.dim() == 5:
        return runs_backward(grad, x, weights, SAME_3X3, of_weight=False)
    windows = torch.bmm(_rows(grad, len(weights)), weights).view(len(x), -1, weights.shape[2])
    return nn.functional.fold(windows.mT, x.shape[2:], 3, padding=1)


class Matrices:
    """A layer's weights ``[O, I]`` or ``[O, I, h, w]`` and the observed gradients ``[N, ...]``, as constants.

    `positions` is the number of a reconstruction's positions.

    Attributes
    ----------
    runs
        The reconstructions that the next pass computes.
    """

    def __init__(self, weight: Tensor, target: Tensor, positions: int):
        # At few positions a convolution takes longer to reorder its weights than to multiply.
        convolves = weight[0, 0].numel() > 1 and positions > 100
        self.weights, self.targets = (t if convolves else t.flatten(2) for t in (weight[None], target))
        self.runs = slice(None)


def apply_factored(x: Tensor, products: Tensor, matrices: Matrices) -> Tensor:
    """Apply a layer of which the gradient with respect to `products`, ``[N, 2]``, is ``<G, T>`` and ``|G|^2``.

    `x` are images ``[N * B, I, H, W]``, for convolutions of stride 1 that keep their size, or rows ``[N * B, I]``.
    """
    if x.dim() == 2 or matrices.weights[0, 0].numel() > x.shape[1]:
        return _Product.apply(x, products, matrices)
    pixels = x.movedim(1, -1)  # a convolution of 1 x 1 is a layer on pixels
    return _Product.apply(pixels.flatten(0, 2), products, matrices).view(*pixels.shape[:3], -1).movedim(-1, 1)


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, products: Tensor, matrices: Matrices) -> Tensor:
        ctx.save_for_backward(x)
        ctx.matrices = matrices
        return _outputs(x, matrices.weights)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (x,) = ctx.saved_tensors
        # The matched gradient needs a graph; the pass from the distance to the images does not.
        if torch.is_grad_enabled():
            return *_ProductBackward.apply(*grads, x, ctx.matrices), None
        return _inputs(grads[0], x, ctx.matrices.weights), None, None


class _ProductBackward(Function):
    @staticmethod
    def forward(ctx: Any, grad: Tensor, x: Tensor, matrices: Matrices) -> tuple[Tensor, Tensor]:
        target = matrices.targets[matrices.runs]
        g, pixels, on_target = (_rows(t, len(target)) for t in (grad, x, _outputs(x, target)))
        of_windows = _sum_over_windows(torch.bmm(pixels, pixels.transpose(1, 2)), x.shape)
        of_grad = torch.bmm(g, g.transpose(1, 2))
        ctx.save_for_backward(grad, x, on_target, of_windows, of_grad)
        ctx.matrices, ctx.target = matrices, target
        products = torch.stack([(g * on_target).sum((1, 2)), (of_grad * of_windows).sum((1, 2))], 1)
        return _inputs(grad, x, matrices.weights), products

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        v, slopes = grads
        grad, x, on_target, of_windows, of_grad = ctx.saved_tensors
        g, pixels = (_rows(t, len(slopes)) for t in (grad, x))
        first, second = (s[:, None, None] for s in (slopes[:, 0], 2 * slopes[:, 1]))
        on_grad = torch.bmm(of_windows, g).mul_(second).addcmul_(on_target, first)
        on_x = torch.bmm(_sum_over_windows(of_grad, x.shape), pixels).mul_(second)
        on_x.addcmul_(_rows(_inputs(grad, x, ctx.target), len(slopes)), first)
        return _images(on_grad, grad).add_(_outputs(v, ctx.matrices.weights)), _images(on_x, x), None, None
