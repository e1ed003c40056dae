"""The networks: small ones, the CIFAR ResNets (He et al. 2016), and torchvision's with stems for small images."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


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


# --- the CIFAR ResNets: LLG's, and those of the image attacks, also wider (Geiping et al. 2020; AGIC)

MEAN, STD = (0.4915, 0.4823, 0.4468), (0.2470, 0.2435, 0.2616)
"""CIFAR-10's, by colour. CIFAR-100's are (0.5072, 0.4867, 0.4412) and (0.2673, 0.2564, 0.2762)."""


class Normalise(nn.Module):
    """Take pixels in [0, 1] to mean 0 and standard deviation 1 a colour; one grey channel gets the colours' means."""

    mean: Tensor
    std: Tensor

    def __init__(self, channels: int = 3):
        super().__init__()
        for name, values in (("mean", MEAN), ("std", STD)):
            buffer = torch.tensor(values)
            buffer = buffer if channels == 3 else buffer.mean().expand(channels).clone()
            self.register_buffer(name, buffer[:, None, None])

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``[B, C, H, W]``."""
        return (x - self.mean) / self.std


def _stem(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())


def _blocks(width: int, blocks_per_stage: int) -> nn.Sequential:
    """Make three stages of `blocks_per_stage` basic blocks, of `width`, 2 `width` and 4 `width` channels."""
    from torchvision.models.resnet import BasicBlock  # takes seconds to import, and small networks need none

    blocks: list[nn.Module] = []
    channels = width
    for stage, planes in enumerate((width, 2 * width, 4 * width)):
        for position in range(blocks_per_stage):
            stride = 2 if stage and position == 0 else 1
            shortcut = None
            if stride > 1:
                shortcut = nn.Sequential(nn.Conv2d(channels, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))
            blocks.append(BasicBlock(channels, planes, stride, shortcut))
            channels = planes
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
        self.blocks = _blocks(16, blocks_per_stage=3)
        self.bridge = nn.Linear(64, 512)
        self.act = nn.ReLU() if activation else nn.Identity()
        self.fc = nn.Linear(512, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``[B, C, H, W]`` to logits ``[B, n]``."""
        features = self.blocks(self.stem(x)).mean(dim=(2, 3))
        return self.fc(self.act(self.bridge(features)))


class WideResNet(nn.Module):
    """Three stages of basic blocks with `width`, 2 `width` and 4 `width` channels, and one fully connected layer.

    With three blocks a stage and a width of 64 it is ResNet20-4: 21 convolutions (those of the two shortcuts count), 65
    parameter tensors and, for 10 classes, 4,327,754 parameters. With five and a width of 16 it is the ResNet-32 of
    He et al. (2016, Sec. 4.2), but with convolutions as shortcuts, and has 466,906. The images are normalised inside,
    so that it takes pixels in [0, 1].
    """

    def __init__(self, shape: tuple[int, int, int], n_classes: int, width: int = 64, blocks_per_stage: int = 3):
        super().__init__()
        self.normalise = Normalise(shape[0])
        self.stem = _stem(shape[0], width)
        self.blocks = _blocks(width, blocks_per_stage)
        self.fc = nn.Linear(4 * width, n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``[B, C, H, W]`` in [0, 1] to logits ``[B, n]``."""
        return self.fc(self.blocks(self.stem(self.normalise(x))).mean(dim=(2, 3)))


# --- from torchvision

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
    from torchvision import models as vision

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
    layer = nn.Linear(fan_in, fan_out)
    nn.init.normal_(layer.weight, 0, 0.01)
    nn.init.zeros_(layer.bias)
    return layer


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
    from torchvision import models as vision

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
