"""AGIC: Tables II and III and Fig. 8, attacks on FedAvg updates of several steps and epochs; ImageNet's large images.

An iteration on ResNet-50 takes a second or more on a processor. A trained ResNet-50 is not available offline: SqueezeNet 1.1 with
published weights stands in for it, in the folder that ``FEDLEAK_DATA`` names.
"""

import dataclasses
import time

from fedleak.attacks.images import agic
from fedleak.federated import fedavg
from fedleak_book.experiments import Context, Experiment, grid
from fedleak_book.experiments.kinds import MEAN, NUMBER
from notebooks.agic.clients import EVAL, GIVEN, LEVEL, METHODS, PHOTOS
from notebooks.agic.clients import PRETRAINED, QUALITY, SCORES, batches, inferred
from notebooks.agic.clients import inverted, network, qualities, quality
from notebooks.agic.clients import scheduled
from notebooks.agic.experiments import WIDE, one_update

FEDAVG = ["DLG-Adam", "InvG", "one batch", "AGIC"]


LABELLED = SCORES | dict(labels_right=MEAN)
ENDED = QUALITY | dict(by=("iteration", "final"), values=LABELLED)
TABLE2 = Experiment(
    "table2",
    one_update,
    quick=grid(**PHOTOS, method=FEDAVG, iterations=30),
    paper=grid(**WIDE, method="DLG-Adam", iterations=500)
    + grid(**WIDE, method="InvG", iterations=1000)
    + grid(**WIDE, method=FEDAVG[2:], iterations=2000),
    trials=(1, 4),
    fixed=dict(batch_size=1, steps=4, lr=1e-4, schedule=LEVEL) | GIVEN,
    **ENDED,
)


NARROW = dict(data="cifar100", net="resnet20-1", side=32)
TABLE2_CIFAR100 = dataclasses.replace(  # a quarter of the channels: a simulated step takes a sixth of the time
    TABLE2,
    name="table2_cifar100",
    paper=grid(**NARROW, method=FEDAVG, iterations=30),
    trials=(1, 3),
    tables=("table2",),
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


# --- ImageNet's images of 224 x 224 pixels, for few iterations ---
FULL = dict(data="imagenet", side=224)
STEADY = dict(schedule=LEVEL) | EVAL
TABLE4_IMAGENET = Experiment(
    "table4_imagenet",
    one_update,
    quick=grid(**PHOTOS, batch_size=1, method=METHODS, iterations=20),
    paper=grid(**FULL, net="resnet50", batch_size=1, method=METHODS, iterations=6),
    trials=(1, 3),
    tables=("table4", "fig7"),
    fixed=dict(steps=1, total_variation=1e-3, trained=0) | STEADY,
    **ENDED,
)
TABLE4_IMAGENET_FOURS = dataclasses.replace(
    TABLE4_IMAGENET,
    name="table4_imagenet_fours",
    quick=grid(**PHOTOS, batch_size=4, method=METHODS, iterations=5),
    paper=grid(**FULL, net="resnet50", batch_size=4, method=METHODS, iterations=4),
    trials=1,
    tables=("table4",),
)
TABLE2_IMAGENET = Experiment(
    "table2_imagenet",
    one_update,
    quick=grid(**PHOTOS, method=FEDAVG, iterations=20),
    paper=grid(**FULL, net=PRETRAINED, method=FEDAVG, iterations=12),
    trials=(1, 3),
    tables="table2",
    fixed=dict(batch_size=1, steps=4, lr=1e-4, total_variation=0.1, trained="ImageNet")
    | STEADY,
    **ENDED,
)
