"""Winograd's minimal filtering F(4x4, 3x3) for convolutions on a processor, with transforms compiled by numba.

A 3 x 3 convolution of stride 1 and padding 1 takes 36 products for 16 outputs instead of 144 (Lavin & Gray, CVPR 2016).
Images, outputs and weights each have a linear transform into ``[36, rows, channels]``, where a convolution and both its
gradients are batched matrix products; a gradient's transforms are the transposed ones. So one transform of an image
serves the convolution, the weights' gradient and its derivative.
"""

import functools
import importlib.util
import logging
from types import ModuleType

import torch
from torch import Tensor


@functools.cache
def is_available() -> bool:
    """Return whether numba is installed and can store machine code; log once if not."""
    if importlib.util.find_spec("numba") is None:
        logging.getLogger(__name__).info("numba is missing, so convolutions are computed directly")
        return False
    try:
        _kernels()
    except (ImportError, RuntimeError) as error:  # a broken numba, or no folder for its cache
        logging.getLogger(__name__).info("numba cannot compile, so convolutions are computed directly: %s", error)
        return False
    return True


@functools.cache
def _kernels() -> ModuleType:
    from fedleak.attacks.images import winograd_kernels

    return winograd_kernels


def _planes(rows: int, channels: int, runs: int) -> Tensor:
    """Return an empty ``[36, rows, channels]``; for one run, planes lie a cache line further apart than their size.

    At a distance of a power of two all 36 would share a few lines of a processor's first cache. Planes of several runs
    are split by run, which needs them without gaps.
    """
    stride = rows * channels + 16 * (runs == 1)
    return torch.empty(36 * stride).as_strided((36, rows, channels), (stride, channels, 1))


def _run(kernel: str, rows: Tensor, planes: Tensor) -> None:
    stride, channels = planes.stride(0), planes.shape[2]
    assert planes.stride()[1:] == (channels, 1)
    flat = planes.as_strided((35 * stride + planes.shape[1] * channels,), (1,))
    getattr(_kernels(), kernel)(rows.numpy(), flat.numpy(), stride)


def _read(kernel: str, x: Tensor, runs: int) -> Tensor:
    rows = x.detach().movedim(1, -1).contiguous()  # no copy where the channels are last already
    n, height, width, channels = rows.shape
    planes = _planes(n * -(-height // 4) * -(-width // 4), channels, runs)
    _run(kernel, rows, planes)
    return planes


def _write(kernel: str, planes: Tensor, rows: Tensor) -> Tensor:
    _run(kernel, rows, planes)
    return rows.movedim(-1, 1)


def from_images(x: Tensor, runs: int) -> Tensor:
    """Transform images ``[N, C, H, W]`` of some runs to ``[36, N * tiles, C]``."""
    return _read("from_images", x, runs)


def to_images(planes: Tensor, shape: torch.Size) -> Tensor:
    """Apply the transpose of `from_images`: the gradient with respect to images of this shape."""
    return _write("to_images", planes, torch.zeros(shape[0], *shape[2:], planes.shape[2]))


def from_outputs(grad: Tensor, runs: int) -> Tensor:
    """Transform outputs' gradients ``[N, O, H, W]`` to ``[36, N * tiles, O]``: the transpose of `to_outputs`."""
    return _read("from_outputs", grad, runs)


def to_outputs(planes: Tensor, shape: torch.Size) -> Tensor:
    """Transform products ``[36, N * tiles, O]`` to a convolution's outputs, for images of this shape."""
    return _write("to_outputs", planes, torch.empty(shape[0], *shape[2:], planes.shape[2]))


def from_weights(weight: Tensor) -> Tensor:
    """Transform weights ``[N, O, I, 3, 3]`` of N runs to ``[36, N * O, I]``."""
    return _read("from_weights", weight.flatten(0, 1), len(weight))


def to_weights(planes: Tensor, runs: int) -> Tensor:
    """Apply the transpose of `from_weights`: the gradient with respect to the weights of `runs` reconstructions."""
    rows = torch.empty(planes.shape[1], 3, 3, planes.shape[2])
    return _write("to_weights", planes, rows).unflatten(0, (runs, -1))
