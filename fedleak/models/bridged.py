"""GDBR's networks, which end in fully connected layers or replace the pooling by a convolution (Sec. V-A)."""

import itertools

import torch
from torch import nn

from fedleak.models.chains import chain
from fedleak.models.heads import head
from fedleak.models.zoo import MLP, resnet


class AlexNet(nn.Sequential):
    """AlexNet for small images: five 3 x 3 convolutions, then 4096 - 4096 - n, without dropout.

    The paper gives no sizes for 32 x 32 images; channels and fully connected layers are torchvision's.
    """

    def __init__(self, shape: tuple[int, int, int], n_classes: int):
        channels, *size = shape
        height, across = (-(-s // 2) // 8 for s in size)
        if min(height, across) < 1:
            raise ValueError(f"alexnet needs images of at least 15 x 15, got {size[0]} x {size[1]}")
        layers: list[nn.Module] = []
        widths, pooled = (channels, 64, 192, 384, 256, 256), (0, 1, 4)
        for place, (below, above) in enumerate(itertools.pairwise(widths)):
            layers += [nn.Conv2d(below, above, 3, 1 if place else 2, padding=1), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if place in pooled else []
        super().__init__(*layers, *MLP((256, height, across), n_classes, (4096, 4096)))


def vgg11(shape: tuple[int, int, int], n_classes: int) -> nn.Module:
    """Build torchvision's VGG-11 without batch norm and dropout, for images of 32 x 32 (512 - 4096 - 4096 - n).

    Raises `ValueError` for images that five halvings do not reduce to 1 x 1.
    """
    if any(not 32 <= side < 64 for side in shape[1:]):
        raise ValueError(f"vgg11 is built for images of 32 x 32, got {shape[1]} x {shape[2]}")
    from torchvision.models import vgg11 as torchvisions

    model = torchvisions(num_classes=n_classes, dropout=0.0)
    if shape[0] != 3:
        model.features[0] = nn.Conv2d(shape[0], 64, 3, padding=1)
    model.avgpool = nn.Identity()
    model.classifier[0] = nn.Linear(512, 4096)
    return model


def resnet_conv(name: str, shape: tuple[int, int, int], n_classes: int, small: bool | None = None) -> nn.Module:
    """Build a ResNet whose average pooling is a convolution over the whole map, with a ReLU: its output is 1 x 1."""
    model = resnet(name, shape, n_classes, small)
    stem = 1 if isinstance(model.maxpool, nn.Identity) else 4
    sides = tuple(-(-side // (8 * stem)) for side in shape[1:])
    width = head(model).layer.in_features
    model.avgpool = nn.Sequential(nn.Conv2d(width, width, (sides[0], sides[1])), nn.ReLU())
    return model


def without_biases(model: nn.Module) -> nn.Module:
    """Remove the biases of the layers in the model's chain, in place (the defence of Scheliga et al. 2022)."""
    for link in chain(model).links:
        link.layer.bias = None
    return model


@torch.no_grad()
def positive_(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """Draw the chain's weights from U(0.01, 0.2), without biases, in place: GDBR's initialisation (Sec. V-A).

    Layers below the chain keep their initialisation, so that the chain's inputs are not negative and all of its units
    are active.
    """
    for link in chain(without_biases(model)).links:
        weight = link.layer.weight
        weight.copy_(torch.empty(weight.shape, dtype=weight.dtype).uniform_(0.01, 0.2, generator=generator))
    return model
