"""The CIFAR ResNets (He et al. 2016): LLG's, and those of the image attacks, also wider (Geiping et al. 2020; AGIC)."""

import torch
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock

MEAN, STD = (0.4915, 0.4823, 0.4468), (0.2470, 0.2435, 0.2616)
"""CIFAR-10's, by colour. CIFAR-100's are (0.5072, 0.4867, 0.4412) and (0.2673, 0.2564, 0.2762)."""


class Normalise(nn.Module):
    """Take pixels in [0, 1] to mean 0 and standard deviation 1 a colour; one grey channel gets the colours' means."""

    mean: Tensor
    std: Tensor

    def __init__(self, channels: int = 3):
        super().__init__()
        for name, values in (("mean", MEAN), ("std", STD)):
            found = torch.tensor(values)
            found = found if channels == 3 else found.mean().expand(channels).clone()
            self.register_buffer(name, found[:, None, None])

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``[B, C, H, W]``."""
        return (x - self.mean) / self.std


def _stem(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())


def _blocks(width: int, each: int) -> nn.Sequential:
    """Make three stages of `each` basic blocks, of `width`, 2 `width` and 4 `width` channels."""
    blocks: list[nn.Module] = []
    held = width
    for stage, planes in enumerate((width, 2 * width, 4 * width)):
        for position in range(each):
            stride = 2 if stage and position == 0 else 1
            shortcut = None
            if stride > 1:
                shortcut = nn.Sequential(nn.Conv2d(held, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))
            blocks.append(BasicBlock(held, planes, stride, shortcut))
            held = planes
    return nn.Sequential(*blocks)


class ResNet20(nn.Module):
    """The CIFAR ResNet with 3 x 3 basic blocks, with LLG's two fully connected layers at its end.

    Parameters
    ----------
    activation
        Whether a ReLU stands between the two fully connected layers (64 -> 512 -> n). LLG's released model
        has none, so that about half of the head's inputs are negative and Property 1 cannot hold.
    """

    def __init__(self, shape: tuple[int, int, int], n_classes: int, activation: bool = False):
        super().__init__()
        self.stem = _stem(shape[0], 16)
        self.blocks = _blocks(16, each=3)
        self.bridge = nn.Linear(64, 512)
        self.act = nn.ReLU() if activation else nn.Identity()
        self.fc = nn.Linear(512, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``[B, C, H, W]`` to logits ``[B, n]``."""
        features = self.blocks(self.stem(x)).mean(dim=(2, 3))
        return self.fc(self.act(self.bridge(features)))


class WideResNet(nn.Module):
    """Three stages of `each` basic blocks, `width`, 2 `width` and 4 `width` channels, and one fully connected layer.

    With three blocks a stage and a width of 64 it is ResNet20-4: 21 convolutions (those of the two shortcuts count), 65
    parameter tensors and, for 10 classes, 4,327,754 parameters. With five and a width of 16 it is the ResNet-32 of
    He et al. (2016, Sec. 4.2), but with convolutions as shortcuts, and has 466,906. The images are normalised inside,
    so that it takes pixels in [0, 1].
    """

    def __init__(self, shape: tuple[int, int, int], n_classes: int, width: int = 64, each: int = 3):
        super().__init__()
        self.normalise = Normalise(shape[0])
        self.stem = _stem(shape[0], width)
        self.blocks = _blocks(width, each)
        self.fc = nn.Linear(4 * width, n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``[B, C, H, W]`` in [0, 1] to logits ``[B, n]``."""
        return self.fc(self.blocks(self.stem(self.normalise(x))).mean(dim=(2, 3)))
