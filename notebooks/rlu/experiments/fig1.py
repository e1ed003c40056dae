"""RLU: Figs. 1 and 2, networks along a training, and few auxiliary images."""

import dataclasses

from fedleak.attacks.labels import rlu
from fedleak.data.partitions import dirichlet
from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.kinds import rate
from notebooks.rlu import clients as c
from notebooks.rlu.clients import ACCURACY, CLIENTS, IACC, ROUND, RULED, SCORES


TARGETS = {
    "mnist": [0.0, 0.3, 0.6, 0.86, 0.95],
    "svhn": [0.0, 0.3, 0.5, 0.7],
    "cifar10": [0.0, 0.2, 0.3, 0.4, 0.5],
}


def along_training(ctx, seed, data, stage, batch_size=32, alpha=0.5):
    """Score every rule on the clients of one network at one stage of training."""
    model, train, held_out = c.trained_lenet(ctx, data, "relu", stage, seed)
    for row in c.attack_rows(ctx, model, data, alpha, 10, batch_size, CLIENTS, seed):
        yield {"train": train, "held_out": held_out, **row}


FIG1 = Experiment(
    "fig1",
    along_training,
    quick=grid(data="mnist5k", stage=[0.0, 0.3, 0.6, 0.86]),
    paper=grid(data="mnist", stage=TARGETS["mnist"], trials=3)
    + [s for d in ("svhn", "cifar10") for s in grid(data=d, stage=TARGETS[d])],
    trials=(1, 24),
    fixed=dict(net="lenet", batch_size=32, steps=10, alpha=0.5, training="central")
    | ROUND,
    **RULED | dict(values=SCORES | dict(train=ACCURACY, held_out=ACCURACY)),
)
HUNDRED = dict(batch_size=256, alpha=0.1)  # the paper's on CIFAR-100
FIG1_CIFAR100 = dataclasses.replace(  # a LeNet-5 where the paper has a VGG-16
    FIG1,
    name="fig1_cifar100",
    quick=grid(data="mnist5k", stage=0.0),
    paper=grid(data="cifar100", stage=[0.0, 0.2, 0.5]),
    trials=(1, 3),
    values=FIG1.values | dict(cacc=rate("clients", 100)),
    fixed=FIG1.fixed | HUNDRED,
    tables=("fig1",),
)


def few_auxiliary(ctx, seed, data, stage, size, batch_size=32, alpha=0.5):
    """Score RLU by the number of auxiliary images per class."""
    pool, test = c.split_images(ctx, data)
    model, train, _ = c.trained_lenet(ctx, data, "relu", stage, seed)
    parts = dirichlet(pool.y, CLIENTS, alpha, seed)
    real = c.round_facts(pool, parts, c.sample_server(test, 100, seed))
    real["most_aux"] = real.pop("aux")
    server = c.sample_server(test, size, seed)
    attack = rlu.prepare(model, server, trajectory="midpoint")
    sizes = alpha, 10, batch_size, CLIENTS, seed
    for update, truth in c.local_updates(model, pool, *sizes):
        counts = attack.recover(update).counts
        yield {"train": train, "iacc": c.accuracies(counts, truth)["iacc"], **real}


FIG2 = Experiment(
    "fig2",
    few_auxiliary,
    quick=grid(data="mnist5k", stage=[0.0, 0.6], size=[5, 10, 50, 100]),
    paper=[
        setting
        for data, late in {"mnist": 0.6, "svhn": 0.5, "cifar10": 0.4}.items()
        for setting in grid(data=data, stage=[0.0, late], size=[5, 10, 50, 100])
    ],
    trials=(1, 3),
    values=IACC | dict(train=ACCURACY),
    facts=("images", "held", "most_aux"),
    fixed=dict(net="lenet", batch_size=32, steps=10, alpha=0.5) | ROUND,
)
FIG2_CIFAR100 = dataclasses.replace(
    FIG2,
    name="fig2_cifar100",
    quick=grid(data="mnist5k", stage=0.0, size=[5, 100]),
    paper=grid(data="cifar100", stage=0.0, size=[5, 100]),
    fixed=FIG2.fixed | HUNDRED,
    tables=("fig2",),
)
FIG2_TINY = dataclasses.replace(
    FIG2_CIFAR100,
    name="fig2_tiny",
    paper=grid(data="tiny-imagenet", stage=0.0, size=[5, 100]),
    fixed=FIG2.fixed | dict(batch_size=32, alpha=0.1),
)
