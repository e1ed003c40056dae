"""AGIC: Table III and Fig. 8, updates of two epochs and of several local steps."""

import time

from fedleak.attacks.images import agic
from fedleak.federated import fedavg
from fedleak_book.experiments import Context, Experiment, grid
from fedleak_book.experiments.kinds import NUMBER
from notebooks.agic.clients import CIFAR10, CIFAR100, GIVEN, LEVEL, METHODS, QUALITY
from notebooks.agic.clients import SYNTHETIC, batches, inferred, inverted, network
from notebooks.agic.clients import qualities, quality, scheduled


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
    quick=grid(**SYNTHETIC, method=METHODS, iterations=15),
    paper=grid(**CIFAR100, method=METHODS, iterations=1000),
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
        **CIFAR10, samples=8, steps=[1, 2, 4, 8], method=METHODS[1:], iterations=10
    ),
    trials=(1, 3),
    values=dict(seconds=NUMBER),
    times="seconds",
    fixed=dict(lr=1e-4, schedule=LEVEL, hardware="cpu") | GIVEN,
)
