"""GDBR: Tables I and II at every plausible choice of what the paper does not print, batch norm's mode and dropout included.

``data/published/gdbr/choices.toml`` has the choices.
"""

import copy
import dataclasses
import itertools

import torch
from fedleak import metrics
from fedleak.attacks.labels import gdbr
from fedleak.data import compose, draw
from fedleak.models import chain, positive_, without_biases
from fedleak_book.experiments import Experiment, grid, spawned
from notebooks.gdbr.clients import (
    ANY,
    FIFTH,
    HALF,
    NONE,
    OFF,
    ONE_HALF,
    OWN,
    SCALES,
    SCHEMES,
    STORED,
    WIDTHS,
    below,
    body,
    dummies,
    kinds,
    pairs,
    scaled,
    scores,
    sets,
    share,
)
from torch import nn


def normed_body(ctx, net, data, batch_norm, seed):
    """A network for what is below the chain, with batch norm of this mode; VGG-11 has none with `NONE`."""
    with_norms = "vgg11_bn" if net == "vgg11" and batch_norm != NONE else net
    model = body(ctx, with_norms, data, seed)
    return copy.deepcopy(model).train() if batch_norm == OWN else model


def chunk_of(batch_norm):
    """Images per pass: a batch norm in training mode takes the statistics of as many as a client's batch has."""
    return 64 if batch_norm == OWN else 250


def with_dropout(tail):
    """The same layers with torchvision's dropout after every ReLU between fully connected layers."""
    layers = []
    for layer in tail:
        dropped = isinstance(layer, nn.ReLU)
        layers += [layer, nn.Dropout(0.5)] if dropped else [layer]
    return nn.Sequential(*layers).train()


def updates(tail, name, x, labels, dropouts, seed):
    """By dropout, what a client shares of one layer."""
    for dropout in dropouts:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            forward = tail if dropout == OFF else with_dropout(tail)
            update = share(tail, x, labels, [name], forward)
        yield dropout, update


QUARTER = "half of one class, a quarter of another"
DIRICHLET, ONE = "Dirichlet 0.5", "half of one class"
NAMED = "as its name says"
BATCHES = [("random", NAMED), ("uniform", NAMED), ("single", NAMED)]
BATCHES += [("subclassed", kind) for kind in (HALF, FIFTH, ANY)]
BATCHES += [("imbalanced", kind) for kind in (QUARTER, DIRICHLET, ONE)]


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


def tail_of(model, widths, n, seed, init="positive"):
    """A chain of these hidden widths for what the network has below its own, with positive or PyTorch's weights and no biases."""
    first, sizes = chain(model).links[0].layer, [int(w) for w in widths.split("-")]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        tail = layers_of(first, sizes, n)
    if init == "default":
        return without_biases(tail)
    return positive_(tail, torch.Generator().manual_seed(seed))


def layers_of(first, sizes, n):
    """Layers of these sizes with ReLUs between them, from what the first layer takes to the logits."""
    if isinstance(first, nn.Conv2d):
        shape = first.in_channels, *first.kernel_size
        layers = [nn.Conv2d(shape[0], sizes[0], shape[1:]), nn.ReLU(), nn.Flatten()]
    else:
        shape = (first.in_features,)
        layers = [nn.Linear(*shape, sizes[0]), nn.ReLU()]
    for fan_in, fan_out in itertools.pairwise((*sizes, n)):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    tail = nn.Sequential(*layers[:-1])
    tail.input_shape = shape
    return tail


def batch_of(victims, scheme, composition, size, seed):
    """Which images, their labels and the true counts; the same batch at every scale and width."""
    n, generator = victims.n_classes, torch.Generator().manual_seed(seed)
    labels = labels_of(scheme, composition, size, n, generator)
    index = draw(victims, labels, generator)
    return index, victims.y[index], metrics.counts(victims.y[index], n)


def at_every_choice(ctx, seed, net, data, levels, batch_norm=NONE):
    """At every scale, level and width: these, the bridge, the chain's inputs for what the attacker knows, the batches.

    A level has the victims' images, the attacker's known images, and batches by name. A batch has the chain's
    inputs, the labels and the true counts.
    """
    victims, aux = sets(ctx, data)
    model = normed_body(ctx, net, data, batch_norm, spawned(seed, "body"))
    bridges, n = {}, victims.n_classes
    for widths in WIDTHS[net]:
        tail = tail_of(model, widths, n, spawned(seed, "tail")).to(ctx.device)
        bridges[widths] = gdbr.Bridge(tail)
    for scale in SCALES:
        known_images = scaled(ctx, data, aux.x, scale)
        all_known = below(model, known_images, chunk_of(batch_norm))
        for level, (mine, chosen, drawn) in levels.items():
            batches = {
                name: (below(model, scaled(ctx, data, mine.x[i], scale)), *labels)
                for name, (i, *labels) in drawn.items()
            }
            for widths, bridge in bridges.items():
                row = {"level": level, "scale": scale, "widths": widths}
                yield row, bridge, all_known[chosen], batches


def with_all(ctx, seed, net, data, drawn, batch_norm=NONE):
    """The same with all images, and what there is of them in place of the level."""
    victims, aux = sets(ctx, data)
    real = {"images": len(victims), "aux": len(aux), "side": victims.shape[1]}
    levels = {"whole": (victims, slice(None), drawn)}
    for row, *rest in at_every_choice(ctx, seed, net, data, levels, batch_norm):
        del row["level"]
        yield row | real, *rest


def dropouts_of(net):
    """Values of dropout: AlexNet and VGG-11 have dropout between their fully connected layers."""
    return [OFF, ONE_HALF] if net in ("alexnet", "vgg11") else [OFF]


def every_batch(ctx, seed, net, data, batch_norm=None):
    """The paper's form on one batch of every composition, at every choice, from auxiliary images and from dummies.

    Where a mode of batch norm is named, dropout is a choice, too.
    """
    victims, aux = sets(ctx, data)
    new = {None: [OFF], NONE: [ONE_HALF]}  # `choices` has no batch norm without dropout
    dropouts, norm = new.get(batch_norm) or dropouts_of(net), batch_norm or NONE
    model = normed_body(ctx, net, data, norm, spawned(seed, "body"))
    drawn = {b: batch_of(victims, *b, 64, spawned(seed, "batch")) for b in BATCHES}
    chunk, from_dummies = chunk_of(norm), {}
    inputs = {k: below(model, dummies(aux, k), chunk) for k in (1000, 100)}
    for row, bridge, images, batches in with_all(ctx, seed, net, data, drawn, norm):
        if row["widths"] not in from_dummies:  # the same at every scale
            seen = {("dummy", k): bridge.observe(x) for k, x in inputs.items()}
            from_dummies[row["widths"]] = seen
        by_auxiliary = {("aux", len(aux)): bridge.observe(images)}
        by_auxiliary |= from_dummies[row["widths"]]
        for (scheme, composition), (x, labels, truth) in batches.items():
            of = {"scheme": scheme, "composition": composition}
            of["held"] = len(drawn[scheme, composition][0].unique())
            how = bridge.model, bridge.layer, x, labels, dropouts
            for dropout, update in updates(*how, spawned(seed, "dropout")):
                for (auxiliary, k), features in by_auxiliary.items():
                    if auxiliary == "aux" or scheme == "random":
                        counts = bridge.recover(update, features, "paper").counts
                        by = {"auxiliary": auxiliary, "aux": k}
                        by |= {"dropout": dropout} if batch_norm else {}
                        yield {**row, **of, **by, **scores(counts, truth)}


SAME = dict(init="positive", form="paper", batch_size=64, layer=1, redrawn="network")
CHOICES = Experiment(
    "choices",
    every_batch,
    quick=pairs(False, ["lenet"]),
    paper=[s | {"trials": 20} for s in pairs(True, ["lenet", "alexnet", "vgg11"])]
    + pairs(True, ["resnet18-conv"], large=5),
    by=("scale", "widths", "scheme", "composition", "auxiliary", "aux"),
    values=kinds("insacc", "clsacc"),
    facts=("images", "held", "side"),
    fixed=SAME,
    tables=("table1", "table2"),
)

CHOICES_MNIST = dataclasses.replace(  # more trials of what 20 left open
    CHOICES, name="choices_mnist", paper=grid(net="lenet", data="mnist"), trials=(1, 75)
)


FEW = {"svhn": (433, 433), "cifar100": (1117, 916)}


def parts_of(ctx, seed, data, sizes):
    """By level the victims' images and which of the attacker's are known: all, and as few of both sides as these."""
    generator = torch.Generator().manual_seed(spawned(seed, "part"))
    victims, aux = sets(ctx, data)
    parts = {"whole": (victims, slice(None))}
    for few, n_known in sizes:
        order = torch.randperm(len(victims), generator=generator)[:few]
        chosen = torch.randperm(len(aux), generator=generator)[:n_known]
        parts[f"{few} + {n_known}"] = victims.take(order), chosen
    return parts


VGG, ALEXNET = dict(net="vgg11", data="cifar10"), dict(net="alexnet", data="svhn")


def first(alexnet, vgg):
    """Settings with these numbers of trials: AlexNet with dropout, and VGG-11 with batch statistics."""
    settings = grid(**ALEXNET, batch_norm=NONE, trials=alexnet)
    return settings + grid(**VGG, batch_norm=OWN, trials=vgg)


RESNET = dict(net="resnet18-conv", batch_norm=OWN)


OTHERS = grid(**VGG, batch_norm=[NONE, STORED], trials=5)


QUICK = grid(net="alexnet", data="photos", batch_norm=NONE, trials=1)


CHOICES_MODES = dataclasses.replace(
    CHOICES,
    name="choices_modes",
    quick=QUICK,
    paper=first(8, 6),
    by=("dropout", *CHOICES.by),
)


CHOICES_NORMS = dataclasses.replace(CHOICES_MODES, name="choices_norms", paper=OTHERS)


CHOICES_RESNET = dataclasses.replace(
    CHOICES_MODES,
    name="choices_resnet",
    paper=grid(**RESNET, data="cifar100", trials=15),
)
