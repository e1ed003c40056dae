"""AGIC: how image quality depends on the number of iterations, from 500 to the paper's 10,000.

The images are others than those of the chapter's other records, so that what is measured here can be tried on these.
"""

from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.experiment import spawned
from notebooks.agic.clients import (
    CIFAR10,
    GIVEN,
    LEVEL,
    PHOTOS,
    QUALITY,
    inverted,
    on_the_way,
)

WHOLE = 10_000
"""The paper's number of iterations."""
STOPS = (500, 1000, 2000, 5000)
"""Iterations before it after which the images are scored."""


def distance(ctx, seeds, data, net, side, batch_size, method, schedule, iterations):
    """Invert one gradient per seed, and score the images at `STOPS` and at the end; ``level`` is "whole" at `WHOLE`."""
    drawn = [spawned(s, "distance") for s in seeds]
    sizes = dict(batch_size=batch_size, iterations=iterations, schedule=schedule)
    x, images, _ = inverted(
        ctx, drawn, data, net, side, method, **sizes, snapshots=STOPS
    )
    for row in on_the_way(ctx, seeds, x, images, data, side, pictures=False):
        reached = row["iteration"]
        yield {**row, "level": "whole" if reached == WHOLE else str(reached)}


SINGLE = dict(batch_size=1, schedule=LEVEL, iterations=WHOLE, trials=24)
FOURS = dict(batch_size=4, schedule=LEVEL, trials=12)
BASELINES = ["InvG", "DLG-Adam"]
METHODS = ["AGIC", *BASELINES]
WIDE = CIFAR10 | dict(side=32)
DISTANCE = Experiment(
    "distance",
    distance,
    quick=grid(**PHOTOS, **SINGLE | dict(iterations=20, trials=2), method=METHODS),
    paper=grid(**WIDE, **SINGLE, method=METHODS)
    + grid(**WIDE, **FOURS, method="AGIC", iterations=WHOLE)
    + grid(**WIDE, **FOURS, method=BASELINES, iterations=5000),
    by=("iteration", "final", "level"),
    tables="table4",
    fixed=GIVEN,
    **QUALITY,
)
