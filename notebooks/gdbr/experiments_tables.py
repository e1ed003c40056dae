"""GDBR: Tables I and II, counts from auxiliary images or dummies, and what dummies lack."""

import torch

from fedleak.attacks.labels import gdbr
from fedleak_book.experiments import Experiment
from notebooks.gdbr.clients import (
    FACTS,
    FORMS,
    NETS,
    PAIRS,
    SCHEMES,
    batch,
    chain_of,
    facts,
    kinds,
    known_inputs,
    pairs,
    scores,
    sets,
    share,
    victims_inputs,
)


def recovered(ctx, seed, net, data, init, scale, auxiliary, schemes, forms):
    """GDBR from the penultimate layer on one batch a scheme; gain: over the paper's form on the same batch."""
    tail = chain_of(ctx, net, data, init, seed)
    bridge, generator = gdbr.Bridge(tail), torch.Generator().manual_seed(seed)
    features = bridge.observe(known_inputs(ctx, net, data, seed, auxiliary, scale))
    for scheme in schemes:
        index, labels, truth = batch(ctx, data, scheme, 64, generator)
        x = victims_inputs(ctx, net, data, seed, index, scale)
        update = share(tail, x, labels, [bridge.layer])
        scored = {
            form: scores(bridge.recover(update, features, form).counts, truth)
            for form in forms
        }
        for form, row in scored.items():
            gain = row["insacc"] - scored["paper"]["insacc"]
            row = {"scheme": scheme, "form": form, **row, "gain": gain}
            yield {**row, **facts(ctx, data, index)}


PENULTIMATE = dict(batch_size=64, layer=1, redrawn="network")


COMPOSITION = {
    "subclassed": "a random half of the classes",
    "imbalanced": "half of one class, a quarter of another",
}


def initialisations(full):
    """Networks, all of them in full, with the paper's weights and with PyTorch's own."""
    nets = list(PAIRS) if full else ["lenet", "mlp6", "resnet18-conv"]
    return pairs(full, nets, large=20, init=["positive", "default"])


def compositions(ctx, seed, net, data, init):
    """All compositions with positive weights, random batches with default ones."""
    schemes = list(SCHEMES)[: None if init == "positive" else 1]
    for row in recovered(ctx, seed, net, data, init, "raw", "aux", schemes, FORMS):
        yield {"composition": COMPOSITION.get(row["scheme"], "as its name says"), **row}


TABLE1 = Experiment(
    "table1",
    compositions,
    quick=initialisations(False),
    paper=initialisations(True),
    by=("scheme", "form"),
    values=kinds("insacc", "clsacc", "gain"),
    facts=(*FACTS, "composition"),
    fixed=dict(scale="raw", auxiliary="aux") | PENULTIMATE,
)


BOTH = dict(scale=["normalised", "raw"], auxiliary=["aux", "dummy"], scheme="random")
REST = dict(scale=["normalised", "raw"], auxiliary="aux", scheme=list(SCHEMES)[1:])


def auxiliary_or_dummy(ctx, seed, net, data, scale, auxiliary, scheme):
    """The paper's form on one batch, told by auxiliary or by dummy images."""
    how = "positive", scale, auxiliary, [scheme], ["paper"]
    for row in recovered(ctx, seed, net, data, *how):
        yield {name: row[name] for name in ("insacc", "clsacc", *FACTS)}


TABLE2 = Experiment(
    "table2",
    auxiliary_or_dummy,
    quick=pairs(False, ["lenet"], **BOTH),
    paper=pairs(True, **BOTH) + pairs(True, ["lenet"], **REST),
    values=kinds("insacc", "clsacc"),
    facts=FACTS,
    fixed=dict(init="positive", form="paper") | PENULTIMATE,
)


def against_images(ctx, seed, net, data, scale):
    """What the chain sees of dummies against auxiliary images: features and softmax."""
    bridge = gdbr.Bridge(chain_of(ctx, net, data, "positive", seed))
    other, dummy = (
        bridge.observe(known_inputs(ctx, net, data, seed, which, scale))
        for which in ("aux", "dummy")
    )
    moved = (dummy.probabilities - other.probabilities).abs().sum()
    ratio = dummy.outputs.mean() / other.outputs.mean()
    aux = sets(ctx, data)[1]
    size = {"aux": len(aux), "side": aux.shape[1]}
    yield {"ratio": float(ratio), "elsewhere": float(moved) / 2, **size}


DUMMIES = Experiment(
    "dummies",
    against_images,
    quick=pairs(False, NETS[:2], scale=["raw", "normalised"]),
    paper=pairs(True, scale=["raw", "normalised"]),
    values=kinds("ratio", "elsewhere"),
    facts=("aux", "side"),
    fixed=dict(init="positive", redrawn="network"),
)
