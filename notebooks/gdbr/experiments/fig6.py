"""GDBR: Fig. 6, pruning and noise."""

import dataclasses
import itertools

from fedleak.federated.defences import PureNoise, Sparsification, protect
from fedleak_book.experiments import Experiment, OneSeed, SeedByRole, grid
from notebooks.gdbr.clients import INITS, LEVELS, NAMED, NETS, NOISE_SCALES, NONE, OFF
from notebooks.gdbr.clients import TWO, Clients, dropouts_of, scores
from notebooks.gdbr.experiments import FACTS, OF_64, OTHERS, POSITIVE, QUICK
from notebooks.gdbr.experiments import RESNET_OWN, SCANNED, first, kinds, pairs

CLAIMED = {"pruning": (0.0, 0.5, 0.9), "noise": (0.0, 0.2)}


def strengths(batch_norm, deviation):
    """Defences and levels, the noise's scale and the strength: all that are drawn, or those of the claims on both scales."""
    if batch_norm is None:
        for defence, levels in LEVELS.items():
            yield from ((defence, level, None, level) for level in levels)
        return
    units = dict(zip(NOISE_SCALES, (1.0, deviation)))
    yield from (("pruning", level, None, level) for level in CLAIMED["pruning"])
    for noise_scale, level in itertools.product(NOISE_SCALES, CLAIMED["noise"]):
        yield "noise", level, noise_scale, level * units[noise_scale]


def protected(update, kind, strength, seed):
    """What is shared under a defence of this name and strength."""
    if not strength:
        return update
    is_noise = kind == "noise"
    defence = PureNoise(strength, seed) if is_noise else Sparsification(strength)
    return protect(update, defence)


def defended(
    ctx, seed, net, data, init, form=None, scale=None, batch_norm=None, draws=SeedByRole
):
    """GDBR on one update under pruning and noise of several strengths; `size` is that of a gradient's entry."""
    clients = Clients(ctx, net, data, draws(seed), batch_norm or NONE)
    batch, forms = clients.batch("random", NAMED, 64), ["paper", "whitened"]
    dropouts = dropouts_of(net) if batch_norm else [OFF]
    views = clients.views([batch], init, scale)
    for row, bridge, aux_inputs, chain_batches in views:
        features = bridge.observe(aux_inputs)
        for batch, dropout, update in clients.updates(bridge, chain_batches, dropouts):
            entries = update.gradient(bridge.links[0].weight)
            row |= {**batch.about, "dropout": dropout}
            row["size"] = float(entries.abs().mean())
            tried = strengths(batch_norm, entries.std().item())
            for kind, level, noise_scale, strength in tried:
                shared = protected(update, kind, strength, clients.seeds.of("noise"))
                of = {"defence": kind, "level": level, "noise_scale": noise_scale}
                for f in [form] if form else forms:
                    counts = bridge.recover(shared, features, f).counts
                    yield {**row, **of, "form": f, **scores(counts, batch.truth)}


FIG6 = Experiment(
    "fig6",
    defended,
    quick=pairs(False, TWO, init=INITS),
    paper=pairs(True, NETS[:4], init="positive") + pairs(True, TWO, init="default"),
    by=("defence", "level", "form"),
    values=kinds("insacc", "clsacc", "size"),
    facts=FACTS,
    fixed=dict(scheme="random", scale="raw") | OF_64,
    arguments=dict(draws=OneSeed),
)
FIG6_CHOICES = Experiment(
    "fig6_choices",
    defended,
    quick=pairs(False, ["lenet"]),
    paper=pairs(True, NETS[:3]) + pairs(True, NETS[3:4], large=5),
    by=("scale", "widths", "defence", "level"),
    fixed=POSITIVE | OF_64 | dict(scheme="random"),
    tables="fig6",
    **SCANNED,
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
    FIG6_MODES, name="fig6_resnet", paper=grid(**RESNET_OWN, data="cifar100", trials=5)
)
