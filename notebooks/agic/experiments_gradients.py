"""AGIC: Table IV, attacks on one gradient, and at every choice."""

import dataclasses


from fedleak_book.experiments import Experiment, grid
from notebooks.agic.experiments_distance import DISTANCE  # noqa: F401
from notebooks.agic.clients import (
    CIFAR10,
    CURVE,
    DESCENTS,
    GIVEN,
    LEVEL,
    OWN,
    PHOTOS,
    QUALITY,
    STORED,
    inverted,
    on_the_way,
)
from notebooks.agic.clients import METHODS


def one_gradient(ctx, seeds, data, net, side, batch_size, method, schedule, iterations):
    """An attack on one gradient a seed, scored on the way and at the end."""
    sizes = dict(batch_size=batch_size, iterations=iterations, schedule=schedule)
    x, images, _ = inverted(
        ctx, seeds, data, net, side, method, **sizes, snapshots=CURVE
    )
    yield from on_the_way(ctx, seeds, x, images, data, side)


PATH = QUALITY | dict(by=("iteration", "final"), facts=("images", "found", "original"))
WIDE = CIFAR10 | dict(side=32)
ALL = dict(method=METHODS, schedule=LEVEL)
TABLE4 = Experiment(
    "table4",
    one_gradient,
    quick=grid(**PHOTOS, batch_size=1, **ALL, iterations=100)
    + grid(**PHOTOS, batch_size=4, **ALL, iterations=60, trials=1),
    paper=[
        WIDE | dict(batch_size=b, method=m, schedule=LEVEL, iterations=t, trials=n)
        for b, n, short, long in ((1, 8, 2000, 10000), (4, 4, 1000, 1000))
        for m, t in zip(METHODS, (short, short, long))
    ],
    trials=(2, 8),
    tables=("table4", "fig6"),
    fixed=GIVEN,
    **PATH,
)


def at_every_choice(
    ctx, seeds, data, net, side, batch_size, method, schedule, batch_norm, iterations
):
    """The same with the batch norm of either mode. DLG-Adam goes by the gradient, at a steady rate, under any name."""
    sizes = dict(batch_size=batch_size, iterations=iterations, batch_norm=batch_norm)
    steady = LEVEL if method == "DLG-Adam" else schedule
    done = ("choices", data, net, side, *seeds, method, steady, *sizes.values())

    def invert():
        more = dict(schedule=steady, snapshots=(1000, 2000, 5000))
        return inverted(ctx, seeds, data, net, side, method, **sizes, **more)

    x, images, _ = ctx.once(done, invert, most=1)
    yield from on_the_way(ctx, seeds, x, images, data, side, pictures=False)


EVERY = dict(method=METHODS, schedule=[*DESCENTS], batch_norm=[STORED, OWN])
STEADY, TO_THE_END = (
    dict(method="AGIC", schedule=LEVEL),
    dict(batch_size=1, iterations=10000),
)
CHOICES = Experiment(
    "choices",
    at_every_choice,
    quick=grid(**PHOTOS, **EVERY | dict(schedule=LEVEL), batch_size=1, iterations=20),
    paper=grid(**WIDE, **EVERY | dict(batch_norm=STORED), **TO_THE_END)
    + grid(**WIDE, **STEADY, batch_norm=OWN, **TO_THE_END),
    trials=(1, 6),
    tables="table4",
    fixed=dict(total_variation=1e-4, trained=0),
    **QUALITY | dict(by=("iteration", "final")),
)
IN_TRAINING_MODE = WIDE | dict(batch_norm=OWN) | TO_THE_END
CHOICES_TRAINING_MODE = dataclasses.replace(  # one attack under four names; an image takes 40 minutes of a core
    CHOICES,
    name="choices_training_mode",
    paper=grid(**IN_TRAINING_MODE, method="DLG-Adam", schedule=[*DESCENTS]),
    trials=(1, 3),
)
