"""Client models: the papers' networks by name, and the head of any model."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from fedleak.models import zoo
from fedleak.models.bridged import AlexNet, positive_, resnet_conv, vgg11, without_biases
from fedleak.models.chains import Link, chain
from fedleak.models.heads import Head, head, head_inputs, negative_inputs
from fedleak.models.inputs import as_inputs, input_shape, known_tokens
from fedleak.models.passes import HeadPass, batch_dependent, embedding_gradients, head_pass
from fedleak.models.zoo import ACTIVATIONS, count_parameters

__all__ = [
    "ACTIVATIONS",
    "Head",
    "HeadPass",
    "Link",
    "as_inputs",
    "batch_dependent",
    "build",
    "chain",
    "count_parameters",
    "embedding_gradients",
    "head",
    "head_inputs",
    "head_pass",
    "input_shape",
    "known_tokens",
    "names",
    "negative_inputs",
    "positive_",
    "title",
    "without_biases",
]

_NETWORKS: dict[str, tuple[str, Callable[..., nn.Module]]] = {
    "cnn": ("CNN", zoo.CNN),
    "lenet": ("LeNet", zoo.LeNet),
    "resnet20": ("ResNet20, as released", zoo.ResNet20),
    "resnet20-relu": ("ResNet20, ReLU before the head", lambda shape, n: zoo.ResNet20(shape, n, activation=True)),
    "fcn3": ("FCN-3", partial(zoo.MLP, widths=(512, 512))),
    "fcn3-256": ("FCN-3, 256-128", partial(zoo.MLP, widths=(256, 128))),
    "fcn3-1024": ("FCN-3, 1024-1024", partial(zoo.MLP, widths=(1024, 1024))),
    **{f"resnet20-{k}": (f"ResNet20-{k}", partial(zoo.WideResNet, width=16 * k)) for k in (1, 2, 4)},
    "resnet32": ("ResNet32", partial(zoo.WideResNet, width=16, blocks_per_stage=5)),
    "resnet32-4": ("ResNet32-4", partial(zoo.WideResNet, width=64, blocks_per_stage=5)),
    **{f"vgg{d}_bn": (f"VGG-{d}", partial(zoo.vgg, f"vgg{d}_bn")) for d in (11, 13, 16, 19)},
    "vgg16": ("VGG-16", partial(zoo.vgg, "vgg16")),
    "vgg16-quarter": ("narrow VGG-16", partial(zoo.vgg, "vgg16", width=0.25)),
    **{f"resnet{d}": (f"ResNet-{d}", partial(zoo.resnet, f"resnet{d}")) for d in (18, 34, 50, 101, 152)},
    **{
        f"resnet{d}-imagenet": (f"ResNet-{d}, ImageNet's stem", partial(zoo.resnet, f"resnet{d}", small=False))
        for d in (18, 50)
    },
    "textcnn": ("text CNN", zoo.TextCNN),
    "mlp6": ("MLP-6", partial(zoo.MLP, widths=(2048, 1024, 512, 256, 128, 64))),
    "alexnet": ("AlexNet", AlexNet),
    "vgg11": ("VGG-11", vgg11),
    **{f"resnet{d}-conv": (f"ResNet-{d}", partial(resnet_conv, f"resnet{d}")) for d in (18, 50)},
    "resnet50-conv-imagenet": ("ResNet-50", partial(resnet_conv, "resnet50", small=False)),
}
_INITIALISATIONS = ("default", "uniform", "positive")


def names() -> list[str]:
    """Return the names of networks that `build` accepts."""
    return sorted(_NETWORKS)


def title(name: str) -> str:
    """Return a network's name in tables and figures; unknown names are returned unchanged."""
    return _NETWORKS[name][0] if name in _NETWORKS else name


def build(
    name: str,
    shape: tuple[int, ...],
    n_classes: int,
    *,
    seed: int,
    init: str | None = None,
    activation: str | None = None,
) -> nn.Module:
    """Build a newly initialised model; the global random state does not change.

    Raises `ValueError` for an unknown name, initialisation or activation, or fewer than two classes.

    Parameters
    ----------
    name
        One of `names`: ``"cnn"``, ``"lenet"``, ``"fcn3"``, ``"fcn3-256"`` and ``"fcn3-1024"`` with other widths,
        ``"mlp6"``, and ``"textcnn"`` for texts of bytes; ``"resnet20"``, LLG's, without an activation before the head,
        ``"resnet20-relu"``, and ``"resnet20-1"`` to ``"resnet32-4"`` of as many times 16 channels; torchvision's
        ``"vgg11_bn"`` to ``"resnet152"``, of which ``"…-imagenet"`` keep ImageNet's stem whatever the size of the
        images, ``"vgg16"`` is without batch norm and ``"vgg16-quarter"`` has a quarter of its channels
        (`fedleak.models.zoo`); GDBR's ``"alexnet"``, ``"vgg11"`` and ``"resnet18-conv"`` (`fedleak.models.bridged`).
    shape
        Shape of one input: ``(C, H, W)`` for images, ``(D,)`` for rows, ``(L,)`` for texts.
    init
        ``"default"`` (PyTorch's), ``"uniform"`` (each parameter from U(-0.5, 0.5)) or ``"positive"`` (GDBR's, see
        `positive_`); by default that of the paper's released code: uniform for the CNN, otherwise PyTorch's.
    activation
        One of `ACTIVATIONS` that replaces each ReLU; the weights do not depend on it.
    """
    if name not in _NETWORKS:
        raise ValueError(f"unknown model {name!r}; known: {', '.join(names())}")
    if n_classes < 2:
        raise ValueError(f"a classifier has at least two classes, got {n_classes}")
    init = init or ("uniform" if name == "cnn" else "default")
    if init not in _INITIALISATIONS:
        raise ValueError(f"unknown initialisation {init!r}; known: {', '.join(_INITIALISATIONS)}")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = _NETWORKS[name][1](tuple(shape), n_classes)
    if activation is not None:
        zoo.replace_relu(model, activation)
    model.input_shape = tuple(shape)  # type: ignore[assignment]
    generator = torch.Generator().manual_seed(seed)
    if init == "positive":
        return positive_(model, generator)
    for parameter in model.parameters() if init == "uniform" else ():
        nn.init.uniform_(parameter, -0.5, 0.5, generator)
    return model
