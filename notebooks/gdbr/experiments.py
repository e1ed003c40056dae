"""GDBR: the experiments. A trial is a function of its context, its seed and its setting.

The lecture's section on a figure shows the rows of the experiment with its name; the evidence page has all of them.
"""

import copy
import time

import numpy as np
import torch
from torch import nn

from fedleak.attacks.labels import gdbr
from fedleak.attacks.labels.counts import round_to_total
from fedleak_book.experiments import Experiment, grid, networks
from fedleak.federated import fedsgd
from fedleak.federated.restricted import last_layers
from fedleak_book.experiments.training import accuracy
from fedleak.models import chain, head_pass, positive_, without_biases
from notebooks.gdbr.experiments_choices import (
    CHOICES,
    CHOICES_MNIST,
    POSITIVE_LAYERS,
    REDUCED,
)
from notebooks.gdbr.experiments_modes import (
    CHOICES_MODES,
    CHOICES_NORMS,
    CHOICES_RESNET,
    FIG6_MODES,
    FIG6_NORMS,
    FIG6_RESNET,
    REDUCED_DROPOUT,
    REDUCED_MODES,
    REDUCED_RESNET,
)
from notebooks.gdbr.experiments_scanned import (
    FIG2_CHOICES,
    FIG3_CHOICES,
    FIG3_MNIST,
    FIG4_CHOICES,
    FIG5A_CHOICES,
    FIG6_CHOICES,
    REDUCED_DEFENDED,
    REDUCED_LAYERS,
)
from notebooks.gdbr.experiments_clients import (
    FACTS,
    FORMS,
    NETS,
    LEVELS,
    MODES,
    PAIRS,
    SCHEMES,
    SIZES,
    TRUE,
    Attackers,
    batch,
    chain_of,
    facts,
    kinds,
    known_inputs,
    pairs,
    protected,
    scatter,
    scores,
    sets,
    share,
    victims_inputs,
)


__all__ = [
    "CHOICES",
    "CHOICES_MNIST",
    "CHOICES_MODES",
    "CHOICES_NORMS",
    "CHOICES_RESNET",
    "FIG2_CHOICES",
    "FIG3_CHOICES",
    "FIG3_MNIST",
    "FIG4_CHOICES",
    "FIG5A_CHOICES",
    "FIG6_CHOICES",
    "FIG6_MODES",
    "FIG6_NORMS",
    "FIG6_RESNET",
    "POSITIVE_LAYERS",
    "REDUCED",
    "REDUCED_DEFENDED",
    "REDUCED_DROPOUT",
    "REDUCED_LAYERS",
    "REDUCED_MODES",
    "REDUCED_RESNET",
    "TRUE",
]


def features_of(ctx, seed, net, data, init, batch_size):
    """Features and probabilities of random victims' images, and of the auxiliary ones: (head passes, index)."""
    generator = torch.Generator().manual_seed(seed)
    tail = chain_of(ctx, net, data, init, seed)
    index = torch.randperm(len(sets(ctx, data)[0]), generator=generator)[:batch_size]
    mine = head_pass(tail, victims_inputs(ctx, net, data, seed, index))
    return (
        mine,
        head_pass(tail, known_inputs(ctx, net, data, seed, "aux")),
        index,
        generator,
    )


RESNET = dict(net="resnet18-conv", init=["positive", "default"])


def assumptions(ctx, seed, net, data, init, batch_size):
    """Skewness of the features, and how well other images predict their means."""
    mine, other, index, _ = features_of(ctx, seed, net, data, init, batch_size)
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


def histograms(ctx, seed, net, data, init, batch_size):
    """Histograms of five features and of five probabilities of one network."""
    mine, _, _, generator = features_of(ctx, seed, net, data, init, batch_size)
    x, p = mine.inputs.double().cpu(), mine.probabilities.double().cpu()
    alive = (x.std(0) > 0).nonzero().flatten()
    units = alive[torch.randperm(len(alive), generator=generator)[:5]]
    classes = torch.arange(0, p.shape[1], max(p.shape[1] // 5, 1))[:5]
    for kind, values, which in (("feature", x, units), ("probability", p, classes)):
        for k in which.tolist():
            counts, edges = np.histogram(values[:, k].numpy(), bins=24)
            for left, right, count in zip(edges, edges[1:], counts):
                yield dict(kind=kind, unit=k, left=left, right=right, count=count)


HISTOGRAMS = Experiment(
    "histograms",
    histograms,
    quick=grid(**RESNET, data="synthetic", batch_size=256),
    paper=grid(**RESNET, data="cifar100", batch_size=512),
    by=("kind", "unit", "left", "right"),
    values=kinds("count"),
)


MIXED = {
    "first step only": ("whitened", "paper"),
    "crossing only": ("paper", "whitened"),
}


def counts_by(form, bridge, update, features):
    """Counts by one of the forms, or by one of the two changes alone."""
    first, across = MIXED.get(form, (form, form))
    gradient, samples = update.gradient(bridge.links[0].weight), update.samples
    start = bridge.first_step(gradient, features, first)
    logits = bridge.cross(features, across).matrix @ start
    return round_to_total(samples * (features.probabilities - logits), samples)


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
            f: scores(counts_by(f, bridge, update, features), truth) for f in forms
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


def one_or_both(ctx, seed, net, data):
    """The paper's form, each change alone, and both, on one random batch."""
    how = "default", "raw", "aux", ["random"], ["paper", *MIXED, "whitened"]
    for row in recovered(ctx, seed, net, data, *how):
        yield {name: row[name] for name in ("form", "insacc", "gain")}


TWO_CHANGES = Experiment(
    "two_changes",
    one_or_both,
    quick=pairs(False, ["resnet18-conv"]),
    paper=pairs(True, NETS[1:]),
    by="form",
    values=kinds("insacc", "gain"),
    fixed=dict(init="default", scheme="random", scale="raw") | PENULTIMATE,
)


TWO = ["lenet", "resnet18-conv"]


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


ROUNDS = (0, 20, 100, 300, 1000)


def with_head_of(model, other):
    """The model with the other's last layer: what the server has under FedVF."""
    mixed, last = copy.deepcopy(model), last_layers(model)
    head_weights = {k: v for k, v in other.state_dict().items() if k in last}
    mixed.load_state_dict(head_weights, strict=False)
    return mixed


def attacked(ctx, model, start, data, generator):
    """All forms on four random and four imbalanced batches, and the whitened one with the initial last layer."""
    victims, aux = sets(ctx, data)
    bridges = {form: gdbr.Bridge(model) for form in FORMS}
    bridges["whitened, stale head"] = gdbr.Bridge(with_head_of(model, start))
    features = {form: bridge.observe(aux) for form, bridge in bridges.items()}
    for scheme in ("random", "imbalanced") * 4:
        index, labels, truth = batch(ctx, data, scheme, 64, generator)
        update = fedsgd(model, victims.x[index], labels).without(*last_layers(model))
        for form, bridge in bridges.items():
            counts_found = bridge.recover(
                update, features[form], form.split(",")[0]
            ).counts
            yield {"scheme": scheme, "form": form, **scores(counts_found, truth)}


def while_training(ctx, seed, net, data, most):
    """All forms on a model that FedSGD trains, after each number of rounds up to `most`."""
    victims, aux = sets(ctx, data)
    shape, n = victims.shape, victims.n_classes
    model = without_biases(ctx.build(net, shape, n, seed=seed))
    generator = torch.Generator().manual_seed(seed)
    start = copy.deepcopy(model)
    for done in range(most + 1):
        if done in ROUNDS:
            reached = accuracy(model, aux)
            for row in attacked(ctx, model, start, data, generator):
                yield {"rounds": done, "accuracy": reached, **row}
        networks.train(model, victims, 1, generator, lr=0.05, momentum=0)


TRAINED = Experiment(
    "trained",
    while_training,
    quick=grid(net="lenet", data="mnist5k", most=100),
    paper=grid(net="lenet", data=["mnist", "cifar10"], most=1000),
    trials=(2, 5),
    by=("scheme", "rounds", "form"),
    values=kinds("insacc", "clsacc", "accuracy"),
    fixed=dict(init="default", lr=0.05, batch_size=64, layer=1),
)


HEADS = [
    dict(n_classes=classes, width=width)
    for classes, width in [(10, 84), (10, 4096), (100, 512), (1000, 2048)]
]
TIMES = ("first", "further")


def speed(ctx, seed, n_classes, width):
    """Processor seconds of one recovery, the bridge new or already factorised; the auxiliary pass aside."""
    generator = torch.Generator().manual_seed(seed)
    layers = nn.Linear(width, width), nn.ReLU(), nn.Linear(width, n_classes)
    tail = positive_(nn.Sequential(*layers), generator)
    x = torch.rand(64, width, generator=generator)
    y = torch.randint(n_classes, (64,), generator=generator)
    features, update = gdbr.Bridge(tail).observe(x), share(tail, x, y, ["0"])
    began = time.process_time()
    bridge = gdbr.Bridge(tail)
    bridge.recover(update, features)
    first = time.process_time() - began
    bridge.recover(update, features)
    yield {"first": first, "further": time.process_time() - began - first}


SPEED = Experiment(
    "speed",
    speed,
    quick=HEADS[::3],
    paper=HEADS,
    trials=5,
    values=kinds(*TIMES),
    times=TIMES,
)
