"""The papers' small networks, as their texts and released code describe them."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock


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


class ResNet20(nn.Module):
    """The CIFAR ResNet with 3 x 3 basic blocks (He et al. 2016), with LLG's two fully connected layers at its end.

    Parameters
    ----------
    activation
        Whether a ReLU stands between the two fully connected layers (64 -> 512 -> n). LLG's released model
        has none, so that about half of the head's inputs are negative and Property 1 cannot hold.
    """

    def __init__(self, shape: tuple[int, int, int], n_classes: int, activation: bool = False):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(shape[0], 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)
        )
        blocks: list[nn.Module] = []
        width = 16
        for planes in (16, 32, 64):
            for position in range(3):
                stride = 2 if planes > 16 and position == 0 else 1
                blocks.append(BasicBlock(width, planes, stride, _shortcut(width, planes, stride)))
                width = planes
        self.blocks = nn.Sequential(*blocks)
        self.bridge = nn.Linear(64, 512)
        self.act = nn.ReLU() if activation else nn.Identity()
        self.fc = nn.Linear(512, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``[B, C, H, W]`` to logits ``[B, n]``."""
        features = self.blocks(self.stem(x)).mean(dim=(2, 3))
        return self.fc(self.act(self.bridge(features)))


def _shortcut(width: int, planes: int, stride: int) -> nn.Module | None:
    if stride == 1 and width == planes:
        return None
    return nn.Sequential(nn.Conv2d(width, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))


@torch.no_grad()
def uniform_(model: nn.Module, generator: torch.Generator, bound: float = 0.5) -> nn.Module:
    """Draw every parameter from U(-bound, bound), as LLG's released code does for its CNN."""
    for parameter in model.parameters():
        parameter.copy_(
            torch.empty(parameter.shape, dtype=parameter.dtype).uniform_(-bound, bound, generator=generator)
        )
    return model
