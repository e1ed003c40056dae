"""Winograd's six transforms, compiled by numba once per machine: numba stores the machine code in its cache.

Without numba the same functions run as Python, which is slow and serves tests.
"""

from typing import Any

import numpy as np

try:
    from numba import literally, njit
except ImportError:

    def njit(**_: Any) -> Any:
        """Return functions as they are."""
        return lambda function: function

    def literally(number: int) -> int:
        """Return a number as it is."""
        return number


CHANNELS_AT_ONCE = 64
"""Number of channels that are transformed at once: their 6 x 6 tile fits a CPU's first cache."""
IMAGE, IMAGE_TRANSPOSED, OUTPUT, OUTPUT_TRANSPOSED, WEIGHT, WEIGHT_TRANSPOSED = range(6)
# Numbers of single precision: numba makes a double of a single times a Python number.
TWO, FOUR, FIVE, EIGHT, QUARTER, SIXTH, TWELFTH = np.array([2, 4, 5, 8, 1 / 4, 1 / 6, 1 / 12], np.float32)
options = {"fastmath": True, "error_model": "numpy", "cache": True}


@njit(**options)
def transform_line(which: int, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> tuple:
    """Transform one line of a tile; a line of fewer than six numbers ignores the rest of them."""
    if which == IMAGE:
        p, q, r, s = e - FOUR * c, d - FOUR * b, e - c, TWO * (d - b)
        return FOUR * a - FIVE * c + e, p + q, p - q, r + s, r - s, FOUR * b - FIVE * d + f
    if which == IMAGE_TRANSPOSED:
        p, q, r, s = b + c, b - c, d + e, d - e
        return FOUR * a, FOUR * (f - q) - TWO * s, -FIVE * a - FOUR * p - r, q + TWO * s - FIVE * f, a + p + r, f
    if which == OUTPUT:
        p, q, r, s = a + c, b + d, a + FOUR * c, TWO * b + EIGHT * d
        return a, p + q, p - q, r + s, r - s, d
    if which == OUTPUT_TRANSPOSED:
        p, q, r, s = b + c, b - c, d + e, d - e
        return a + p + r, q + TWO * s, p + FOUR * r, q + EIGHT * s + f, a, a
    if which == WEIGHT:
        p, q, r = -SIXTH * (a + c), SIXTH * b, SIXTH * (QUARTER * a + c)
        return QUARTER * a, p - q, p + q, r + TWELFTH * b, r - TWELFTH * b, c
    p, r = SIXTH * (b + c), SIXTH * (d + e)
    return QUARTER * (a + r) - p, SIXTH * (c - b) + TWELFTH * (d - e), r - p + f, a, a, a


@njit(**options)
def read(which: int, size: int, offset: int, x: Any, planes: Any, stride: int) -> None:
    """Transform a tensor ``[N, H, W, C]`` to 36 planes ``[N * tiles, C]``, which begin every `stride` numbers.

    A tile of the tensor is `size` pixels wide and begins `offset` pixels before each fourth pixel. Pixels outside the
    tensor are 0.
    """
    literally(which), literally(size), literally(offset)
    images, height, width, channels = x.shape
    tile, zero = np.zeros((6, 6, CHANNELS_AT_ONCE), np.float32), np.zeros(CHANNELS_AT_ONCE, np.float32)
    down, across = (height + 3) // 4, (width + 3) // 4
    for row in range(images * down * across):
        n, row0, col0 = row // (down * across), row // across % down * 4 - offset, row % across * 4 - offset
        for first in range(0, channels, CHANNELS_AT_ONCE):
            k = min(CHANNELS_AT_ONCE, channels - first)
            for j in range(size):
                col = col0 + j
                inside = 0 <= col < width
                a = x[n, row0, col, first : first + k] if inside and row0 >= 0 else zero[:k]
                b = x[n, row0 + 1, col, first : first + k] if inside and row0 + 1 < height else zero[:k]
                c = x[n, row0 + 2, col, first : first + k] if inside and row0 + 2 < height else zero[:k]
                d = x[n, row0 + 3, col, first : first + k] if inside and row0 + 3 < height else zero[:k]
                e = x[n, row0 + 4, col, first : first + k] if inside and row0 + 4 < height else zero[:k]
                f = x[n, row0 + 5, col, first : first + k] if inside and row0 + 5 < height else zero[:k]
                for i in range(k):
                    (tile[0, j, i], tile[1, j, i], tile[2, j, i], tile[3, j, i], tile[4, j, i], tile[5, j, i]) = (
                        transform_line(which, a[i], b[i], c[i], d[i], e[i], f[i])
                    )
            for r in range(6):
                start = 6 * r * stride + row * channels + first
                a, b, c = planes[start:], planes[start + stride :], planes[start + 2 * stride :]
                d, e, f = planes[start + 3 * stride :], planes[start + 4 * stride :], planes[start + 5 * stride :]
                for i in range(k):
                    a[i], b[i], c[i], d[i], e[i], f[i] = transform_line(
                        which, tile[r, 0, i], tile[r, 1, i], tile[r, 2, i], tile[r, 3, i], tile[r, 4, i], tile[r, 5, i]
                    )


@njit(**options)
def write(which: int, size: int, offset: int, x: Any, planes: Any, stride: int) -> None:
    """Transform 36 planes, as `read` writes them, to a tensor ``[N, H, W, C]``. Tiles that overlap are added up."""
    literally(which), literally(size), literally(offset)
    images, height, width, channels = x.shape
    tile, discarded = np.zeros((6, 6, CHANNELS_AT_ONCE), np.float32), np.zeros((6, CHANNELS_AT_ONCE), np.float32)
    down, across = (height + 3) // 4, (width + 3) // 4
    for row in range(images * down * across):
        n, row0, col0 = row // (down * across), row // across % down * 4 - offset, row % across * 4 - offset
        for first in range(0, channels, CHANNELS_AT_ONCE):
            k = min(CHANNELS_AT_ONCE, channels - first)
            for j in range(6):
                start = j * stride + row * channels + first
                a, b, c = planes[start:], planes[start + 6 * stride :], planes[start + 12 * stride :]
                d, e, f = planes[start + 18 * stride :], planes[start + 24 * stride :], planes[start + 30 * stride :]
                for i in range(k):
                    (tile[0, j, i], tile[1, j, i], tile[2, j, i], tile[3, j, i], tile[4, j, i], tile[5, j, i]) = (
                        transform_line(which, a[i], b[i], c[i], d[i], e[i], f[i])
                    )
            for r in range(size):
                y = row0 + r
                if not 0 <= y < height:
                    continue
                a = x[n, y, col0, first : first + k] if col0 >= 0 else discarded[0, :k]
                b = x[n, y, col0 + 1, first : first + k] if col0 + 1 < width else discarded[1, :k]
                c = x[n, y, col0 + 2, first : first + k] if col0 + 2 < width else discarded[2, :k]
                d = x[n, y, col0 + 3, first : first + k] if size > 3 and col0 + 3 < width else discarded[3, :k]
                e = x[n, y, col0 + 4, first : first + k] if size > 4 and col0 + 4 < width else discarded[4, :k]
                f = x[n, y, col0 + 5, first : first + k] if size > 5 and col0 + 5 < width else discarded[5, :k]
                for i in range(k):
                    p, q, s, t, u, v = transform_line(
                        which, tile[r, 0, i], tile[r, 1, i], tile[r, 2, i], tile[r, 3, i], tile[r, 4, i], tile[r, 5, i]
                    )
                    if size > 4:
                        a[i], b[i], c[i] = a[i] + p, b[i] + q, c[i] + s
                        d[i], e[i], f[i] = d[i] + t, e[i] + u, f[i] + v
                    else:
                        a[i], b[i], c[i], d[i] = p, q, s, t


# One function per transform, so that each is compiled for constant `which`, `size` and `offset`.
@njit(**options)
def from_images(x: Any, planes: Any, stride: int) -> None:
    """Transform images."""
    read(IMAGE, 6, 1, x, planes, stride)


@njit(**options)
def to_images(x: Any, planes: Any, stride: int) -> None:
    """Apply the transpose of `from_images`."""
    write(IMAGE_TRANSPOSED, 6, 1, x, planes, stride)


@njit(**options)
def from_outputs(x: Any, planes: Any, stride: int) -> None:
    """Apply the transpose of `to_outputs`."""
    read(OUTPUT, 4, 0, x, planes, stride)


@njit(**options)
def to_outputs(x: Any, planes: Any, stride: int) -> None:
    """Transform products to outputs."""
    write(OUTPUT_TRANSPOSED, 4, 0, x, planes, stride)


@njit(**options)
def from_weights(x: Any, planes: Any, stride: int) -> None:
    """Transform weights."""
    read(WEIGHT, 3, 0, x, planes, stride)


@njit(**options)
def to_weights(x: Any, planes: Any, stride: int) -> None:
    """Apply the transpose of `from_weights`."""
    write(WEIGHT_TRANSPOSED, 3, 0, x, planes, stride)
