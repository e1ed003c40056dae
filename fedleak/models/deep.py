"""The deeper networks, from torchvision, with the stems that small images need."""

import itertools

import torch
from torch import nn
from torchvision import models as vision

SMALL = 64
"""Up to this side, images get the small stems."""


def vgg(name: str, shape: tuple[int, int, int], n_classes: int, width: float = 1.0) -> nn.Module:
    """Build torchvision's VGG without dropout, with a share `width` of its channels.

    Images of up to 64 x 64 get a 1 x 1 pooling before the head. For 32 x 32 images and 10 classes ``vgg11_bn`` has
    28,149,514 parameters, the number behind LIA-SA's Table II. Images smaller than 32 x 32, of which five poolings
    leave nothing, are a `ValueError`, and without batch norm (``_bn``) those larger than 64 x 64.
    """
    norm, side = name.endswith("_bn"), max(shape[1:])
    if min(shape[1:]) < 32 or (side > SMALL and not norm):
        most = "" if norm else f" and at most {SMALL} x {SMALL}"
        raise ValueError(f"{name} takes images of at least 32 x 32{most}, got {shape[1]} x {shape[2]}")
    config = vision.vgg.cfgs[{"11": "A", "13": "B", "16": "D", "19": "E"}[name.removeprefix("vgg").removesuffix("_bn")]]
    plan = [round(width * size) if isinstance(size, int) else size for size in config]
    model = vision.VGG(vision.vgg.make_layers(plan, norm), n_classes, dropout=0.0)
    if shape[0] != 3:
        model.features[0] = _convolution(nn.Conv2d(shape[0], plan[0], 3, padding=1))
    if side <= SMALL:
        model.avgpool = nn.AdaptiveAvgPool2d(1)
        sizes = (round(width * 512), round(width * 4096), round(width * 4096), n_classes)
        for place, fans in zip((0, 3, 6), itertools.pairwise(sizes), strict=True):
            if place == 0 or not norm:  # with batch norm, the others stay as torchvision drew them
                model.classifier[place] = _linear(*fans)
    return model


def _linear(fan_in: int, fan_out: int) -> nn.Linear:
    """Make a layer of a classifier as torchvision does."""
    layer = nn.Linear(fan_in, fan_out)
    nn.init.normal_(layer.weight, 0, 0.01)
    nn.init.zeros_(layer.bias)
    return layer


@torch.no_grad()
def set_norms(model: nn.Module, images: torch.Tensor) -> nn.Module:
    """Set batch norm's running statistics to their mean over these images, in batches of 100, and freeze them.

    Returns the model, in evaluation mode. One without batch norm is only put in that mode.
    """
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a mean of the batches' statistics
    model.train()
    for piece in images.split(100) if norms else ():
        model(piece)
    return model.eval()


ACTIVATIONS: dict[str, type[nn.Module]] = {
    layer.__name__.lower(): layer for layer in (nn.ReLU, nn.Tanh, nn.ELU, nn.SELU, nn.SiLU)
}


def replace_relu(model: nn.Module, activation: str) -> nn.Module:
    """Put another activation in the place of every ReLU of a model; a `ValueError` if one of the two is not there."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"unknown activation {activation!r}; there are: {', '.join(ACTIVATIONS)}")
    places = [name for name, module in model.named_modules() if isinstance(module, nn.ReLU)]
    if not places:
        raise ValueError(f"{type(model).__name__} has no ReLU to replace")
    for name in places:
        model.set_submodule(name, ACTIVATIONS[activation]())
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
