"""GDBR: data, networks and clients that the trials share."""

import contextlib
import copy

import numpy as np
import torch
from scipy import stats
from torch import nn

from fedleak import metrics, models
from fedleak_book.experiments import grid
from fedleak.data import compose, draw
from fedleak.federated import Update
from fedleak.federated.defences import PureNoise, Sparsification, protect
from fedleak_book.experiments.kinds import MEAN, NUMBER, difference, rate
from fedleak.models import chain, positive_, without_biases

KINDS = dict(
    insacc=rate("batch_size"),
    clsacc=rate(10),
    accuracy=rate(1000),
    elsewhere=MEAN,
    gain=difference("batch_size", form="paper"),
)  # what the averaged columns are
FORMS = ["paper", "one vector", "whitened"]
SCHEMES = {
    "random": "balanced",
    "uniform": "permuted",
    "single": "single",
    "subclassed": "subclassed",
    "imbalanced": "unbalanced",
}


def kinds(*names):
    """What some columns are that are averaged; a number where nothing else is said."""
    return {name: KINDS.get(name, NUMBER) for name in names}


PAIRS = {  # network: its data in the quick and in the paper profile
    "lenet": ("mnist5k", "mnist"),
    "alexnet": ("photos", "svhn"),
    "vgg11": ("photos", "cifar10"),
    "resnet18-conv": ("synthetic", "cifar100"),
    "resnet50-conv-imagenet": ("", "tiny-imagenet"),
    "mlp6": ("mnist5k", "mnist"),
}
TITLES = {net: models.title(net) for net in PAIRS}
NETS = list(PAIRS)[:5]  # Tables I and II
SMALL = ("lenet", "mlp6")
PART = {"cifar10": (2000, 1000), "tiny-imagenet": (2000, 1000), "mnist": (None, 1000)}
MADE = {"shape": (3, 16, 16), "n_classes": 100}


def sets(ctx, data):
    """Victims' and attacker's images; halves, where there is only one set of them."""
    if data in ("svhn", "photos"):
        limit = {"limit": 400} if data == "photos" else {}
        return ctx.images(data, **limit).split_in_two(0)
    if data == "synthetic":
        return (
            ctx.images(data, count=800, **MADE),
            ctx.images(data, "test", count=500, **MADE),
        )
    train, test = PART.get(data, (None, None))
    return ctx.images(data, limit=train), ctx.images(data, "test", limit=test)


def pairs(full, nets=NETS, large=10, **axes):
    """Settings of some networks, each on its data: 20 trials for small ones, fewer for large ones."""
    settings = []
    for net in nets:
        most = 20 if net in SMALL else 5 if "resnet50" in net else large
        trials = most if full else 3 if net in SMALL else 2
        if data := PAIRS[net][full]:
            settings += grid(net=net, data=data, trials=trials, **axes)
    return settings


class Reached(Exception):
    """Ends a forward pass at the chain's first layer."""


def below(model, x, chunk=250):
    """Inputs of the chain's first layer for images x: what the layers below make of them."""
    seen = []

    def stop(_, inputs):
        seen.append(inputs[0].detach())
        raise Reached

    hook = chain(model).links[0].layer.register_forward_pre_hook(stop)
    with torch.no_grad():
        for piece in x.split(chunk):
            with contextlib.suppress(Reached):
                model(piece)
    hook.remove()
    return torch.cat(seen)


def body(ctx, net, data, s):
    """A network; its batch norms frozen at the statistics of the auxiliary images, so that samples are independent."""

    def make():
        victims, aux = sets(ctx, data)
        model = ctx.build(net, victims.shape, victims.n_classes, seed=s)
        norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
        for norm in norms:
            norm.momentum = None
        with torch.no_grad():
            for piece in aux.x[:250].split(125) if norms else ():
                model(piece)
        return model.eval()

    return ctx.once(("body", net, data, s), make, most=20)


def moments(ctx, data):
    """Mean and deviation of the victims' pixels, by channel."""
    x = sets(ctx, data)[0].x
    make = lambda: [f(x, dim=(0, 2, 3))[:, None, None] for f in (torch.mean, torch.std)]  # noqa: E731
    return ctx.once(("moments", data), make)


def scaled(ctx, data, x, scale):
    """Pixels in [0, 1] as they are, normalised by channel like all of the victims', or in [-1, 1]."""
    if scale == "raw":
        return x
    mean, std = (0.5, 0.5) if scale == "half" else moments(ctx, data)
    return (x - mean) / std


def dummies(aux, count):
    """That many N(0, 1) images."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn((count, *aux.x.shape[1:]), generator=generator).to(aux.x)


def pixels(ctx, data, which, scale):
    """Images as the network gets them; dummies are N(0, 1) whatever the scale."""
    victims, aux = sets(ctx, data)
    if which == "dummy":
        return dummies(aux, len(aux))
    return scaled(ctx, data, (victims if which == "victims" else aux).x, scale)


def known_inputs(ctx, net, data, s, which, scale="raw"):
    """Inputs of the chain for all auxiliary images, or all dummies."""
    make = lambda: below(body(ctx, net, data, s), pixels(ctx, data, which, scale))  # noqa: E731
    return ctx.once(("known inputs", net, data, s, which, scale), make, most=20)


def victims_inputs(ctx, net, data, s, index, scale="raw"):
    """Inputs of the chain for some of the victims' images."""
    return below(body(ctx, net, data, s), pixels(ctx, data, "victims", scale)[index])


def chain_of(ctx, net, data, init, s):
    """A network's chain alone, without biases, its weights drawn anew: positive, or PyTorch's default."""
    layers, links = [], chain(body(ctx, net, data, s)).links
    for link in links:
        after = [nn.ReLU(), nn.Flatten()] if link.relu else []
        layers += [copy.deepcopy(link.layer).cpu(), *after]
    tail, first = nn.Sequential(*layers), layers[0]
    linear = isinstance(first, nn.Linear)
    tail.input_shape = (
        (first.in_features,) if linear else (first.in_channels, *first.kernel_size)
    )
    if init == "positive":
        positive_(tail, torch.Generator().manual_seed(s))
        return tail.to(ctx.device)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(s)
        for link in chain(tail).links:
            link.layer.reset_parameters()
    return without_biases(tail).to(ctx.device)


def share(tail, x, y, layers, forward=None):
    """A client that shares the gradient of these layers' weights and nothing else (FedSGD).

    `forward` replaces the tail in the client's step, such as the same layers with dropout.
    """
    links = {link.name: link for link in chain(tail).links}
    weights = [links[name].layer.weight for name in layers]
    loss = nn.functional.cross_entropy((forward or tail)(x), y)
    gradients = torch.autograd.grad(loss, weights)
    named = {links[n].weight: g for n, g in zip(layers, gradients)}
    return Update(named, "gradient", len(y))


def batch(ctx, data, scheme, size, generator):
    """One victim's batch: indices of images, labels and true counts."""
    victims = sets(ctx, data)[0]
    labels = compose(SCHEMES[scheme], size, victims.n_classes, 1, generator)[0]
    index = draw(victims, labels, generator)
    labels = victims.y[index]
    return index, labels, metrics.counts(labels, victims.n_classes)


def scores(counts, truth):
    """Both metrics of a recovery."""
    insacc = metrics.instance_accuracy(counts, truth).item()
    return {"insacc": insacc, "clsacc": metrics.class_accuracy(counts, truth).item()}


def scatter(mine, other):
    """Skewness of features and probabilities, how they scatter, and how well the means over other images predict them."""
    x, others = mine.inputs.double(), other.inputs.double().mean(0)
    p = mine.probabilities.double()
    alive, mean = x.std(0) > 0, x.mean(0)
    floor = mean.clamp(min=1e-12)
    off, spread = ((mean - others).abs() / floor)[alive], (x.std(0) / floor)[alive]
    return {
        "skew": float(np.median(np.abs(stats.skew(x[:, alive].cpu().numpy())))),
        "off": float(off.median()),
        "spread": float(spread.median()),
        "top": float(p.mean(0).max()),
        "skew_p": float(
            np.median(np.abs(stats.skew(p[:, p.std(0) > 0].cpu().numpy())))
        ),
        "dead": 1 - float(alive.double().mean()),
    }


FACTS = ("images", "held", "aux", "side")


def facts(ctx, data, index):
    """What a trial really had; `held`: the different images of its batch."""
    victims, aux = sets(ctx, data)
    held, side = len(index.unique()), victims.shape[1]
    return {"images": len(victims), "held": held, "aux": len(aux), "side": side}


LEVELS = {
    "pruning": (0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
    "noise": (0.0, 0.05, 0.1, 0.15, 0.2),
}


def protected(update, kind, level, s):
    """What is shared under a defence of this name and level."""
    if not level:
        return update
    defence = Sparsification(level) if kind == "pruning" else PureNoise(level, s)
    return protect(update, defence)


SIZES = [2, 4, 8, 16, 32, 64, 128, 256, 512]
HALF = "a random half of the classes"
FIFTH, ANY = "a random fifth of the classes", "2 to n - 1 random classes"
SCALES = ["raw", "normalised", "half"]
WIDTHS = {
    "lenet": ["120-84", "500"],
    "alexnet": ["4096-4096", "384-192"],
    "vgg11": ["4096-4096", "512-512"],
    "resnet18-conv": ["512", "256", "1024"],
    "mlp6": ["2048-1024-512-256-128-64"],  # printed
}
INITS = ["positive", "default"]
TWO = ["lenet", "resnet18-conv"]
NOISE_SCALES = ["absolute", "times the deviation of the layer's entries"]
NONE, STORED, OWN = "none", "stored statistics", "batch statistics"
OFF, ONE_HALF = "off", "0.5"
TRUE = "true gradient"
MODES = ["stats", "stats (col)", "shuffle (col)", "mask", TRUE]
