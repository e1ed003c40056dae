"""GDBR: Figs. 3 to 6, batch sizes, substitutes, layers and defences."""

import torch

from fedleak.attacks.labels import gdbr
from fedleak_book.experiments import Experiment, grid
from fedleak.models import chain
from notebooks.gdbr.clients import (
    FACTS,
    FORMS,
    NETS,
    LEVELS,
    MODES,
    SIZES,
    Attackers,
    batch,
    chain_of,
    facts,
    kinds,
    known_inputs,
    pairs,
    protected,
    scores,
    sets,
    share,
    victims_inputs,
)
from notebooks.gdbr.experiments_tables import COMPOSITION, PENULTIMATE
from notebooks.gdbr.clients import TWO


def against_baselines(ctx, seed, net, data, scheme, sizes, modes):
    """GDBR from the penultimate layer, ZLG and LLG+ from simulated gradients of the last one."""
    tail, aux = chain_of(ctx, net, data, "positive", seed), sets(ctx, data)[1]
    attackers = Attackers(tail, aux, known_inputs(ctx, net, data, seed, "aux"))
    for size in sizes:
        generator = torch.Generator().manual_seed(seed)
        index, labels, truth = batch(ctx, data, scheme, size, generator)
        x = victims_inputs(ctx, net, data, seed, index)
        for row in attackers.read(x, labels, truth, modes, generator):
            yield {"batch_size": size, **row, **facts(ctx, data, index)}


BASELINES = dict(
    by=("batch_size", "attack", "mode"), values=kinds("insacc", "clsacc"), facts=FACTS
)


BELOW = dict(init="positive", form="paper", scale="raw", layer=1, redrawn="network")


def by_batch_size(ctx, seed, net, data):
    """Every attack on one batch of every size."""
    shuffled = ["shuffle (col)"]
    yield from against_baselines(ctx, seed, net, data, "subclassed", SIZES, shuffled)


FIG3 = Experiment(
    "fig3",
    by_batch_size,
    quick=pairs(False, ["lenet", "resnet18-conv"]),
    paper=pairs(True, NETS[:4]),
    fixed=BELOW | dict(scheme="subclassed", composition=COMPOSITION["subclassed"]),
    **BASELINES,
)


def substitutes(ctx, seed, net, data):
    """The baselines under every substitute of the last layer's gradient."""
    yield from against_baselines(ctx, seed, net, data, "random", [64], MODES)


FIG5A = Experiment(
    "fig5a",
    substitutes,
    quick=pairs(False, ["alexnet"]),
    paper=pairs(True, ["alexnet"]),
    fixed=BELOW | dict(scheme="random"),
    **BASELINES,
)


LAYERS = dict(
    trials=(2, 20),
    by=("layer", "form"),
    values=kinds("insacc", "clsacc", "gain", "deficient"),
    facts=FACTS,
)
MLP = dict(net="mlp6", scheme="random", batch_size=64, redrawn="network")


def by_layer(ctx, seed, data, init, scale):
    """MLP-6 from every layer, in all forms, for one random batch: #1 is the layer below the last."""
    generator = torch.Generator().manual_seed(seed)
    tail = chain_of(ctx, "mlp6", data, init, seed)
    index, labels, truth = batch(ctx, data, "random", 64, generator)
    names = [link.name for link in chain(tail).links[:-1]][::-1]
    x = victims_inputs(ctx, "mlp6", data, seed, index, scale)
    aux = known_inputs(ctx, "mlp6", data, seed, "aux", scale)
    update = share(tail, x, labels, names)
    real = facts(ctx, data, index)
    for layer, name in enumerate(names, 1):
        bridge = gdbr.Bridge(tail, name)
        features, base = bridge.observe(aux), None
        for form in FORMS:
            result = bridge.recover(update, features, form)
            row = {"layer": layer, "form": form, **scores(result.counts, truth)}
            base = row["insacc"] if base is None else base
            deficient = len(result.facts["deficient"])
            yield {**row, "gain": row["insacc"] - base, "deficient": deficient, **real}


FIG4 = Experiment(
    "fig4",
    by_layer,
    quick=grid(data=["mnist5k", "photos"], init=["positive", "default"]),
    paper=grid(data=["mnist", "svhn", "cifar10"], init=["positive", "default"]),
    fixed=MLP | dict(scale="raw"),
    tables=("fig4", "fig5b"),
    **LAYERS,
)

FIG4_NORMALISED = Experiment(
    "fig4_normalised",
    by_layer,
    quick=grid(data="photos", init="positive"),
    paper=grid(data="cifar10", init="positive"),
    fixed=MLP | dict(scale="normalised"),
    tables="fig4",
    **LAYERS,
)


def defended(ctx, seed, net, data, init):
    """GDBR on one update under pruning and noise of several strengths; `size` is that of a gradient's entry."""
    generator = torch.Generator().manual_seed(seed)
    tail = chain_of(ctx, net, data, init, seed)
    bridge = gdbr.Bridge(tail)
    features = bridge.observe(known_inputs(ctx, net, data, seed, "aux"))
    index, labels, truth = batch(ctx, data, "random", 64, generator)
    x = victims_inputs(ctx, net, data, seed, index)
    update, real = share(tail, x, labels, [bridge.layer]), facts(ctx, data, index)
    size = float(update.gradient(bridge.links[0].weight).abs().mean())
    for defence, levels in LEVELS.items():
        for level in levels:
            shared = protected(update, defence, level, seed)
            for form in ("paper", "whitened"):
                counts = bridge.recover(shared, features, form).counts
                row = {"defence": defence, "level": level, "form": form, "size": size}
                yield {**row, **scores(counts, truth), **real}


FIG6 = Experiment(
    "fig6",
    defended,
    quick=pairs(False, TWO, init=["positive", "default"]),
    paper=pairs(True, NETS[:4], init="positive") + pairs(True, TWO, init="default"),
    by=("defence", "level", "form"),
    values=kinds("insacc", "clsacc", "size"),
    facts=FACTS,
    fixed=dict(scheme="random", scale="raw") | PENULTIMATE,
)
