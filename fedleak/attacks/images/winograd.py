"""Winograd's minimal filtering F(4x4, 3x3) for convolutions on a processor, with transforms compiled by numba.

A 3 x 3 convolution of stride 1 and padding 1 takes 36 products for 16 outputs instead of 144 (Lavin & Gray, CVPR 2016).
Images, outputs and weights each have a linear transform into ``[36, rows, channels]``, where a convolution and both its
gradients are batched matrix products; a gradient's transforms are the transposed ones. So one transform of an image
serves the convolution, the weights' gradient and its derivative.
"""

import functools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

CHANNELS_AT_ONCE = 64
"""Number of channels that are transformed at once: their 6 x 6 tile fits a CPU's first cache."""


def _image(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> tuple:
    p, q, r, s = e - 4 * c, d - 4 * b, e - c, 2 * (d - b)
    return 4 * a - 5 * c + e, p + q, p - q, r + s, r - s, 4 * b - 5 * d + f


def _image_transposed(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> tuple:
    p, q, r, s = b + c, b - c, d + e, d - e
    return 4 * a, 4 * f - 4 * q - 2 * s, -5 * a - 4 * p - r, q + 2 * s - 5 * f, a + p + r, f


def _output(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> tuple:
    p, q, r, s = a + c, b + d, a + 4 * c, 2 * b + 8 * d
    return a, p + q, p - q, r + s, r - s, d


def _output_transposed(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> tuple:
    p, q, r, s = b + c, b - c, d + e, d - e
    return a + p + r, q + 2 * s, p + 4 * r, q + 8 * s + f, a, a


def _weight(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> tuple:
    sixth, twelfth = np.float32(1 / 6), np.float32(1 / 12)
    p, q, r = -sixth * (a + c), sixth * b, sixth * (np.float32(0.25) * a + c)
    return np.float32(0.25) * a, p - q, p + q, r + twelfth * b, r - twelfth * b, c


def _weight_transposed(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> tuple:
    sixth, twelfth = np.float32(1 / 6), np.float32(1 / 12)
    p, r = sixth * (b + c), sixth * (d + e)
    return np.float32(0.25) * (a + r) - p, sixth * (c - b) + twelfth * (d - e), r - p + f, a, a, a


def is_available() -> bool:
    """Return whether numba is installed; log once if it is not."""
    return _numba() is not None


@functools.cache
def _numba() -> Any:
    try:
        import numba
    except ImportError as error:
        logging.getLogger(__name__).info("numba is missing, so convolutions are computed directly: %s", error)
        return None
    return numba


@functools.cache
def _kernel(transform: Callable, size: int, offset: int, inwards: bool) -> Callable:
    """Compile a transform between tensors ``[N, H, W, C]`` and ``[36, N * tiles, C]``.

    A tile of the tensor is `size` pixels wide and begins `offset` pixels before each fourth pixel. Pixels outside the
    tensor are 0, and overlapping tiles are added.
    """
    jit = functools.partial(_numba().njit, fastmath=True, error_model="numpy")
    transform_line, max_channels, tiles_overlap = jit(transform), CHANNELS_AT_ONCE, size > 4

    def read(x: Any, planes: Any) -> None:
        images, height, width, channels = x.shape
        tile, zero = np.zeros((6, 6, max_channels), np.float32), np.zeros(max_channels, np.float32)
        down, across = (height + 3) // 4, (width + 3) // 4
        for row in range(images * down * across):
            n, top, x0 = row // (down * across), row // across % down * 4 - offset, row % across * 4 - offset
            for first in range(0, channels, max_channels):
                k = min(max_channels, channels - first)
                for j in range(size):
                    col = x0 + j
                    inside = 0 <= col < width
                    a = x[n, top, col, first : first + k] if inside and top >= 0 else zero[:k]
                    b = x[n, top + 1, col, first : first + k] if inside and top + 1 < height else zero[:k]
                    c = x[n, top + 2, col, first : first + k] if inside and top + 2 < height else zero[:k]
                    d = x[n, top + 3, col, first : first + k] if inside and top + 3 < height else zero[:k]
                    e = x[n, top + 4, col, first : first + k] if inside and top + 4 < height else zero[:k]
                    f = x[n, top + 5, col, first : first + k] if inside and top + 5 < height else zero[:k]
                    for i in range(k):
                        (tile[0, j, i], tile[1, j, i], tile[2, j, i], tile[3, j, i], tile[4, j, i], tile[5, j, i]) = (
                            transform_line(a[i], b[i], c[i], d[i], e[i], f[i])
                        )
                for r in range(6):
                    a, b = planes[6 * r, row, first : first + k], planes[6 * r + 1, row, first : first + k]
                    c, d = planes[6 * r + 2, row, first : first + k], planes[6 * r + 3, row, first : first + k]
                    e, f = planes[6 * r + 4, row, first : first + k], planes[6 * r + 5, row, first : first + k]
                    for i in range(k):
                        a[i], b[i], c[i], d[i], e[i], f[i] = transform_line(
                            tile[r, 0, i], tile[r, 1, i], tile[r, 2, i], tile[r, 3, i], tile[r, 4, i], tile[r, 5, i]
                        )

    def write(planes: Any, x: Any) -> None:
        images, height, width, channels = x.shape
        tile, discarded = np.zeros((6, 6, max_channels), np.float32), np.zeros((6, max_channels), np.float32)
        down, across = (height + 3) // 4, (width + 3) // 4
        for row in range(images * down * across):
            n, top, x0 = row // (down * across), row // across % down * 4 - offset, row % across * 4 - offset
            for first in range(0, channels, max_channels):
                k = min(max_channels, channels - first)
                for j in range(6):
                    a, b = planes[j, row, first : first + k], planes[6 + j, row, first : first + k]
                    c, d = planes[12 + j, row, first : first + k], planes[18 + j, row, first : first + k]
                    e, f = planes[24 + j, row, first : first + k], planes[30 + j, row, first : first + k]
                    for i in range(k):
                        (tile[0, j, i], tile[1, j, i], tile[2, j, i], tile[3, j, i], tile[4, j, i], tile[5, j, i]) = (
                            transform_line(a[i], b[i], c[i], d[i], e[i], f[i])
                        )
                for r in range(size):
                    y = top + r
                    if not 0 <= y < height:
                        continue
                    a = x[n, y, x0, first : first + k] if x0 >= 0 else discarded[0, :k]
                    b = x[n, y, x0 + 1, first : first + k] if x0 + 1 < width else discarded[1, :k]
                    c = x[n, y, x0 + 2, first : first + k] if x0 + 2 < width else discarded[2, :k]
                    d = x[n, y, x0 + 3, first : first + k] if size > 3 and x0 + 3 < width else discarded[3, :k]
                    e = x[n, y, x0 + 4, first : first + k] if size > 4 and x0 + 4 < width else discarded[4, :k]
                    f = x[n, y, x0 + 5, first : first + k] if size > 5 and x0 + 5 < width else discarded[5, :k]
                    for i in range(k):
                        p, q, s, t, u, v = transform_line(
                            tile[r, 0, i], tile[r, 1, i], tile[r, 2, i], tile[r, 3, i], tile[r, 4, i], tile[r, 5, i]
                        )
                        if tiles_overlap:
                            a[i], b[i], c[i] = a[i] + p, b[i] + q, c[i] + s
                            d[i], e[i], f[i] = d[i] + t, e[i] + u, f[i] + v
                        else:
                            a[i], b[i], c[i], d[i] = p, q, s, t

    return jit(read if inwards else write)


def _to_channels_last(x: Tensor) -> Tensor:
    """Return ``[N, C, H, W]`` as ``[N, H, W, C]``, without a copy if the channels are stored last."""
    return x.detach().movedim(1, -1).contiguous()


def _read(kernel: tuple, x: Tensor) -> Tensor:
    rows = _to_channels_last(x)
    n, height, width, channels = rows.shape
    planes = rows.new_empty(36, n * -(-height // 4) * -(-width // 4), channels)
    _kernel(*kernel, True)(rows.numpy(), planes.numpy())
    return planes


def _write(kernel: tuple, planes: Tensor, n: int, height: int, width: int) -> Tensor:
    make = torch.zeros if kernel[1] > 4 else torch.empty
    rows = make(n, height, width, planes.shape[-1])
    _kernel(*kernel, False)(planes.numpy(), rows.numpy())
    return rows.movedim(-1, 1)


def from_images(x: Tensor) -> Tensor:
    """Transform images ``[N, C, H, W]`` to ``[36, N * tiles, C]``."""
    return _read((_image, 6, 1), x)


def to_images(planes: Tensor, shape: torch.Size) -> Tensor:
    """Apply the transpose of `from_images`: the gradient with respect to images of this shape."""
    return _write((_image_transposed, 6, 1), planes, shape[0], *shape[2:])


def from_outputs(grad: Tensor) -> Tensor:
    """Transform outputs' gradients ``[N, O, H, W]`` to ``[36, N * tiles, O]``: the transpose of `to_outputs`."""
    return _read((_output, 4, 0), grad)


def to_outputs(planes: Tensor, shape: torch.Size) -> Tensor:
    """Transform products ``[36, N * tiles, O]`` to a convolution's outputs, for images of this shape."""
    return _write((_output_transposed, 4, 0), planes, shape[0], *shape[2:])


def from_weights(weight: Tensor) -> Tensor:
    """Transform weights ``[N, O, I, 3, 3]`` to ``[36, N * O, I]``."""
    return _read((_weight, 3, 0), weight.flatten(0, 1))


def to_weights(planes: Tensor, runs: int) -> Tensor:
    """Apply the transpose of `from_weights`: the gradient with respect to the weights of `runs` reconstructions."""
    return _write((_weight_transposed, 3, 0), planes, planes.shape[1], 3, 3).unflatten(0, (runs, -1))
