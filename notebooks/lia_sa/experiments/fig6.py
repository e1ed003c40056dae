"""LIA-SA: Fig. 6, clients that defend themselves."""

import dataclasses

import torch

from fedleak.federated import fedsgd
from fedleak.federated.defences import PureNoise, Sparsification
from fedleak.models import head
from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.kinds import MEAN, NUMBER
from notebooks.lia_sa.clients import CONSTANTS, ONE, RECIPES, SPACED, batches, fishing
from notebooks.lia_sa.clients import foreseen, head_gradients, images, score


def honest_heads(ctx, net, data, recipe, batch_size, s):
    """What honest clients share of their heads, and the size below which a share of ALL their entries lies."""

    def make():
        pool = images(ctx, data)
        model = ctx.build(net, pool.shape, pool.n_classes, seed=s)
        last, shared, thresholds = head(model), [], []
        index, _ = batches(ctx, data, 5, batch_size, s)
        for fished, i in zip(fishing(model, recipe, 5, s), index):
            tensors = fedsgd(fished, pool.x[i], pool.y[i]).tensors
            flat = torch.cat([t.abs().flatten() for t in tensors.values()])
            sizes = flat.sort().values
            shared.append({"weight": tensors[last.weight], "bias": tensors[last.bias]})
            last_of = {v: max(1, round(v * len(sizes))) - 1 for v in (0.2, 0.4, 0.8)}
            thresholds.append({v: sizes[i].item() for v, i in last_of.items()})
        return shared, thresholds

    return ctx.once(("heads", net, data, recipe, batch_size, s), make)


def pruned_together(ctx, net, data, recipe, level, batch_size, s):
    """The sum of the clients' heads, each pruned with ONE threshold for all of its parameters."""
    total = {"weight": 0, "bias": 0}
    for tensors, sizes in zip(*honest_heads(ctx, net, data, recipe, batch_size, s)):
        for k, t in tensors.items():
            total[k] = total[k] + t * (t.abs() > sizes.get(level, -1.0))
    return total


LEVELS = {"noise": [0.0, 1e-4, 1e-3, 1e-2], "compression": [0.0, 0.2, 0.4, 0.8]}


def defences(recipes, data, batch_sizes):
    """Both defences, every level."""
    same = dict(data=data, recipe=recipes, batch_size=batch_sizes)
    same["net"] = ["resnet18", "vgg11_bn"]
    grids = (grid(defence=d, level=levels, **same) for d, levels in LEVELS.items())
    return [setting for settings in grids for setting in settings]


def together(data, batch_size, level, **more):
    """One threshold for all parameters."""
    same = dict(net="resnet18", data=data, recipe=["literal", "vector"], defence=ONE)
    return grid(**same, level=level, batch_size=batch_size, **more)


def defended(ctx, seed, net, data, recipe, defence, level, batch_size):
    """The attack when each client defends its head's gradients."""
    server, client = foreseen(ctx, net, data, recipe, 5, seed)
    _, truth = batches(ctx, data, 5, batch_size, seed)
    if defence == ONE:
        total = pruned_together(ctx, net, data, recipe, level, batch_size, seed)
    else:
        gradients = head_gradients(client, truth, batch_size)
        if level:
            noise, prune = PureNoise, Sparsification
            of = noise(level, seed) if defence == "noise" else prune(level, 5)
            gradients = of(gradients, torch.arange(5))
        total = {k: t.sum(0) for k, t in gradients.items()}
    size = len(images(ctx, data))
    yield {
        **score(server, total, truth, batch_size),
        "images": size,
        "held": size // 5,
        "gradients": "backward passes" if defence == ONE else "closed form",
        "constants": CONSTANTS.get(recipe, recipe),
    }


FIG6 = Experiment(
    "fig6",
    defended,
    quick=defences(["literal", "vector"], "photos", [16, 64])
    + together("photos", 16, 0.8, trials=1),
    paper=[
        s | dict(trials=30 if s["defence"] == "compression" else 20)
        for s in defences(RECIPES, "cifar10", [16, 64, 256, 1024])
    ]
    + together("cifar10", [16, 64], LEVELS["compression"], trials=30),
    trials=(2, 20),
    values=dict(target=MEAN, all=MEAN, b_err=NUMBER, floor=NUMBER),
    facts=("images", "held", "gradients", "constants"),
    rounding="b_err",
    fixed=dict(clients=5),
)
SAME = dict(net="resnet18", data="cifar10", recipe=list(SPACED))
FIG6_CONSTANTS = dataclasses.replace(
    FIG6,
    name="fig6_constants",
    quick=grid(
        **SAME | dict(data="photos"), defence="noise", level=1e-3, batch_size=16
    ),
    paper=grid(**SAME, defence="noise", level=LEVELS["noise"], batch_size=[16, 64])
    + grid(
        **SAME, defence="compression", level=LEVELS["compression"], batch_size=[16, 64]
    )
    + grid(**SAME, defence=ONE, level=[0.2, 0.4, 0.8], batch_size=[16, 64], trials=3),
    trials=(1, 20),
    tables=("fig6",),
)

NOISY = dict(net="resnet18", data="cifar10", defence="noise")
EVERY = dict(recipe=["literal", "log", *SPACED])
FIG6_TRIALS = dataclasses.replace(  # enough trials for a bound of 0.9
    FIG6_CONSTANTS,
    name="fig6_trials",
    paper=grid(**NOISY, **EVERY, level=1e-3, batch_size=[16, 64])
    + grid(**NOISY, **EVERY, level=1e-2, batch_size=16)
    + grid(**NOISY, recipe="vector", level=1e-3, batch_size=[16, 64])
    + grid(**NOISY, recipe="vector", level=1e-2, batch_size=16, trials=100),
    trials=(1, 40),
)
