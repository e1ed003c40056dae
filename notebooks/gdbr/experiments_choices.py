"""GDBR: every plausible choice of what its paper does not print, as ``data/published/gdbr/choices.toml`` has them."""

import itertools

import torch
from torch import nn

from fedleak import metrics
from fedleak.attacks.labels import gdbr
from fedleak.data import compose, draw
from fedleak.experiments import Experiment, grid, spawned
from fedleak.federated import fedsgd
from fedleak.federated.restricted import last_layers
from fedleak.models import chain, positive_, without_biases
from notebooks.gdbr.experiments_clients import (
    SCHEMES,
    below,
    body,
    dummies,
    kinds,
    pairs,
    pixels,
    scaled,
    scores,
    sets,
    share,
)

HALF = "a random half of the classes"
FIFTH, ANY = "a random fifth of the classes", "2 to n - 1 random classes"
QUARTER = "half of one class, a quarter of another"
DIRICHLET, ONE = "Dirichlet 0.5", "half of one class"
NAMED = "as its name says"
BATCHES = [("random", NAMED), ("uniform", NAMED), ("single", NAMED)]
BATCHES += [("subclassed", one) for one in (HALF, FIFTH, ANY)]
BATCHES += [("imbalanced", one) for one in (QUARTER, DIRICHLET, ONE)]
SCALES = ["raw", "normalised", "half"]
WIDTHS = {
    "lenet": ["120-84", "500"],
    "alexnet": ["4096-4096", "384-192"],
    "vgg11": ["4096-4096", "512-512"],
}


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


def tail_of(model, widths, n, seed):
    """A chain of these hidden widths for what the network has below its own, with positive weights and no biases."""
    first, hidden = chain(model).links[0].layer, [int(w) for w in widths.split("-")]
    layers = []
    for fan_in, fan_out in itertools.pairwise((first.in_features, *hidden, n)):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    tail = nn.Sequential(*layers[:-1])
    tail.input_shape = (first.in_features,)
    return positive_(tail, torch.Generator().manual_seed(seed))


def batch_of(victims, scheme, composition, size, seed):
    """Which images, their labels and the true counts; the same batch at every scale and width."""
    n, generator = victims.n_classes, torch.Generator().manual_seed(seed)
    labels = labels_of(scheme, composition, size, n, generator)
    index = draw(victims, labels, generator)
    return index, victims.y[index], metrics.counts(victims.y[index], n)


def everywhere(ctx, seed, net, data):
    """The paper's form on one batch of every composition, at every choice, from auxiliary images and from dummies."""
    (victims, aux), model = sets(ctx, data), body(ctx, net, data, spawned(seed, "body"))
    drawn = {b: batch_of(victims, *b, 64, spawned(seed, "batch")) for b in BATCHES}
    made = {k: below(model, dummies(aux, k)) for k in (1000, 100)}
    for scale in SCALES:
        own = below(model, pixels(ctx, data, "aux", scale))
        shown = pixels(ctx, data, "victims", scale)
        inputs = {b: below(model, shown[index]) for b, (index, *_) in drawn.items()}
        for widths in WIDTHS[net]:
            tail = tail_of(model, widths, victims.n_classes, spawned(seed, "tail")).to(
                ctx.device
            )
            bridge = gdbr.Bridge(tail)
            seen = {("aux", len(aux)): bridge.observe(own)}
            seen |= {("dummy", k): bridge.observe(x) for k, x in made.items()}
            for (scheme, composition), (index, labels, truth) in drawn.items():
                update = share(
                    tail, inputs[scheme, composition], labels, [bridge.layer]
                )
                for (auxiliary, k), features in seen.items():
                    if auxiliary == "dummy" and scheme != "random":
                        continue
                    yield {
                        "scale": scale, "widths": widths, "scheme": scheme, "composition": composition,
                        "auxiliary": auxiliary, "aux": k, "images": len(victims),
                        "held": len(index.unique()), "side": victims.shape[1],
                        **scores(bridge.recover(update, features, "paper").counts, truth),
                    }  # fmt: skip


CHOICES = Experiment(
    "choices",
    everywhere,
    quick=pairs(False, ["lenet"]),
    paper=[
        s | {"trials": 20} for s in pairs(True, ["lenet", "alexnet", "vgg11"])
    ],  # ResNet-18's 1,117 images have no transport here
    by=("scale", "widths", "scheme", "composition", "auxiliary", "aux"),
    values=kinds("insacc", "clsacc"),
    facts=("images", "held", "side"),
    fixed=dict(
        init="positive", form="paper", batch_size=64, layer=1, redrawn="network"
    ),
    tables=("table1", "table2"),
)


def reduced(ctx, seed, net, data):
    """The same batches' compositions with all images, and with as many as SVHN and CIFAR-100 leave here."""
    (victims, aux), model = sets(ctx, data), body(ctx, net, data, spawned(seed, "body"))
    generator = torch.Generator().manual_seed(spawned(seed, "part"))
    parts = {"whole": (victims, aux)}
    for few, known in ((433, 433), (1117, 916)):
        index = [
            torch.randperm(len(i), generator=generator)[:k]
            for i, k in ((victims, few), (aux, known))
        ]
        parts[f"{few} + {known}"] = victims.take(index[0]), aux.take(index[1])
    for scale, level in itertools.product(SCALES, parts):
        mine, known = parts[level]
        own = below(model, scaled(known.x, scale, victims.x))
        for widths in WIDTHS[net]:
            tail = tail_of(model, widths, victims.n_classes, spawned(seed, "tail")).to(
                ctx.device
            )
            bridge = gdbr.Bridge(tail)
            features = bridge.observe(own)
            for scheme, composition in BATCHES:
                drawn = batch_of(
                    mine, scheme, composition, 64, spawned(seed, f"batch of {level}")
                )
                index, labels, truth = drawn
                update = share(
                    tail,
                    below(model, scaled(mine.x[index], scale, victims.x)),
                    labels,
                    [bridge.layer],
                )
                found = scores(bridge.recover(update, features, "paper").counts, truth)
                row = {
                    "level": level,
                    "scale": scale,
                    "widths": widths,
                    "scheme": scheme,
                }
                yield {**row, "composition": composition, **found}


REDUCED = Experiment(
    "reduced",
    reduced,
    quick=grid(net="lenet", data="mnist5k", trials=2),
    paper=grid(net="lenet", data="mnist", trials=20)
    + grid(net="alexnet", data="cifar10", trials=8),
    by=("level", "scale", "widths", "scheme", "composition"),
    values=kinds("insacc", "clsacc"),
    fixed=dict(init="positive", form="paper", batch_size=64, layer=1, auxiliary="aux"),
)


POSITIVE = [
    "the fully connected layers",
    "the last layer",
    "the last two layers",
    "all layers",
]


def which_positive(ctx, seed, net, data, scale, positive):
    """The paper's form on one batch of every composition, where fewer or more layers are drawn from U(0.01, 0.2)."""
    victims, _ = sets(ctx, data)
    n, weights = victims.n_classes, spawned(seed, "weights")
    model = ctx.build(net, victims.shape, n, seed=weights)
    links = [link.layer for link in chain(model).links]
    drawn = {
        "the last layer": links[-1:],
        "the last two layers": links[-2:],
        "the fully connected layers": links,
        "all layers": [
            m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)
        ],
    }[positive]
    generator = torch.Generator().manual_seed(spawned(seed, "tail"))
    for layer in drawn:
        values = torch.empty(layer.weight.shape).uniform_(
            0.01, 0.2, generator=generator
        )
        layer.weight.data = values.to(layer.weight)
    bridge = gdbr.Bridge(without_biases(model))
    features = bridge.observe(pixels(ctx, data, "aux", scale))
    shown = pixels(ctx, data, "victims", scale)
    for scheme, composition in BATCHES:
        if composition in (NAMED, HALF, QUARTER):
            index, labels, truth = batch_of(
                victims, scheme, composition, 64, spawned(seed, "batch")
            )
            update = fedsgd(model, shown[index], labels).without(*last_layers(model))
            yield {
                "scheme": scheme,
                **scores(bridge.recover(update, features, "paper").counts, truth),
            }


POSITIVE_LAYERS = Experiment(
    "positive_layers",
    which_positive,
    quick=grid(
        net="lenet", data="mnist5k", scale="raw", positive=POSITIVE[:2], trials=2
    ),
    paper=grid(net="lenet", data="mnist", scale=SCALES, positive=POSITIVE, trials=20)
    + grid(net="vgg11", data="cifar10", scale="raw", positive=POSITIVE[1:3], trials=10),
    by="scheme",
    values=kinds("insacc", "clsacc"),
    fixed=dict(form="paper", batch_size=64, layer=1, auxiliary="aux"),
)
