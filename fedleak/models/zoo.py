"""The papers' small networks, as their texts and released code describe them."""

import itertools
import math
from collections.abc import Sequence

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
    the 576 = 16 * 6 * 6 inputs that 32 x 32 images need.
    """

    def __init__(self, shape: tuple[int, int, int], n_classes: int):
        channels, height, width = shape
        height, width = (((s - 4) // 2 - 2) // 2 for s in (height, width))
        super().__init__(
            nn.Conv2d(channels, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * height * width, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
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
