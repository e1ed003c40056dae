"""GDBR: the figures at every plausible choice of what the paper does not print; see `experiments_choices_tables`."""

import dataclasses
import itertools

import torch
from fedleak.attacks.labels import gdbr
from fedleak.models import chain, head_pass
from fedleak_book.experiments import Experiment, grid, spawned
from notebooks.gdbr.baselines import Attackers
from notebooks.gdbr.clients import ANY, FIFTH, HALF, INITS, LEVELS, MODES, NETS, NONE
from notebooks.gdbr.clients import NOISE_SCALES, OFF, SCALES, SIZES, WIDTHS, below, body
from notebooks.gdbr.clients import chain_of, kinds, pairs, protected, scaled, scatter
from notebooks.gdbr.clients import scores, sets, share
from notebooks.gdbr.experiments_choices_tables import FEW, NAMED, OTHERS, QUICK, RESNET
from notebooks.gdbr.experiments_choices_tables import at_every_choice, batch_of
from notebooks.gdbr.experiments_choices_tables import dropouts_of, first, parts_of
from notebooks.gdbr.experiments_choices_tables import tail_of, updates, with_all


def assumptions(ctx, seed, net, data, batch_size):
    """What Fig. 2 shows, at every choice; means are predicted from images that no batch norm was frozen at."""
    (victims, aux), model = sets(ctx, data), body(ctx, net, data, spawned(seed, "body"))
    generator = torch.Generator().manual_seed(spawned(seed, "batch"))
    index = torch.randperm(len(victims), generator=generator)[:batch_size]
    real = {"images": len(victims), "held": len(index), "side": victims.shape[1]}
    for scale in SCALES:
        mine, auxiliary = (
            below(model, scaled(ctx, data, x, scale))
            for x in (victims.x[index], aux.x[250:500])
        )
        for widths, init in itertools.product(WIDTHS[net], INITS):
            how = widths, victims.n_classes, spawned(seed, "tail"), init
            tail = tail_of(model, *how).to(ctx.device)
            of = {"scale": scale, "widths": widths, "init": init, **real}
            yield {**of, **scatter(head_pass(tail, mine), head_pass(tail, auxiliary))}


def by_batch_size(ctx, seed, net, data):
    """Every attack on one batch of every size and composition."""
    victims, aux = sets(ctx, data)
    drawn = {
        (size, c): batch_of(victims, "subclassed", c, size, spawned(seed, "batch"))
        for size, c in itertools.product(SIZES, (HALF, FIFTH, ANY))
    }
    for row, bridge, images, batches in with_all(ctx, seed, net, data, drawn):
        attackers = Attackers(bridge.model, aux, images)
        for (size, composition), batch in batches.items():
            generator = torch.Generator().manual_seed(spawned(seed, "baselines"))
            n_held = len(drawn[size, composition][0].unique())
            of = {"composition": composition, "held": n_held, "batch_size": size}
            for scored in attackers.read(*batch, ["shuffle (col)"], generator):
                yield {**row, **of, **scored}


def substitutes(ctx, seed, net, data):
    """Every attack on one random batch, the baselines under every substitute, with all images and with as few as SVHN has."""
    (victims, aux), levels = sets(ctx, data), {}
    few = [] if data == "svhn" else [FEW["svhn"]]
    for level, (mine, chosen) in parts_of(ctx, seed, data, few).items():
        how = "random", NAMED, 64, spawned(seed, f"batch of {level}")
        levels[level] = mine, chosen, {0: batch_of(mine, *how)}
    for row, bridge, images, batches in at_every_choice(ctx, seed, net, data, levels):
        mine, chosen, drawn = levels[row["level"]]
        if net == "mlp6":
            row["widths"] = None
        row |= {"images": len(mine), "aux": len(images), "side": victims.shape[1]}
        row["held"] = len(drawn[0][0].unique())
        generator = torch.Generator().manual_seed(spawned(seed, "baselines"))
        chosen_images = aux.take(torch.arange(len(aux))[chosen])
        attackers = Attackers(bridge.model, chosen_images, images)
        try:
            read_out = list(attackers.read(*batches[0], MODES, generator))
        except ValueError:  # positive weights on negative pixels: all units are off
            who = [("GDBR", "–"), *itertools.product(("ZLG", "LLG+"), MODES)]
            read_out = [
                {"attack": attack, "mode": mode, "insacc": 0.0, "clsacc": 0.0}
                for attack, mode in who
            ]
        yield from ({**row, **scored} for scored in read_out)


def under_defences(strengths, bridge, features, update, truth, seed, unit=1.0):
    """GDBR on one update under pruning and noise of several strengths; that of noise is in a `unit`."""
    for defence, levels in strengths.items():
        for level in levels:
            strength = level * unit if defence == "noise" else level
            shared = protected(update, defence, strength, spawned(seed, "noise"))
            counts = bridge.recover(shared, features, "paper").counts
            yield {"defence": defence, "level": level, **scores(counts, truth)}


def defended(ctx, seed, net, data, batch_norm=None):
    """GDBR on one random batch under every defence; noise of both scales where a mode of batch norm is named."""
    victims, _ = sets(ctx, data)
    drawn = {0: batch_of(victims, "random", NAMED, 64, spawned(seed, "batch"))}
    held = {"held": len(drawn[0][0].unique())}
    dropouts = dropouts_of(net) if batch_norm else [OFF]
    scanned = with_all(ctx, seed, net, data, drawn, batch_norm or NONE)
    for row, bridge, images, batches in scanned:
        (x, labels, truth), features = batches[0], bridge.observe(images)
        how = bridge.model, bridge.layer, x, labels, dropouts
        for dropout, update in updates(*how, spawned(seed, "dropout")):
            of = bridge, features, update, truth, seed
            if not batch_norm:
                for scored in under_defences(LEVELS, *of):
                    yield {**row, **held, **scored}
                continue
            deviation = update.tensors[bridge.links[0].weight].std().item()
            pruning, noise = ({name: CLAIMED[name]} for name in ("pruning", "noise"))
            units = [1.0, 1.0, deviation]
            scales = zip([None, *NOISE_SCALES], [pruning, noise, noise], units)
            for noise_scale, strengths, unit in scales:
                more = {"noise_scale": noise_scale, "dropout": dropout}
                for scored in under_defences(strengths, *of, unit):
                    yield {**row, **held, **more, **scored}


def layers(ctx, seed, data, init):
    """MLP-6 from every layer at every scale, on one random batch."""
    (victims, aux), tail = sets(ctx, data), chain_of(ctx, "mlp6", data, init, seed)
    model, names = body(ctx, "mlp6", data, seed), [k.name for k in chain(tail).links]
    how = "random", NAMED, 64, spawned(seed, "batch of whole")
    index, labels, truth = batch_of(victims, *how)
    sizes = {"images": len(victims), "aux": len(aux), "held": len(index.unique())}
    for scale in SCALES:
        images, x = (
            below(model, scaled(ctx, data, pixels, scale))
            for pixels in (aux.x, victims.x[index])
        )
        update = share(tail, x, labels, names[:-1])
        for layer, name in enumerate(names[-2::-1], 1):
            bridge = gdbr.Bridge(tail, name)
            try:
                counts = bridge.recover(update, bridge.observe(images), "paper").counts
                scored = scores(counts, truth)
            except ValueError:  # positive weights on negative pixels: all units are off
                scored = {"insacc": 0.0, "clsacc": 0.0}
            side = victims.shape[1]
            yield {"scale": scale, "layer": layer, **sizes, "side": side, **scored}


CLAIMED = {"pruning": (0.0, 0.5, 0.9), "noise": (0.0, 0.2)}


SCANNED = dict(trials=(1, 20), facts=("images", "held", "aux", "side"))
SAME = dict(init="positive", form="paper", layer=1, redrawn="network")
FIG2_CHOICES = Experiment(
    "fig2_choices",
    assumptions,
    quick=grid(net="resnet18-conv", data="synthetic", batch_size=64),
    paper=grid(net="resnet18-conv", data="cifar100", batch_size=512),
    trials=(1, 5),
    by=("scale", "widths", "init"),
    values=kinds("skew", "off", "spread", "top", "skew_p", "dead"),
    facts=("images", "held", "side"),
    fixed=dict(rounds=0, redrawn="network"),
    tables="fig2",
)
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
FIG3_MNIST = dataclasses.replace(  # enough trials for a bound of 0.85
    FIG3_CHOICES,
    name="fig3_mnist",
    paper=grid(net="lenet", data="mnist"),
    trials=(1, 24),
)
FIG5A_CHOICES = Experiment(
    "fig5a_choices",
    substitutes,
    quick=grid(net="mlp6", data="mnist5k"),
    paper=grid(net=["alexnet", "mlp6"], data=["svhn", "mnist", "cifar10"], trials=6),
    by=("level", "scale", "widths", "attack", "mode"),
    values=kinds("insacc", "clsacc"),
    fixed=SAME | dict(scheme="random", batch_size=64),
    tables="fig5a",
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
LAYERED = dict(values=kinds("insacc", "clsacc"), trials=(1, 10))
MLP = dict(net="mlp6", form="paper", scheme="random", batch_size=64)
FIG4_CHOICES = Experiment(
    "fig4_choices",
    layers,
    quick=grid(data="mnist5k", init="positive"),
    paper=grid(data="svhn", init=INITS) + grid(data="cifar10", init="positive"),
    by=("scale", "layer"),
    facts=SCANNED["facts"],
    fixed=MLP | dict(redrawn="network"),
    tables=("fig4", "fig5b"),
    **LAYERED,
)


FIG6_MODES = dataclasses.replace(
    FIG6_CHOICES,
    name="fig6_modes",
    quick=QUICK,
    paper=first(6, 4),
    by=("dropout", *FIG6_CHOICES.by, "noise_scale"),
    trials=1,
)
FIG6_NORMS = dataclasses.replace(FIG6_MODES, name="fig6_norms", paper=OTHERS)
FIG6_RESNET = dataclasses.replace(
    FIG6_MODES, name="fig6_resnet", paper=grid(**RESNET, data="cifar100", trials=5)
)
