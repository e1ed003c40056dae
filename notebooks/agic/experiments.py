"""AGIC: attacks on one gradient (Tables I and IV, Figs. 6, 9 and 10), and the error of what is taken for one batch.

A trial is a function of its context, its seed or seeds, and its setting. A trial of many seeds inverts all their updates
in one optimisation. Updates of several steps, and images that are matched, stand in modules of their own.
"""

import copy
import dataclasses

import numpy as np
import torch

from fedleak.attacks.images import agic
from fedleak.federated import fedavg
from fedleak_book.experiments import Experiment, OneSeed, SeedByRole, grid
from fedleak_book.experiments.kinds import NUMBER
from notebooks.agic.clients import CURVE, DESCENTS, EVAL, GIVEN, LEVEL, METHODS, OWN
from notebooks.agic.clients import CIFAR10, PHOTOS, PLAIN, QUALITY, STATES, STORED
from notebooks.agic.clients import VARIANTS, WHOLE, inverted, inverted_once, network
from notebooks.agic.clients import on_the_way, pool, quality

WIDE = CIFAR10 | dict(side=32)


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


PATH = QUALITY | dict(by=("iteration", "final"), facts=("images", "found", "original"))
ALL = dict(method=METHODS, schedule=LEVEL)
TABLE4 = Experiment(
    "table4",
    one_update,
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


EVERY = dict(method=METHODS, schedule=[*DESCENTS], batch_norm=[STORED, OWN])
STEADY = dict(method="AGIC", schedule=LEVEL)
TO_THE_END = dict(batch_size=1, iterations=10000)
CHOICES = Experiment(
    "choices",
    one_update,
    quick=grid(**PHOTOS, **EVERY | dict(schedule=LEVEL), batch_size=1, iterations=20),
    paper=grid(**WIDE, **EVERY | dict(batch_norm=STORED), **TO_THE_END)
    + grid(**WIDE, **STEADY, batch_norm=OWN, **TO_THE_END),
    trials=(1, 6),
    tables="table4",
    fixed=dict(total_variation=1e-4, trained=0),
    arguments=dict(stops=(1000, 2000, 5000)),
    **QUALITY | dict(by=("iteration", "final")),
)
IN_TRAINING_MODE = WIDE | dict(batch_norm=OWN) | TO_THE_END
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
    paper=grid(**WIDE, **SINGLE, method=["AGIC", *BASELINES])
    + grid(**WIDE, **FOURS, method="AGIC", iterations=WHOLE)
    + grid(**WIDE, **FOURS, method=BASELINES, iterations=5000),
    by=("iteration", "final", "level"),
    tables="table4",
    fixed=GIVEN,
    arguments=dict(stops=(500, 1000, 2000, 5000), draws=SeedByRole),
    **QUALITY,
)


# --- the weights of layers and of total variation ---
SHAPES = [dict(shape="none", beta=1.0)] + [
    dict(shape=s, beta=b) for b in (0.5, 2.0) for s in ("log", "exp", "linear")
]


def weight_shapes(ctx, seeds, data, net, side, shape, beta, iterations):
    """AGIC on the gradients of four images, with one function of the layers' weights."""
    sizes = dict(batch_size=4, iterations=iterations, relu=False)
    x, images, _ = inverted(
        ctx, seeds, data, net, side, "AGIC", **sizes, shape=shape, beta=beta
    )
    yield from quality(ctx, seeds, x, images[iterations], data, side)


TABLE1 = Experiment(
    "table1",
    weight_shapes,
    quick=[PHOTOS | s | dict(iterations=20) for s in SHAPES],
    paper=[
        WIDE | s | dict(data=data, iterations=1000)
        for data in ("cifar10", "cifar100")
        for s in SHAPES
    ],
    trials=(1, 4),
    fixed=dict(batch_size=4, schedule=LEVEL) | GIVEN,
    **QUALITY,
)


QUICK9 = grid(**PHOTOS, state=STATES, trained=0, beta=[1.0, 50.0], iterations=30)
QUICK9 += grid(**PHOTOS, state="trained", trained=40, beta=[1.0, 50.0], iterations=30)
BETAS = dict(beta=[1.0, 2.0, 20.0, 50.0], iterations=2000)
PAPER9 = grid(**WIDE, state=STATES, trained=0, **BETAS)
PAPER9 += grid(**WIDE, state="trained", trained=150, **BETAS)
ALONE = dict(batch_size=1, schedule=LEVEL, total_variation=1e-4) | EVAL


def weighted(ctx, seeds, data, net, side, state, trained, beta, iterations):
    """AGIC on one image's gradient by the ratio of the weights and the state of the network."""
    sizes = dict(iterations=iterations, snapshots=CURVE, trained=trained)
    more = {"beta": beta, **VARIANTS.get(state, {})}
    x, images, _ = inverted(ctx, seeds, data, net, side, "AGIC", **sizes, **more)
    yield from on_the_way(ctx, seeds, x, images, data, side, pictures=state == PLAIN)


FIG9 = Experiment(
    "fig9",
    weighted,
    quick=QUICK9,
    paper=PAPER9,
    trials=(2, 4),
    fixed=ALONE,
    tables=("fig9", "fig10"),
    **PATH,
)


# --- the error of what an attack takes for one batch ---
RATES = dict(
    precision=["float32", "float64"],
    steps=[2, 4, 8],
    lr=[1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2],
)


SINGLE_PRECISION = dict(precision="float32", steps=4, lr=[1e-4, 1e-2])


def one_batch_error(ctx, seed, data, net, side, precision, steps, lr, batch_norm):
    """Relative error of Eq. 4 for local batches of one image, and its decadic logarithm."""
    images, model = pool(ctx, data, side), network(ctx, net, data, side, 0)
    if batch_norm != STORED:
        model = copy.deepcopy(model).train()
    generator = torch.Generator().manual_seed(seed)
    i = torch.randint(len(images), (steps, 1), generator=generator)
    x, y = images.x[i], images.y[i]
    if precision == "float64":
        model, x = copy.deepcopy(model).double(), x.double()
    error = agic.one_batch_error(fedavg(model, x, y, lr, "delta"), model, x, y)
    yield {"log_error": np.log10(error), "error": error, "images": len(images)}


ERROR = Experiment(
    "error",
    one_batch_error,
    quick=grid(**PHOTOS, **RATES),
    paper=grid(**WIDE, **RATES),
    trials=(2, 10),
    values=dict(log_error=NUMBER, error=NUMBER),
    facts="images",
    fixed=dict(batch_size=1, trained=0) | EVAL,
)


ERROR_OWN = dataclasses.replace(
    ERROR,
    name="error_training_mode",
    quick=grid(**PHOTOS, **SINGLE_PRECISION),
    paper=grid(**WIDE, **SINGLE_PRECISION),
    tables=("error",),
    fixed=dict(batch_size=1, trained=0, batch_norm=OWN),
)
