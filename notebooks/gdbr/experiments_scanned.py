"""GDBR: Figs. 3 and 6 at every plausible choice of what its paper does not print; see `experiments_choices`."""

import itertools

import torch

from fedleak.experiments import Experiment, grid, spawned
from notebooks.gdbr.experiments_choices import (
    ANY,
    FEW,
    FIFTH,
    HALF,
    NAMED,
    at_levels,
    batch_of,
    read,
    with_all,
)
from notebooks.gdbr.experiments_clients import (
    LEVELS,
    NETS,
    SIZES,
    Attackers,
    kinds,
    pairs,
    protected,
    scores,
    sets,
    share,
)


def by_batch_size(ctx, seed, net, data):
    """Every attack on one batch of every size and composition."""
    victims, aux = sets(ctx, data)
    drawn = {
        (size, c): batch_of(victims, "subclassed", c, size, spawned(seed, "batch"))
        for size, c in itertools.product(SIZES, (HALF, FIFTH, ANY))
    }
    for row, bridge, own, batches in with_all(ctx, seed, net, data, drawn):
        attackers = Attackers(bridge.model, aux, own)
        for (size, composition), batch in batches.items():
            generator = torch.Generator().manual_seed(spawned(seed, "baselines"))
            held = len(drawn[size, composition][0].unique())
            of = {"composition": composition, "held": held, "batch_size": size}
            for found in attackers.read(*batch, ["shuffle (col)"], generator):
                yield {**row, **of, **found}


def under_defences(strengths, bridge, features, x, labels, truth, seed):
    """GDBR on one update under pruning and noise of several strengths."""
    update = share(bridge.model, x, labels, [bridge.layer])
    for defence, levels in strengths.items():
        for level in levels:
            shared = protected(update, defence, level, spawned(seed, "noise"))
            counts = bridge.recover(shared, features, "paper").counts
            yield {"defence": defence, "level": level, **scores(counts, truth)}


def defended(ctx, seed, net, data):
    """The same at every choice."""
    victims, _ = sets(ctx, data)
    drawn = {0: batch_of(victims, "random", NAMED, 64, spawned(seed, "batch"))}
    held = {"held": len(drawn[0][0].unique())}
    for row, bridge, own, batches in with_all(ctx, seed, net, data, drawn):
        how = LEVELS, bridge, bridge.observe(own), *batches[0], seed
        for found in under_defences(*how):
            yield {**row, **held, **found}


CLAIMED = {"pruning": (0.0, 0.5, 0.9), "noise": (0.0, 0.2)}


def reduced_defended(ctx, seed, net, data):
    """Every composition, and random batches under defences, with all images and with as many as there are elsewhere."""
    few = FEW["cifar100" if "/" in data else "svhn"]
    for row, bridge, features, batches in at_levels(ctx, seed, net, data, [few]):
        for (scheme, composition), batch in batches.items():
            of = {**row, "scheme": scheme, "composition": composition}
            plain = {"defence": None, "strength": None}
            yield {**of, **plain, **read(bridge, features, *batch)}
            if scheme == "random":
                how = CLAIMED, bridge, features, *batch, seed
                for found in under_defences(*how):
                    yield {**of, "strength": found.pop("level"), **found}


SCANNED = dict(trials=(1, 20), facts=("images", "held", "aux", "side"))
SAME = dict(init="positive", form="paper", layer=1, redrawn="network")
FIG3_CHOICES = Experiment(
    "fig3_choices",
    by_batch_size,
    quick=pairs(False, ["lenet"]),
    paper=grid(net="lenet", data="mnist", trials=20)
    + grid(net="vgg11", data="cifar10", trials=3),
    by=("scale", "widths", "composition", "batch_size", "attack", "mode"),
    values=kinds("insacc", "clsacc"),
    fixed=SAME | dict(scheme="subclassed"),
    tables="fig3",
    **SCANNED,
)
FIG6_CHOICES = Experiment(
    "fig6_choices",
    defended,
    quick=pairs(False, ["lenet"]),
    paper=pairs(True, NETS[:3]) + pairs(True, NETS[3:4], large=5),
    by=("scale", "widths", "defence", "level"),
    values=kinds("insacc", "clsacc"),
    fixed=SAME | dict(scheme="random", batch_size=64),
    tables="fig6",
    **SCANNED,
)
REDUCED_DEFENDED = Experiment(
    "reduced_defended",
    reduced_defended,
    quick=grid(net="lenet", data="mnist5k", trials=1),
    paper=grid(net="alexnet", data=["mnist", "cifar10"], trials=6)
    + grid(net="resnet18-conv", data=["mnist/100", "cifar10-jpeg/100"], trials=6),
    by=("level", "scale", "widths", "scheme", "composition", "defence", "strength"),
    values=kinds("insacc", "clsacc"),
    fixed=dict(init="positive", form="paper", batch_size=64, layer=1, auxiliary="aux"),
)
