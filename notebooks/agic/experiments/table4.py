"""AGIC: Table IV and Figs. 6 and 7, attacks on one gradient, at every schedule and up to ImageNet's size.

A trial of many seeds inverts all their updates in one optimisation. An iteration on ResNet-50 takes a second or more on a
processor.
"""

import dataclasses

from fedleak_book.experiments import Experiment, OneSeed, SeedByRole, grid
from notebooks.agic.clients import (
    CIFAR10,
    CURVE,
    DESCENTS,
    ENDED,
    EVAL,
    GIVEN,
    IMAGENET,
)
from notebooks.agic.clients import LEVEL, METHODS, OWN, PATH, PHOTOS, QUALITY, STORED
from notebooks.agic.clients import WHOLE, inverted_once, on_the_way


def one_update(
    ctx,
    seeds,
    data,
    net,
    side,
    batch_size,
    method,
    iterations,
    schedule=LEVEL,
    batch_norm=STORED,
    total_variation=1e-4,
    steps=1,
    stops=CURVE,
    draws=OneSeed,
):
    """An attack on one gradient a seed, or on local steps, scored on the way and at the end."""
    how = dict(batch_size=batch_size, steps=steps, iterations=iterations)
    how |= dict(schedule=schedule, batch_norm=batch_norm, snapshots=stops)
    how["total_variation"] = total_variation
    drawn = [draws(s).of("distance") for s in seeds]
    x, images, right = inverted_once(ctx, drawn, data, net, side, method, **how)
    for row in on_the_way(ctx, seeds, x, images, data, side):
        yield row | {"labels_right": right}


ALL = dict(method=METHODS, schedule=LEVEL)
TABLE4 = Experiment(
    "table4",
    one_update,
    quick=grid(**PHOTOS, batch_size=1, **ALL, iterations=100)
    + grid(**PHOTOS, batch_size=4, **ALL, iterations=60, trials=1),
    paper=[
        CIFAR10 | dict(batch_size=b, method=m, schedule=LEVEL, iterations=t, trials=n)
        for b, n, short, long in ((1, 8, 2000, 10000), (4, 4, 1000, 1000))
        for m, t in zip(METHODS, (short, short, long))
    ],
    trials=(2, 8),
    tables=("table4", "fig6"),
    fixed=GIVEN,
    **PATH,
)


EVERY = dict(method=METHODS, schedule=[*DESCENTS], batch_norm=[STORED, OWN])
STEADY = dict(method="AGIC", schedule=LEVEL)
TO_THE_END = dict(batch_size=1, iterations=10000)
CHOICES = Experiment(
    "choices",
    one_update,
    quick=grid(**PHOTOS, **EVERY | dict(schedule=LEVEL), batch_size=1, iterations=20),
    paper=grid(**CIFAR10, **EVERY | dict(batch_norm=STORED), **TO_THE_END)
    + grid(**CIFAR10, **STEADY, batch_norm=OWN, **TO_THE_END),
    trials=(1, 6),
    tables="table4",
    fixed=dict(total_variation=1e-4, trained=0),
    arguments=dict(stops=(1000, 2000, 5000)),
    **QUALITY | dict(by=("iteration", "final")),
)
IN_TRAINING_MODE = CIFAR10 | dict(batch_norm=OWN) | TO_THE_END
CHOICES_TRAINING_MODE = dataclasses.replace(  # one attack under four names; three images took 96 minutes of a core
    CHOICES,
    name="choices_training_mode",
    paper=grid(**IN_TRAINING_MODE, method="DLG-Adam", schedule=[*DESCENTS]),
    trials=(1, 3),
)


# --- the number of iterations, on other images than the chapter's other records have ---
SINGLE = dict(batch_size=1, schedule=LEVEL, iterations=WHOLE, trials=24)
FOURS = dict(batch_size=4, schedule=LEVEL, trials=12)
BASELINES = ["InvG", "DLG-Adam"]
DISTANCE = Experiment(
    "distance",
    one_update,
    quick=grid(
        **PHOTOS, **SINGLE | dict(iterations=20, trials=2), method=["AGIC", *BASELINES]
    ),
    paper=grid(**CIFAR10, **SINGLE, method=["AGIC", *BASELINES])
    + grid(**CIFAR10, **FOURS, method="AGIC", iterations=WHOLE)
    + grid(**CIFAR10, **FOURS, method=BASELINES, iterations=5000),
    by=("iteration", "final", "level"),
    tables="table4",
    fixed=GIVEN,
    arguments=dict(stops=(500, 1000, 2000, 5000), draws=SeedByRole),
    **QUALITY,
)
TABLE4_IMAGENET = Experiment(
    "table4_imagenet",
    one_update,
    quick=grid(**PHOTOS, batch_size=1, method=METHODS, iterations=20),
    paper=grid(**IMAGENET, net="resnet50", batch_size=1, method=METHODS, iterations=6),
    trials=(1, 3),
    tables=("table4", "fig7"),
    fixed=dict(steps=1, total_variation=1e-3, trained=0, schedule=LEVEL) | EVAL,
    **ENDED,
)
TABLE4_IMAGENET_FOURS = dataclasses.replace(
    TABLE4_IMAGENET,
    name="table4_imagenet_fours",
    quick=grid(**PHOTOS, batch_size=4, method=METHODS, iterations=5),
    paper=grid(**IMAGENET, net="resnet50", batch_size=4, method=METHODS, iterations=4),
    trials=1,
    tables=("table4",),
)
