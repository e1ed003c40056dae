"""GDBR: Tables I and II with batch norm in either mode, and with dropout, which the paper does not mention."""

import copy

import torch
from torch import nn

from fedleak.attacks.labels import gdbr
from fedleak_book.experiments import Experiment, grid, spawned
from notebooks.gdbr.experiments_choices import (
    BATCHES,
    SCALES,
    WIDTHS,
    batch_of,
    tail_of,
)
from notebooks.gdbr.experiments_clients import (
    below,
    body,
    dummies,
    kinds,
    scaled,
    scores,
    sets,
    share,
)

NONE, STORED, OWN = "none", "stored statistics", "batch statistics"
OFF, ONE_HALF = "off", "0.5"


def normed_body(ctx, net, data, batch_norm, seed):
    """A network for what is below the chain, with batch norm of this mode."""
    with_norms = "vgg11_bn" if net == "vgg11" and batch_norm != NONE else net
    model = body(ctx, with_norms, data, seed)
    return copy.deepcopy(model).train() if batch_norm == OWN else model


def with_dropout(tail):
    """The same layers with torchvision's dropout after every ReLU between fully connected layers."""
    layers = []
    for layer in tail:
        dropped = isinstance(layer, nn.ReLU)
        layers += [layer, nn.Dropout(0.5)] if dropped else [layer]
    return nn.Sequential(*layers).train()


def dropped_share(tail, x, labels, name, seed):
    """What a client shares of one layer's gradient if dropout is active in its local step."""
    client = copy.deepcopy(tail)
    position = [k for k, _ in client.named_children()].index(name)
    layer = client[position]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        loss = nn.functional.cross_entropy(with_dropout(client)(x), labels)
        (gradient,) = torch.autograd.grad(loss, layer.weight)
    update = share(tail, x[:1], labels[:1], [name])
    return type(update)(dict.fromkeys(update.tensors, gradient), "gradient", len(x))


def updates(tail, name, x, labels, dropouts, seed):
    """By dropout, what a client shares of one layer."""
    for dropout in dropouts:
        if dropout == OFF:
            yield dropout, share(tail, x, labels, [name])
        else:
            yield dropout, dropped_share(tail, x, labels, name, seed)


def by_mode(ctx, seed, net, data, batch_norm):
    """The paper's form on one batch of every composition in these modes, from auxiliary images and from dummies.

    In training mode a batch norm takes the statistics of 64 images: the client's batch, or as many of the attacker's.
    """
    victims, aux = sets(ctx, data)
    model = normed_body(ctx, net, data, batch_norm, spawned(seed, "body"))
    drawn = {b: batch_of(victims, *b, 64, spawned(seed, "batch")) for b in BATCHES}
    made = {k: below(model, dummies(aux, k), 64) for k in (1000, 100)}
    bridges = {}
    for widths in WIDTHS[net]:
        tail = tail_of(model, widths, victims.n_classes, spawned(seed, "tail"))
        bridges[widths] = gdbr.Bridge(tail.to(ctx.device))
    dropouts = [ONE_HALF] if batch_norm == NONE else [OFF, ONE_HALF]
    dropouts = [OFF] if net == "resnet18-conv" else dropouts
    for scale in SCALES:
        known = below(model, scaled(ctx, data, aux.x, scale), 64)
        batches = {
            name: (below(model, scaled(ctx, data, victims.x[i], scale)), *labels)
            for name, (i, *labels) in drawn.items()
        }
        for widths, bridge in bridges.items():
            row = {"scale": scale, "widths": widths, "images": len(victims)}
            seen = {("aux", len(aux)): bridge.observe(known)}
            seen |= {("dummy", k): bridge.observe(x) for k, x in made.items()}
            for scheme, composition in BATCHES:
                x, labels, truth = batches[scheme, composition]
                held = len(drawn[scheme, composition][0].unique())
                how = bridge.model, bridge.layer, x, labels, dropouts
                row |= {"scheme": scheme, "composition": composition, "held": held}
                for dropout, update in updates(*how, spawned(seed, "dropout")):
                    for (auxiliary, k), features in seen.items():
                        if auxiliary == "aux" or scheme == "random":
                            counts = bridge.recover(update, features, "paper").counts
                            by = dict(dropout=dropout, auxiliary=auxiliary, aux=k)
                            side = {"side": victims.shape[1]}
                            yield {**row, **by, **side, **scores(counts, truth)}


VGG = dict(net="vgg11", data="cifar10")
CHOICES_MODES = Experiment(
    "choices_modes",
    by_mode,
    quick=grid(net="vgg11", data="photos", batch_norm=[NONE, OWN], trials=1),
    paper=grid(**VGG, batch_norm=OWN, trials=3),
    by=("dropout", "scale", "widths", "scheme", "composition", "auxiliary", "aux"),
    values=kinds("insacc", "clsacc"),
    facts=("images", "held", "side"),
    fixed=dict(
        init="positive", form="paper", batch_size=64, layer=1, redrawn="network"
    ),
    tables=("table1", "table2"),
)
