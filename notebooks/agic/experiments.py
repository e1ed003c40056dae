"""AGIC: the experiments. A trial is a function of its context, its seed or seeds, and its setting.

A trial of many seeds inverts all their updates in one optimisation. The lecture's section on a figure or table shows
the rows of the experiment with its name; the evidence page has all of them.
"""

import base64
import copy
import dataclasses
import time
from itertools import product

import numpy as np
import pandas as pd
import torch
from scipy.optimize import linear_sum_assignment
from torchvision.io import encode_png

from fedleak import metrics
from fedleak.attacks.images import agic, invg
from fedleak_book.experiments import Context, Experiment, grid
from fedleak.data import draw
from fedleak.federated import fedavg, fedsgd
from fedleak_book.experiments.kinds import MEAN, NUMBER, rate
from notebooks.agic.experiments_distance import DISTANCE  # noqa: F401
from notebooks.agic.experiments_shared import (
    BENT,
    CIFAR10,
    CURVE,
    DESCENTS,
    EVAL,
    GIVEN,
    LEVEL,
    NETWORK,
    OWN,
    PHOTOS,
    QUALITY,
    SCORED,
    SCORES,
    STORED,
    batches,
    inferred,
    inverted,
    network,
    on_the_way,
    pool,
    qualities,
    quality,
    scheduled,
)

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
    quick=grid(data="photos", net="resnet20-1", side=12, **RATES),
    paper=grid(data="cifar10", net="resnet20-4", side=32, **RATES),
    trials=(2, 10),
    values=dict(log_error=NUMBER, error=NUMBER),
    facts="images",
    fixed=dict(batch_size=1, trained=0) | EVAL,
)


ERROR_OWN = Experiment(
    "error_training_mode",
    one_batch_error,
    quick=grid(data="photos", net="resnet20-1", side=12, **SINGLE_PRECISION),
    paper=grid(data="cifar10", net="resnet20-4", side=32, **SINGLE_PRECISION),
    trials=(2, 10),
    values=dict(log_error=NUMBER, error=NUMBER),
    facts="images",
    tables="error",
    fixed=dict(batch_size=1, trained=0, batch_norm=OWN),
)


def smooth_error(ctx, seed, data, activation, steps, lr):
    """As above in double precision, with a smooth activation beside the ReLU."""
    images = pool(ctx, data, 12)
    shape, n = images.shape, images.n_classes
    model = ctx.build("resnet20-1", shape, n, seed=NETWORK, activation=activation)
    generator = torch.Generator().manual_seed(seed)
    i = torch.randint(len(images), (steps, 1), generator=generator)
    x, y, model = images.x[i].double(), images.y[i], model.double().eval()
    error = agic.one_batch_error(fedavg(model, x, y, lr, "delta"), model, x, y)
    yield {"log_error": np.log10(error), "error": error, "images": len(images)}


SMOOTH = Experiment(
    "smooth",
    smooth_error,
    quick=grid(
        data="photos", activation=["relu", "tanh"], steps=4, lr=[1e-8, 1e-6, 1e-4]
    ),
    paper=grid(
        data="cifar10",
        activation=["relu", "tanh"],
        steps=[2, 4, 8],
        lr=[1e-8, 1e-7, 1e-6, 1e-5, 1e-4],
    ),
    trials=(2, 10),
    values=dict(log_error=NUMBER, error=NUMBER),
    facts="images",
    fixed=dict(net="resnet20-1", side=12, batch_size=1, precision="float64") | EVAL,
)


METHODS = ["DLG-Adam", "InvG", "AGIC"]


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
CHOICES_TRAINING_MODE = dataclasses.replace(  # the choices that are left; they wait for a GPU
    CHOICES,
    name="choices_training_mode",
    paper=grid(
        **IN_TRAINING_MODE, method=METHODS, schedule=sorted({*DESCENTS} - {LEVEL})
    )
    + grid(**IN_TRAINING_MODE, method=METHODS[:-1], schedule=LEVEL),
)


BOTH = dict(batch_size=1, method=METHODS[1:], schedule=[*DESCENTS])
FALLS = WIDE | dict(batch_size=1, schedule=BENT)
SCHEDULES = Experiment(
    "schedules",
    one_gradient,
    quick=grid(**PHOTOS, **BOTH, iterations=100),
    paper=grid(**CIFAR10 | dict(side=16), **BOTH, iterations=800)
    + grid(**CIFAR10 | dict(net="resnet20-1"), **BOTH, iterations=800)
    + grid(**FALLS, method="AGIC", iterations=5000, trials=8)
    + grid(**FALLS, method="InvG", iterations=3000, trials=4),
    trials=(2, 5),
    fixed=GIVEN,
    **PATH,
)


SIZES = Experiment(
    "sizes",
    one_gradient,
    quick=grid(**PHOTOS | dict(data="photos, cropped"), iterations=30),
    paper=grid(**WIDE | dict(data="cifar10, cropped", side=16), iterations=800)
    + grid(**WIDE | dict(data="cifar10, smooth"), iterations=800),
    trials=(2, 5),
    fixed=dict(batch_size=1, method="AGIC", schedule=LEVEL) | GIVEN,
    **PATH,
)


def as_png(image):
    """An image [3, H, W] as a PNG file in base64."""
    pixels = (255 * image.clamp(0, 1)).round().to(torch.uint8).cpu()
    return base64.b64encode(bytes(encode_png(pixels).tolist())).decode()


def frames(ctx, seeds, data, net, side, method, iterations):
    """One image on the way, as a picture."""
    points = (1, 20, 50, 100, 200, 300, 400, 600)
    sizes = dict(iterations=iterations, snapshots=points)
    x, images, _ = inverted(ctx, seeds, data, net, side, method, **sizes)
    for t, recovered in images.items():
        for s, image, true in zip(seeds, recovered, x):
            psnr = metrics.psnr(image, true).mean().item()
            pictures = {"picture": as_png(image[0]), "original": as_png(true[0])}
            yield {"seed": s, "iteration": t, "psnr": psnr, **pictures}


FRAMES = Experiment(
    "frames",
    frames,
    quick=grid(**PHOTOS, method=METHODS, iterations=20),
    paper=grid(
        **PHOTOS | dict(net="resnet20-4", side=16), method=METHODS, iterations=800
    ),
    trials=1,
    by="iteration",
    values=dict(psnr=NUMBER),
    facts=("picture", "original"),
    fixed=dict(batch_size=1, schedule=LEVEL) | GIVEN,
)


def early(ctx, seeds, data, net, side, beta, iterations):
    """AGIC's first iterations on one image's gradient, with weights that fall, stay and rise."""
    sizes = dict(iterations=iterations, snapshots=(20, 40, 100), relu=False)
    x, images, _ = inverted(ctx, seeds, data, net, side, "AGIC", **sizes, beta=beta)
    yield from qualities(ctx, seeds, x, images, data, side, "iteration")


EARLY = Experiment(
    "early",
    early,
    quick=grid(**PHOTOS, beta=[0.02, 1.0, 50.0], iterations=20),
    paper=grid(**CIFAR10, beta=[0.02, 1.0, 50.0], iterations=150),
    trials=(1, 3),
    by="iteration",
    fixed=dict(batch_size=1, schedule=LEVEL) | GIVEN,
    **QUALITY,
)


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


FEDAVG = ["DLG-Adam", "InvG", "one batch", "AGIC"]


def four_steps(ctx, seeds, data, net, side, method, iterations):
    """An attack on FedAvg updates of four steps of one image, scored on the way and at the end."""
    sizes = dict(batch_size=1, steps=4, iterations=iterations, snapshots=CURVE)
    x, images, right = inverted(ctx, seeds, data, net, side, method, **sizes)
    for row in on_the_way(ctx, seeds, x, images, data, side, pictures=False):
        yield {**row, "labels_right": right}


TABLE2 = Experiment(
    "table2",
    four_steps,
    quick=grid(**PHOTOS, method=FEDAVG, iterations=30),
    paper=grid(**WIDE, method="DLG-Adam", iterations=500)
    + grid(**WIDE, method="InvG", iterations=1000)
    + grid(**WIDE, method=FEDAVG[2:], iterations=2000),
    trials=(1, 4),
    by=("iteration", "final"),
    values=SCORES | dict(labels_right=MEAN),
    facts="images",
    version=SCORED,
    fixed=dict(batch_size=1, steps=4, lr=1e-4, schedule=LEVEL) | GIVEN,
)


def two_epochs(ctx, seeds, data, net, side, batch_size, steps, iterations):
    """AGIC with the first epoch's update, and with both: originals, {epochs: images}."""
    x, y = batches(ctx, seeds, data, side, steps, batch_size)
    models = [network(ctx, net, data, side, t) for t in (0, 20)]
    rounds = [[fedavg(m, a, b, 1e-4, "delta") for a, b in zip(x, y)] for m in models]
    labels, _ = inferred(rounds[0], models[0], y)
    more = dict(iterations=iterations, seed=list(seeds))
    more["descent"] = scheduled(agic.AGIC, LEVEL)
    first = agic.invert_many(rounds[:1], models[:1], [labels], **more)
    # joined updates need one label an image: here the assumption of matching batches
    together = agic.invert_many(rounds, models, [y.flatten(1)] * 2, **more)
    return x.flatten(1, 2), {"first": first.images, "both": together.images}


SYNTHETIC = dict(data="synthetic", net="resnet20-1", side=12)
CIFAR100 = dict(data="cifar100", net="resnet20-4", side=32)
THREE = ["DLG-Adam", "InvG", "AGIC"]


def epochs(ctx, seeds, data, net, side, method, iterations):
    """The simulations with one epoch's update, AGIC with one and with two."""
    sizes = dict(batch_size=2, steps=4, iterations=iterations)
    if method == "AGIC":
        x, images = two_epochs(ctx, seeds, data, net, side, **sizes)
    else:
        x, done, _ = inverted(ctx, seeds, data, net, side, method, **sizes)
        images = {"first": done[iterations]}
    yield from qualities(ctx, seeds, x, images, data, side, "epochs")


TABLE3 = Experiment(
    "table3",
    epochs,
    quick=grid(**SYNTHETIC, method=THREE, iterations=15),
    paper=grid(**CIFAR100, method=THREE, iterations=1000),
    trials=(1, 3),
    by="epochs",
    fixed=dict(batch_size=2, steps=4, lr=1e-4, schedule=LEVEL, between="20 steps")
    | GIVEN,
    **QUALITY,
)


def local_steps(ctx, seeds, data, net, side, steps, method, iterations):
    """An attack on updates of four images in some local steps."""
    sizes = dict(batch_size=4 // steps, steps=steps, iterations=iterations)
    x, images, _ = inverted(ctx, seeds, data, net, side, method, **sizes)
    yield from quality(ctx, seeds, x, images[iterations], data, side)


FIG8 = Experiment(
    "fig8",
    local_steps,
    quick=grid(**SYNTHETIC, steps=[1, 4], method=METHODS[1:], iterations=8),
    paper=grid(**CIFAR100, steps=[1, 2, 4], method=METHODS[1:], iterations=1000),
    trials=(1, 3),
    fixed=dict(samples=4, lr=1e-4, schedule=LEVEL) | GIVEN,
    **QUALITY,
)


def step_time(ctx, seed, data, net, side, samples, steps, method, iterations, hardware):
    """Processor seconds of an attack's iteration, on one update of all the samples."""
    context = ctx.once(hardware, lambda: Context(hardware, ctx.data_root))
    network(context, net, data, side, 0)  # not on the clock
    start = time.process_time()
    sizes = dict(batch_size=samples // steps, steps=steps, iterations=iterations)
    inverted(context, [seed], data, net, side, method, **sizes)
    seconds = (time.process_time() - start) / iterations
    ctx.used["data"] |= context.used["data"]
    yield {"seconds": seconds}


FIG8_TIME = Experiment(
    "fig8_time",
    step_time,
    quick=grid(**SYNTHETIC, samples=4, steps=[1, 4], method=METHODS[1:], iterations=4),
    paper=grid(
        **WIDE, samples=8, steps=[1, 2, 4, 8], method=METHODS[1:], iterations=10
    ),
    trials=(1, 3),
    values=dict(seconds=NUMBER),
    times="seconds",
    fixed=dict(lr=1e-4, schedule=LEVEL, hardware="cpu") | GIVEN,
)


def shuffled(labels, batch_size, generator):
    """A random order in which no batch holds a label twice."""
    while True:
        order = torch.randperm(len(labels), generator=generator)
        parts = labels[order].split(batch_size)
        if batch_size == 1 or all(len(set(p.tolist())) == batch_size for p in parts):
            return order


def rough(updates, model, labels, iterations, s, snapshots=()):
    """InvG for a few iterations: {iteration: images [N, samples, ...]}."""
    more = dict(iterations=iterations, seed=s, snapshots=snapshots)
    more["descent"] = scheduled(invg.INVG, LEVEL)
    done = invg.invert_many(updates, model, labels, **more)
    return {**done.snapshots, iterations: done.images}


def origins(recovered, x, order):
    """Which originals a batch's reconstructions are of, by the best assignment: for scoring alone."""
    errors = torch.cdist(recovered.flatten(1), x[order].flatten(1)).cpu().numpy()
    return order[torch.as_tensor(linear_sum_assignment(errors)[1])]


RULES = ("no labels", "labels")


def matching(ctx, seed, data, net, side, matched, batch_size, iterations):
    """Share of images whose partner in the next epoch is found, by labels and pooling."""
    images, generator = pool(ctx, data, side), torch.Generator().manual_seed(seed)
    index = draw(images, torch.arange(matched) % (matched // 2), generator)
    x, y = images.x[index], images.y[index]
    recovered, places, lists = {}, {}, []
    points = tuple(t for t in (25, 50, 100) if t < iterations)
    for trained in (0, 20):
        model = network(ctx, net, data, side, trained)
        parts = shuffled(y.cpu(), batch_size, generator).split(batch_size)
        updates = [fedsgd(model, x[o], y[o]) for o in parts]
        labels = torch.stack([invg.inferred(u, model) for u in updates])
        lists.append(labels.repeat_interleave(batch_size, 0))
        for t, done in rough(updates, model, labels, iterations, seed, points).items():
            recovered.setdefault(t, []).append(done.flatten(0, 1))
            whose = torch.cat([origins(d, x, o) for d, o in zip(done, parts)])
            places.setdefault(t, []).append(whose)
    for t, rule, (pooling, size) in product(
        recovered, RULES, {"no pool": 1, "pool": 2}.items()
    ):
        allowed = agic.share_a_label(*lists) if rule == "labels" else None
        partner = agic.greedy_pairs(agic.similarity(*recovered[t], size), allowed)
        right = (places[t][0] == places[t][1][partner]).double().mean().item()
        row = {"labels": rule, "pooling": pooling, "rate": right}
        yield {"iteration": t, "final": t == iterations, **row}


TABLE5 = Experiment(
    "table5",
    matching,
    quick=grid(**PHOTOS, matched=8, batch_size=[1, 4], iterations=25),
    paper=grid(
        **WIDE | dict(data="cifar100"), matched=24, batch_size=[1, 4], iterations=150
    ),
    trials=(1, 3),
    by=("iteration", "final", "labels", "pooling"),
    values=dict(rate=rate("matched")),
    fixed=dict(schedule=LEVEL, between="20 steps") | EVAL,
)


def joined(ctx, seed, data, net, side, matched, before, iterations):
    """Images from epoch 1, epoch 2, and the matched two together; a wrong match counts as it falls."""
    models = [network(ctx, net, data, side, t) for t in (0, 20)]
    x, y = (part.flatten(0, 2) for part in batches(ctx, [seed], data, side, 1, matched))
    order = torch.randperm(matched, generator=torch.Generator().manual_seed(seed))
    first, second = (
        [fedsgd(m, x[i, None], y[i, None]) for i in o]
        for m, o in zip(models, (torch.arange(matched), order))
    )
    labels = [
        torch.stack([invg.inferred(u, m) for u in us])
        for us, m in zip((first, second), models)
    ]
    images = [
        rough(us, m, named, before, seed)[before][:, 0]
        for us, m, named in zip((first, second), models, labels)
    ]
    partner = agic.greedy_pairs(agic.similarity(*images), agic.share_a_label(*labels))
    back, (first_model, two) = order.argsort(), models
    again = [second[i] for i in back]
    matched_to = [second[i] for i in partner]
    runs = {
        "first": ([first], [first_model], [labels[0]]),
        "second": ([again], [two], [labels[1][back]]),
        "both": ([first, matched_to], models, [labels[0], labels[1][partner]]),
    }
    more = dict(iterations=iterations, seed=seed, descent=scheduled(agic.AGIC, LEVEL))
    right = (order[partner] == torch.arange(matched)).double().mean().item()
    for which, views in runs.items():
        recovered = agic.invert_many(*views, weights=lambda u, m: {}, **more).images
        rows = pd.DataFrame(
            quality(ctx, range(matched), x[:, None], recovered, data, side)
        )
        scores = rows.drop(columns="seed").mean().to_dict()
        yield {"epochs": which, "right": right, **scores}


TABLE6 = Experiment(
    "table6",
    joined,
    quick=grid(**SYNTHETIC, matched=3, before=20, iterations=30),
    paper=grid(**WIDE | dict(data="cifar100"), matched=5, before=150, iterations=400),
    trials=(1, 5),
    by="epochs",
    values=SCORES | dict(right=MEAN),
    facts="images",
    version=SCORED,
    fixed=dict(batch_size=1, schedule=LEVEL, between="20 steps") | GIVEN,
)


PLAIN = "untrained"
VARIANTS = {
    "untrained, no ReLU modifier": {"relu": False},
    "untrained, BN 1": {"norms": "one"},
}


STATES = [PLAIN, *VARIANTS]
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
