"""The deeper networks, from torchvision, with the stems that small images need, and FCN-3."""

import torch
from torch import nn
from torchvision import models as vision

SMALL = 64
"""Up to this side, images get the small stems."""


class FCN3(nn.Sequential):
    """Three fully connected layers with ReLUs (LIA-SA, Sec. V-A, which gives no widths): 512 - 512 - n."""

    def __init__(self, shape: tuple[int, int, int], n_classes: int, width: int = 512):
        channels, height, side = shape
        super().__init__(
            nn.Flatten(),
            nn.Linear(channels * height * side, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, n_classes),
        )


def vgg_bn(name: str, shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """Build torchvision's VGG with batch norm, without dropout; small images get a 1 x 1 pooling before the head.

    For 32 x 32 images and 10 classes ``vgg11_bn`` has 28,149,514 parameters, the number behind LIA-SA's Table II.

    Raises
    ------
    ValueError
        For images smaller than 32 x 32, of which five poolings leave nothing.
    """
    if min(shape[1:]) < 32:
        raise ValueError(f"{name} halves its input five times: images of at least 32 x 32, got {shape[1]} x {shape[2]}")
    model = getattr(vision, name)(num_classes=n_classes, dropout=0.0)
    if shape[0] != 3:
        model.features[0] = _convolution(nn.Conv2d(shape[0], 64, 3, padding=1))
    if max(shape[1:]) <= SMALL:
        model.avgpool = nn.AdaptiveAvgPool2d(1)
        model.classifier[0] = nn.Linear(512, 4096)
        nn.init.normal_(model.classifier[0].weight, 0, 0.01)
        nn.init.zeros_(model.classifier[0].bias)
    return model


def resnet(name: str, shape: tuple[int, int, int], n_classes: int, small: bool | None = None) -> nn.Module:
    """Build torchvision's ResNet; small images get a 3 x 3 stem of stride 1 without pooling (He et al., Sec. 4.2).

    `small` decides about the stem where the size of the images should not.
    """
    model = getattr(vision, name)(num_classes=n_classes)
    if small if small is not None else max(shape[1:]) <= SMALL:
        model.conv1 = _convolution(nn.Conv2d(shape[0], 64, 3, padding=1, bias=False))
        model.maxpool = nn.Identity()
    elif shape[0] != 3:
        model.conv1 = _convolution(nn.Conv2d(shape[0], 64, 7, stride=2, padding=3, bias=False))
    return model


def _convolution(layer: nn.Conv2d) -> nn.Conv2d:
    """Initialise a first layer of our own as torchvision does its."""
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def count_parameters(model: nn.Module) -> int:
    """Return the number of trainable entries of a model."""
    return sum(torch.numel(p) for p in model.parameters())
