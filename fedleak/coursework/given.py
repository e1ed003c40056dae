"""What the assignments give to the student and the checks alike."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

SIDE = 8
"""Pixels a side of the images that `small_network` takes."""


def small_parameters(seed: int, n_classes: int = 10) -> list[Tensor]:
    """Return weights and biases of `small_network`, float64: two convolutions and a fully connected layer."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(8, 1, 3, 3), (8,), (8, 8, 3, 3), (8,), (n_classes, 8 * SIDE * SIDE), (n_classes,)]
    return [torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5 for shape in shapes]


def small_network(parameters: Sequence[Tensor], images: Tensor) -> Tensor:
    """Return logits ``[B, n]`` of images ``[B, 1, 8, 8]``; the sigmoids make the gradient's own gradient smooth."""
    first, bias, second, other, head, last = parameters
    hidden = torch.sigmoid(nn.functional.conv2d(images, first, bias, padding=1))
    hidden = torch.sigmoid(nn.functional.conv2d(hidden, second, other, padding=1))
    return hidden.flatten(1) @ head.T + last
