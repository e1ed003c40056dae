"""What the clients train: the papers' networks by name, and the head of any model."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from fedleak.models.deep import FCN3, count_parameters, resnet, vgg_bn
from fedleak.models.head import Head, HeadPass, batch_dependent, head, head_pass, input_shape
from fedleak.models.wide import WideResNet20
from fedleak.models.zoo import CNN, LeNet, ResNet20, uniform_

__all__ = [
    "Head",
    "HeadPass",
    "batch_dependent",
    "build",
    "count_parameters",
    "head",
    "head_pass",
    "input_shape",
    "names",
]

_BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "cnn": CNN,
    "lenet": LeNet,
    "resnet20": ResNet20,
    "resnet20-relu": lambda shape, n: ResNet20(shape, n, activation=True),
    "fcn3": FCN3,
    **{f"resnet20-{k}": partial(WideResNet20, width=16 * k) for k in (1, 2, 4)},
    **{f"vgg{d}_bn": partial(vgg_bn, f"vgg{d}_bn") for d in (11, 13, 16, 19)},
    **{f"resnet{d}": partial(resnet, f"resnet{d}") for d in (18, 34, 50, 101, 152)},
    "resnet18-imagenet": partial(resnet, "resnet18", small=False),
}
_INITIALISATIONS = ("default", "uniform")


def names() -> list[str]:
    """Return the names that `build` knows."""
    return sorted(_BUILDERS)


def build(name: str, shape: tuple[int, int, int], n_classes: int, *, seed: int, init: str | None = None) -> nn.Module:
    """Build a freshly initialised model.

    Parameters
    ----------
    name
        ``"cnn"``, ``"lenet"``, ``"resnet20"`` (LLG's, no activation before the head), ``"resnet20-relu"``, ``"fcn3"``,
        torchvision's ``"vgg11_bn"`` … ``"vgg19_bn"`` and ``"resnet18"`` … ``"resnet152"`` (see `fedleak.models.deep`),
        ``"resnet20-1"``, ``"resnet20-2"`` and ``"resnet20-4"`` (16, 32 and 64 channels; see `fedleak.models.wide`),
        or ``"resnet18-imagenet"``, which keeps ImageNet's stem whatever the size of the images.
    shape
        Image shape ``(C, H, W)``.
    n_classes
        Number of outputs.
    seed
        Seed of the initialisation. The global random state is left as it was.
    init
        ``"default"`` (PyTorch's) or ``"uniform"`` (every parameter from U(-0.5, 0.5)); by default the one
        that the paper's released code uses: uniform for the CNN, PyTorch's for the others.

    Raises
    ------
    ValueError
        For an unknown name or initialisation, or fewer than two classes.
    """
    if name not in _BUILDERS:
        raise ValueError(f"unknown model {name!r}; known: {', '.join(names())}")
    if n_classes < 2:
        raise ValueError(f"a classifier has at least two classes, got {n_classes}")
    init = init or ("uniform" if name == "cnn" else "default")
    if init not in _INITIALISATIONS:
        raise ValueError(f"unknown initialisation {init!r}; known: {', '.join(_INITIALISATIONS)}")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = _BUILDERS[name](tuple(shape), n_classes)
    if init == "uniform":
        uniform_(model, torch.Generator().manual_seed(seed))
    model.input_shape = tuple(shape)  # type: ignore[assignment]
    return model
