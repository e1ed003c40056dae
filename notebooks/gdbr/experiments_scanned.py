"""GDBR: Figs. 3 and 6 at every plausible choice of what its paper does not print; see `experiments_choices`.

LeNet and VGG-11 alone: of SVHN and CIFAR-100 too few images are here.
"""

import torch

from fedleak.experiments import Experiment, grid, spawned
from notebooks.gdbr.experiments_choices import (
    ANY,
    FIFTH,
    HALF,
    NAMED,
    SCALES,
    WIDTHS,
    batch_of,
    tail_of,
)
from notebooks.gdbr.experiments_clients import (
    LEVELS,
    SIZES,
    Attackers,
    below,
    body,
    kinds,
    pairs,
    pixels,
    protected,
    scores,
    sets,
    share,
)


def at_every_choice(ctx, seed, net, data):
    """At every scale of the pixels and every width: the two, the attackers, and what the chain sees of some images."""
    (victims, aux), model = sets(ctx, data), body(ctx, net, data, spawned(seed, "body"))
    for scale in SCALES:
        own = below(model, pixels(ctx, data, "aux", scale))
        shown = pixels(ctx, data, "victims", scale)
        for widths in WIDTHS[net]:
            made = tail_of(model, widths, victims.n_classes, spawned(seed, "tail"))
            attackers = Attackers(made.to(ctx.device), aux, own)
            real = dict(images=len(victims), aux=len(aux), side=victims.shape[1])
            row = {"scale": scale, "widths": widths, **real}
            yield row, attackers, lambda index, shown=shown: below(model, shown[index])


def by_batch_size(ctx, seed, net, data):
    """Every attack on one batch of every size and composition."""
    victims, _ = sets(ctx, data)
    drawn = [
        (
            size,
            composition,
            batch_of(victims, "subclassed", composition, size, spawned(seed, "batch")),
        )
        for size in SIZES
        for composition in (HALF, FIFTH, ANY)
    ]
    for choice, attackers, inputs in at_every_choice(ctx, seed, net, data):
        for size, composition, (index, labels, truth) in drawn:
            generator = torch.Generator().manual_seed(spawned(seed, "baselines"))
            how = inputs(index), labels, truth, ["shuffle (col)"], generator
            for row in attackers.read(*how):
                held = {"held": len(index.unique()), "batch_size": size}
                yield {**choice, "composition": composition, **held, **row}


def defended(ctx, seed, net, data):
    """GDBR on one update under pruning and noise of several strengths."""
    victims, _ = sets(ctx, data)
    index, labels, truth = batch_of(
        victims, "random", NAMED, 64, spawned(seed, "batch")
    )
    for choice, attackers, inputs in at_every_choice(ctx, seed, net, data):
        bridge = attackers.bridge
        update = share(attackers.tail, inputs(index), labels, [bridge.layer])
        for defence, levels in LEVELS.items():
            for level in levels:
                shared = protected(update, defence, level, spawned(seed, "noise"))
                counts = bridge.recover(shared, attackers.features, "paper").counts
                row = {"defence": defence, "level": level, "held": len(index.unique())}
                yield {**choice, **row, **scores(counts, truth)}


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
    paper=pairs(True, ["lenet", "vgg11"]),
    by=("scale", "widths", "defence", "level"),
    values=kinds("insacc", "clsacc"),
    fixed=SAME | dict(scheme="random", batch_size=64),
    tables="fig6",
    **SCANNED,
)
