"""GDBR: the experiments. A trial is a function of its context, its seed and its setting.

The lecture's section on a figure shows the rows of the experiment with its name; the evidence page has all of them.
"""

import dataclasses

import torch
from fedleak.attacks.labels import gdbr
from fedleak.models import chain, head_pass
from fedleak_book.experiments import Experiment, grid
from notebooks.gdbr.baselines import Attackers
from notebooks.gdbr.clients import FACTS, FORMS, INITS, LEVELS, MODES, NETS, PAIRS
from notebooks.gdbr.clients import SCHEMES, SIZES, TWO, batch, chain_of, facts, kinds
from notebooks.gdbr.clients import known_inputs, pairs, protected, scatter, scores, sets
from notebooks.gdbr.clients import share, victims_inputs


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
    settings = pairs(full, nets, large=20, init=INITS)
    deep = {"net": "resnet50-conv-imagenet", "init": "positive"}
    return [s | {"trials": 24} if s.items() >= deep.items() else s for s in settings]


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


RESNET = dict(net="resnet18-conv", init=INITS)


def assumptions(ctx, seed, net, data, init, batch_size):
    """Skewness of the features, and how well other images predict their means."""
    generator = torch.Generator().manual_seed(seed)
    tail = chain_of(ctx, net, data, init, seed)
    index = torch.randperm(len(sets(ctx, data)[0]), generator=generator)[:batch_size]
    mine = head_pass(tail, victims_inputs(ctx, net, data, seed, index))
    other = head_pass(tail, known_inputs(ctx, net, data, seed, "aux"))
    yield {**scatter(mine, other), **facts(ctx, data, index)}


FIG2 = Experiment(
    "fig2",
    assumptions,
    quick=grid(**RESNET, data="synthetic", batch_size=256),
    paper=grid(**RESNET, data="cifar100", batch_size=512),
    trials=(2, 10),
    values=kinds("skew", "off", "spread", "top", "skew_p", "dead"),
    facts=FACTS,
    fixed=dict(rounds=0, scale="raw", redrawn="network"),
)


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
    paper=pairs(True, NETS[:4], large=30),
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
    quick=grid(data=["mnist5k", "photos"], init=INITS),
    paper=grid(data=["mnist", "cifar10"], init=INITS)
    + grid(data="svhn", init=INITS, trials=40),
    fixed=MLP | dict(scale="raw"),
    tables=("fig4", "fig5b"),
    **LAYERS,
)

FIG4_NORMALISED = dataclasses.replace(
    FIG4,
    name="fig4_normalised",
    quick=grid(data="photos", init="positive"),
    paper=grid(data="cifar10", init="positive"),
    fixed=MLP | dict(scale="normalised"),
    tables=("fig4",),
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
    quick=pairs(False, TWO, init=INITS),
    paper=pairs(True, NETS[:4], init="positive") + pairs(True, TWO, init="default"),
    by=("defence", "level", "form"),
    values=kinds("insacc", "clsacc", "size"),
    facts=FACTS,
    fixed=dict(scheme="random", scale="raw") | PENULTIMATE,
)
