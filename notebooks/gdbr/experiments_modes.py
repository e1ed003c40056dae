"""GDBR: Tables I and II and Fig. 6 in the modes of batch norm and dropout, and with noise of either scale."""

import dataclasses

from fedleak_book.experiments import Experiment, grid, spawned
from notebooks.gdbr.experiments_choices import NAMED, batch_of, in_modes, with_all
from notebooks.gdbr.clients import kinds, sets
from notebooks.gdbr.experiments_scanned import CLAIMED, under_defences
from notebooks.gdbr.modes import NONE, OFF, ONE_HALF, OWN, STORED, updates
from notebooks.gdbr.clients import NOISE_SCALES


def dropouts_of(net):
    """Values of dropout: AlexNet and VGG-11 have dropout between their fully connected layers."""
    return [OFF, ONE_HALF] if net in ("alexnet", "vgg11") else [OFF]


def by_mode(ctx, seed, net, data, batch_norm):
    """Tables I and II in these modes; `choices` has no batch norm without dropout."""
    dropouts = [ONE_HALF] if batch_norm == NONE else dropouts_of(net)
    yield from in_modes(ctx, seed, net, data, batch_norm, dropouts)


def defended_update(bridge, features, update, truth, seed):
    """Scores of one update under the claimed defences, with noise of both scales."""
    deviation = update.tensors[bridge.links[0].weight].std().item()
    pruning, noise = ({name: CLAIMED[name]} for name in ("pruning", "noise"))
    scales = zip([None, *NOISE_SCALES], [pruning, noise, noise], [1.0, 1.0, deviation])
    for noise_scale, strengths, unit in scales:
        how = strengths, bridge, features, update, truth, seed, unit
        for scored in under_defences(*how):
            yield {"noise_scale": noise_scale, **scored}


def defended_by_mode(ctx, seed, net, data, batch_norm):
    """Fig. 6 in these modes, on one random batch."""
    victims, _ = sets(ctx, data)
    drawn = {0: batch_of(victims, "random", NAMED, 64, spawned(seed, "batch"))}
    held = len(drawn[0][0].unique())
    scanned = with_all(ctx, seed, net, data, drawn, batch_norm)
    for row, bridge, images, batches in scanned:
        (x, labels, truth), features = batches[0], bridge.observe(images)
        how = bridge.model, bridge.layer, x, labels, dropouts_of(net)
        for dropout, update in updates(*how, spawned(seed, "dropout")):
            for scored in defended_update(bridge, features, update, truth, seed):
                yield {**row, "held": held, "dropout": dropout, **scored}


VGG, ALEXNET = dict(net="vgg11", data="cifar10"), dict(net="alexnet", data="svhn")
SAME = dict(init="positive", form="paper", batch_size=64, layer=1, redrawn="network")


def first(alexnet, vgg):
    """Settings with these numbers of trials: AlexNet with dropout, and VGG-11 with batch statistics."""
    settings = grid(**ALEXNET, batch_norm=NONE, trials=alexnet)
    return settings + grid(**VGG, batch_norm=OWN, trials=vgg)


RESNET = dict(net="resnet18-conv", batch_norm=OWN)
OTHERS = grid(**VGG, batch_norm=[NONE, STORED], trials=5)
QUICK = grid(net="alexnet", data="photos", batch_norm=NONE, trials=1)
CHOICES_MODES = Experiment(
    "choices_modes",
    by_mode,
    quick=QUICK,
    paper=first(8, 6),
    by=("dropout", "scale", "widths", "scheme", "composition", "auxiliary", "aux"),
    values=kinds("insacc", "clsacc"),
    facts=("images", "held", "side"),
    fixed=SAME,
    tables=("table1", "table2"),
)
FIG6_MODES = Experiment(
    "fig6_modes",
    defended_by_mode,
    quick=QUICK,
    paper=first(6, 4),
    by=("dropout", "scale", "widths", "defence", "level", "noise_scale"),
    values=kinds("insacc", "clsacc"),
    facts=("images", "held", "aux", "side"),
    fixed=SAME | dict(scheme="random"),
    tables="fig6",
)
CHOICES_NORMS = dataclasses.replace(CHOICES_MODES, name="choices_norms", paper=OTHERS)
FIG6_NORMS = dataclasses.replace(FIG6_MODES, name="fig6_norms", paper=OTHERS)
CHOICES_RESNET = dataclasses.replace(
    CHOICES_MODES,
    name="choices_resnet",
    paper=grid(**RESNET, data="cifar100", trials=15),
)
FIG6_RESNET = dataclasses.replace(
    FIG6_MODES, name="fig6_resnet", paper=grid(**RESNET, data="cifar100", trials=5)
)
