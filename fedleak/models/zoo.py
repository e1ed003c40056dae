"""The papers' small networks, as their texts and released code describe them."""

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import nn


class CNN(nn.Sequential):
    """LLG's default model (Table 2): three sigmoid convolutions and a linear head.

    Each convolution has 12 channels, kernel 5 and padding 2, with strides 2, 2 and 1; the head then has
    588 inputs for 28 x 28 images and 768 for 32 x 32.
    """

    def __init__(self, shape: tuple[int, int, int], n_classes: int):
        channels, *size = shape
        height, width = ((-(-s // 2) + 1) // 2 for s in size)
        super().__init__(
            nn.Conv2d(channels, 12, 5, stride=2, padding=2),
            nn.Sigmoid(),
            nn.Conv2d(12, 12, 5, stride=2, padding=2),
            nn.Sigmoid(),
            nn.Conv2d(12, 12, 5, padding=2),
            nn.Sigmoid(),
            nn.Flatten(),
            nn.Linear(12 * height * width, n_classes),
        )


class LeNet(nn.Sequential):
    """LLG's LeNet (Table 3), with the sizes that chain: convolutions of 6 and 16 channels, then 120 - 84 - n.

    The printed sizes do not fit each other; a 5 x 5 and a 3 x 3 convolution, each with 2 x 2 pooling, lead to
    the 576 = 16 * 6 * 6 inputs that 32 x 32 images need. `activation` takes the place of every ReLU.
    """

    def __init__(self, shape: tuple[int, int, int], n_classes: int, activation: Callable[[], nn.Module] = nn.ReLU):
        channels, height, width = shape
        height, width = (((s - 4) // 2 - 2) // 2 for s in (height, width))
        super().__init__(
            nn.Conv2d(channels, 6, 5),
            activation(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 3),
            activation(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * height * width, 120),
            activation(),
            nn.Linear(120, 84),
            activation(),
            nn.Linear(84, n_classes),
        )


class MLP(nn.Sequential):
    """Fully connected layers of these widths with ReLUs, and the outputs.

    GDBR's has six, of 2048 to 64 units; LIA-SA's FCN-3 (Sec. V-A, which gives no widths) two of 512.
    """

    def __init__(self, shape: tuple[int, int, int], n_classes: int, widths: Sequence[int]):
        layers: list[nn.Module] = [nn.Flatten()]
        sizes = (math.prod(shape), *widths)
        for below, above in itertools.pairwise(sizes):
            layers += [nn.Linear(below, above), nn.ReLU()]
        super().__init__(*layers, nn.Linear(sizes[-1], n_classes))


class TextCNN(nn.Sequential):
    """A text classifier on bytes: 32 numbers a byte, 64 convolutions over three bytes, 64 units, and the outputs.

    Of each convolution the largest value over the text goes on, as in Kim's (EMNLP 2014).
    """

    def __init__(self, shape: tuple[int], n_classes: int):
        super().__init__(
            nn.Embedding(256, 32),
            _Transposed(),
            nn.Conv1d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveMaxPool1d(1),
            nn.Flatten(),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Linear(64, n_classes),
        )


class _Transposed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2)


@torch.no_grad()
def uniform_(model: nn.Module, generator: torch.Generator, bound: float = 0.5) -> nn.Module:
    """Draw every parameter from U(-bound, bound), as LLG's released code does for its CNN."""
    for parameter in model.parameters():
        parameter.uniform_(-bound, bound, generator=generator)
    return model
