"""GDBR: data, networks, and the clients and attacker that the trials share."""

import copy
import itertools
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedleak import metrics, models
from fedleak.attacks.labels import gdbr
from fedleak.data import compose, draw
from fedleak.federated import Update
from fedleak.models import chain, positive_, without_biases
from fedleak.models.inputs import watched
from fedleak_book.experiments import OneSeed

FORMS = ["paper", "one vector", "whitened"]
SCHEMES = {
    "random": "balanced",
    "uniform": "permuted",
    "single": "single",
    "subclassed": "subclassed",
    "imbalanced": "unbalanced",
}
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
TWO = ["lenet", "resnet18-conv"]
PART = {"cifar10": (2000, 1000), "tiny-imagenet": (2000, 1000), "mnist": (None, 1000)}
MADE = {"shape": (3, 16, 16), "n_classes": 100}

# --- what the paper does not print, and what is plausible ---
SCALES = ["raw", "normalised", "half"]
WIDTHS = {  # of the hidden layers of the chain; the network's own come first
    "lenet": ["120-84", "500"],
    "alexnet": ["4096-4096", "384-192"],
    "vgg11": ["4096-4096", "512-512"],
    "resnet18-conv": ["512", "256", "1024"],
    "resnet50-conv-imagenet": ["2048"],
    "mlp6": ["2048-1024-512-256-128-64"],  # printed
}
INITS = ["positive", "default"]
TRUE = "true gradient"
MODES = ["stats", "stats (col)", "shuffle (col)", "mask", TRUE]
LEVELS = {
    "pruning": (0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
    "noise": (0.0, 0.05, 0.1, 0.15, 0.2),
}
NOISE_SCALES = ["absolute", "times the deviation of the layer's entries"]
NONE, STORED, OWN = "none", "stored statistics", "batch statistics"
OFF, ONE_HALF = "off", "0.5"
NAMED, HALF = "as its name says", "a random half of the classes"
FIFTH, ANY = "a random fifth of the classes", "2 to n - 1 random classes"
QUARTER = "half of one class, a quarter of another"
DIRICHLET, ONE = "Dirichlet 0.5", "half of one class"
BATCHES = [("random", NAMED), ("uniform", NAMED), ("single", NAMED)]
BATCHES += [("subclassed", kind) for kind in (HALF, FIFTH, ANY)]
BATCHES += [("imbalanced", kind) for kind in (QUARTER, DIRICHLET, ONE)]


# --- data ---
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


def labels_of(scheme, composition, size, n, generator):
    """The labels of one batch."""
    if composition in (NAMED, HALF, QUARTER):
        return compose(SCHEMES[scheme], size, n, 1, generator)[0]
    if composition in (FIFTH, ANY):
        most = max(2, n // 5)
        if composition == ANY:
            most = int(torch.randint(2, n, (1,), generator=generator))
        chosen = torch.randperm(n, generator=generator)[:most]
        return chosen[torch.randint(most, (size,), generator=generator)]
    if composition == DIRICHLET:
        share_of = torch._sample_dirichlet(torch.full((n,), 0.5), generator=generator)
        return torch.multinomial(share_of, size, True, generator=generator)
    labels = torch.randint(n, (size,), generator=generator)
    labels[: size // 2] = torch.randint(n, (1,), generator=generator)
    return labels


class Batch(NamedTuple):
    """One client's batch: images, or what the layers below the chain make of them, labels, and the true counts."""

    x: Tensor
    labels: Tensor
    truth: Tensor
    about: dict
    """Scheme, composition and size; `held`: the number of its different images."""


# --- networks ---
def below(model, x, chunk=250):
    """Inputs of the chain's first layer for images x: what the layers below make of them."""
    first, pieces = chain(model).links[0].layer, []
    with (
        torch.no_grad(),
        watched({"": first}, lambda _, inputs, __: pieces.append(inputs)),
    ):
        for piece in x.split(chunk):
            model(piece)
    return torch.cat(pieces)


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


def tail_of(first, widths, n, seed, init):
    """A chain of these hidden widths in place of the one that begins with a layer: positive or PyTorch's weights, no biases."""
    sizes, is_conv = [int(w) for w in widths.split("-")], isinstance(first, nn.Conv2d)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if is_conv:
            shape = (first.in_channels, *first.kernel_size)
            layers = [nn.Conv2d(shape[0], sizes[0], shape[1:]), nn.ReLU(), nn.Flatten()]
        else:
            shape = (first.in_features,)
            layers = [nn.Linear(*shape, sizes[0]), nn.ReLU()]
        for fan_in, fan_out in itertools.pairwise((*sizes, n)):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    tail = nn.Sequential(*layers[:-1])
    tail.input_shape = shape
    if init == "default":
        return without_biases(tail)
    return positive_(tail, torch.Generator().manual_seed(seed))


# --- clients ---
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


def dropouts_of(net):
    """Values of dropout: AlexNet and VGG-11 have dropout between their fully connected layers."""
    return [OFF, ONE_HALF] if net in ("alexnet", "vgg11") else [OFF]


def with_dropout(tail):
    """The same layers with torchvision's dropout after every ReLU between fully connected layers."""
    layers = []
    for layer in tail:
        dropped = isinstance(layer, nn.ReLU)
        layers += [layer, nn.Dropout(0.5)] if dropped else [layer]
    return nn.Sequential(*layers).train()


class Clients:
    """Clients that share one network, and an attacker with images of its own, as one trial draws them.

    With `OWN` the batch norms below the chain take the statistics of what is passed at once, 64 images like a batch.
    """

    def __init__(self, ctx, net, data, seeds, batch_norm=NONE):
        self.ctx, self.net, self.data, self.seeds = ctx, net, data, seeds
        self.victims, self.aux = sets(ctx, data)
        with_norms = "vgg11_bn" if net == "vgg11" and batch_norm != NONE else net
        self.key = with_norms, data, seeds.of("body"), batch_norm
        self.model, self.chunk = body(ctx, *self.key[:3]), 250
        if batch_norm == OWN:
            self.model, self.chunk = copy.deepcopy(self.model).train(), 64

    def batch(self, scheme, composition, size, seeds=None, role="batch", images=None):
        """Draw one client's batch, of the victims' images if no others are given."""
        images, n = images or self.victims, self.victims.n_classes
        generator = (seeds or self.seeds).generator(role)
        labels = labels_of(scheme, composition, size, n, generator)
        index = draw(images, labels, generator)
        about = {"scheme": scheme, "composition": composition, "batch_size": size}
        about["held"], labels = len(index.unique()), images.y[index]
        return Batch(images.x[index], labels, metrics.counts(labels, n), about)

    def inputs(self, x, scale):
        """Inputs of the chain for images."""
        return below(self.model, scaled(self.ctx, self.data, x, scale), self.chunk)

    def aux_inputs(self, scale="raw"):
        """Inputs of the chain for all auxiliary images."""
        make = lambda: self.inputs(self.aux.x, scale)  # noqa: E731
        return self.ctx.once(("auxiliary inputs", *self.key, scale), make, most=20)

    def dummies(self, count):
        """Inputs of the chain for this number of dummies, which are N(0, 1) whatever the scale of the pixels."""

        def make():
            generator = torch.Generator().manual_seed(0)
            x = torch.randn((count, *self.aux.x.shape[1:]), generator=generator)
            return self.inputs(x.to(self.aux.x), "raw")

        return self.ctx.once(("dummy inputs", *self.key, count), make, most=20)

    def bridge(self, init="positive", widths=None):
        """A bridge from the penultimate layer of a new chain, of the network's own widths if no others are given."""
        first, seed = chain(self.model).links[0].layer, self.seeds.of("tail")
        widths, n = widths or WIDTHS[self.net][0], self.victims.n_classes
        tail = tail_of(first, widths, n, seed, init)
        return gdbr.Bridge(tail.to(self.ctx.device))

    def views(self, batches, init="positive", scale=None):
        """At a scale and the network's own widths, or at every plausible choice of both: a bridge and what it works with.

        That is the inputs of the chain for the auxiliary images, and the batches with such inputs.
        """
        choices = WIDTHS[self.net] if scale is None else WIDTHS[self.net][:1]
        bridges = {widths: self.bridge(init, widths) for widths in choices}
        side = self.victims.shape[1]
        real = {"images": len(self.victims), "aux": len(self.aux), "side": side}
        for at in SCALES if scale is None else [scale]:
            chain_batches = [b._replace(x=self.inputs(b.x, at)) for b in batches]
            for widths, bridge in bridges.items():
                row = {"scale": at, "widths": widths if choices[1:] else None, **real}
                yield row, bridge, self.aux_inputs(at), chain_batches

    def updates(self, bridge, batches, dropouts):
        """What a client shares of the bridge's layer, by batch and dropout."""
        for batch, dropout in itertools.product(batches, dropouts):
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(self.seeds.of("dropout"))
                forward = bridge.model if dropout == OFF else with_dropout(bridge.model)
                of = batch.x, batch.labels, [bridge.layer], forward
                yield batch, dropout, share(bridge.model, *of)


DIGITS = "mnist5k"


def one_client(ctx, net, init, seed, size=64):
    """One client with a random batch of digits: the last layers, their inputs for auxiliary images and the batch, labels, counts."""
    clients = Clients(ctx, net, DIGITS, OneSeed(seed))
    tail, batch = clients.bridge(init).model, clients.batch("random", NAMED, size)
    inputs = clients.aux_inputs(), clients.inputs(batch.x, "raw")
    return tail, *inputs, batch.labels, batch.truth


NOTHING = {"insacc": 0.0, "clsacc": 0.0}
"""The scores where nothing is recovered."""


def scores(counts, truth):
    """Both metrics of a recovery."""
    insacc = metrics.instance_accuracy(counts, truth).item()
    return {"insacc": insacc, "clsacc": metrics.class_accuracy(counts, truth).item()}
