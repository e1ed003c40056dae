"""GDBR: Tables I and II, and what the network makes of dummies."""

import dataclasses

import pandas as pd
import torch

from fedleak import WithheldParameter, metrics
from fedleak.attacks.labels import gdbr, ilrg, llg, zlg
from fedleak.attacks.labels.counts import round_to_total
from fedleak.data import compose
from fedleak.federated import fedsgd
from fedleak.federated.aggregation import FixedPoint
from fedleak.federated.restricted import last_layers, partially_encrypted
from fedleak_book.experiments import Experiment, OneSeed, SeedByRole, grid
from notebooks.gdbr.clients import BATCHES, DIGITS, FORMS, HALF, INITS, NAMED, NETS
from notebooks.gdbr.clients import NONE, OFF, ONE_HALF, PAIRS, QUARTER, SCHEMES, Clients
from notebooks.gdbr.clients import dropouts_of, scores
from notebooks.gdbr.experiments import FACTS, OF_64, OF_BATCH, OTHERS, POSITIVE
from notebooks.gdbr.experiments import QUICK, RESNET_OWN, first, kinds, pairs


def observed(clients, bridge, aux_inputs, auxiliary):
    """What the bridge sees of the auxiliary images, or of as many dummies; with neither named, also of two numbers of dummies."""
    inputs, n_aux = {}, len(clients.aux)
    if auxiliary != "dummy":
        inputs["aux", n_aux] = aux_inputs
    for n_dummies in {None: (1000, 100), "dummy": (n_aux,)}.get(auxiliary, ()):
        inputs["dummy", n_dummies] = clients.dummies(n_dummies)
    return {name: bridge.observe(x) for name, x in inputs.items()}


def dropouts_beside(net, batch_norm):
    """Values of dropout with a mode of batch norm; `choices`, without one, has no dropout."""
    return {None: [OFF], NONE: [ONE_HALF]}.get(batch_norm) or dropouts_of(net)


def recovered(
    ctx,
    seed,
    net,
    data,
    init,
    form=None,
    scale=None,
    auxiliary=None,
    scheme=None,
    batch_norm=None,
    batches=BATCHES,
    draws=SeedByRole,
):
    """GDBR from the penultimate layer on one batch a composition; gain: over the paper's form on the same batch.

    With default weights, and by dummies, only random batches are read.
    """
    clients = Clients(ctx, net, data, draws(seed), batch_norm or NONE)
    only = scheme or ("random" if init == "default" else None)
    drawn = [clients.batch(*b, 64) for b in batches if only in (None, b[0])]
    dropouts, forms = dropouts_beside(net, batch_norm), [form] if form else FORMS
    views = clients.views(drawn, init, scale)
    for row, bridge, aux_inputs, chain_batches in views:
        by_auxiliary = observed(clients, bridge, aux_inputs, auxiliary)
        for batch, dropout, update in clients.updates(bridge, chain_batches, dropouts):
            for (kind, n_images), features in by_auxiliary.items():
                if kind == "dummy" and batch.about["scheme"] != "random":
                    continue
                counts = {f: bridge.recover(update, features, f).counts for f in forms}
                scored = {f: scores(counts[f], batch.truth) for f in forms}
                row |= {"dropout": dropout, "auxiliary": kind, "aux": n_images}
                for f, result in scored.items():
                    gain = result["insacc"] - scored["paper"]["insacc"]
                    yield {**row, **batch.about, "form": f, **result, "gain": gain}


ONE_OF_EACH = [b for b in BATCHES if b[1] in (NAMED, HALF, QUARTER)]
PLAIN = dict(draws=OneSeed, batches=ONE_OF_EACH)


def initialisations(full):
    """Networks, all of them in full, with the paper's weights and with PyTorch's own."""
    nets = list(PAIRS) if full else ["lenet", "mlp6", "resnet18-conv"]
    settings = pairs(full, nets, large=20, init=INITS)
    deep = {"net": "resnet50-conv-imagenet", "init": "positive"}
    return [s | {"trials": 24} if s.items() >= deep.items() else s for s in settings]


TABLE1 = Experiment(
    "table1",
    recovered,
    quick=initialisations(False),
    paper=initialisations(True),
    by=("scheme", "form"),
    values=kinds("insacc", "clsacc", "gain"),
    facts=(*FACTS, "composition"),
    fixed=dict(scale="raw", auxiliary="aux") | OF_64,
    arguments=PLAIN,
)


BOTH = dict(scale=["normalised", "raw"], auxiliary=["aux", "dummy"], scheme="random")
REST = dict(scale=["normalised", "raw"], auxiliary="aux", scheme=list(SCHEMES)[1:])
TABLE2 = Experiment(
    "table2",
    recovered,
    quick=pairs(False, ["lenet"], **BOTH),
    paper=pairs(True, **BOTH) + pairs(True, ["lenet"], **REST),
    values=kinds("insacc", "clsacc"),
    facts=FACTS,
    fixed=POSITIVE | OF_64,
    arguments=PLAIN,
)

# at every choice of what the paper does not print
CHOICES = Experiment(
    "choices",
    recovered,
    quick=pairs(False, ["lenet"]),
    paper=[s | {"trials": 20} for s in pairs(True, ["lenet", "alexnet", "vgg11"])]
    + pairs(True, ["resnet18-conv"], large=5),
    by=("scale", "widths", "scheme", "composition", "auxiliary", "aux"),
    values=kinds("insacc", "clsacc"),
    facts=OF_BATCH,
    fixed=POSITIVE | OF_64,
    tables=("table1", "table2"),
)
CHOICES_MNIST = dataclasses.replace(  # more trials of what 20 left open
    CHOICES, name="choices_mnist", paper=grid(net="lenet", data="mnist"), trials=(1, 75)
)
CHOICES_MODES = dataclasses.replace(
    CHOICES,
    name="choices_modes",
    quick=QUICK,
    paper=first(8, 6),
    by=("dropout", *CHOICES.by),
)
CHOICES_NORMS = dataclasses.replace(CHOICES_MODES, name="choices_norms", paper=OTHERS)
CHOICES_RESNET = dataclasses.replace(
    CHOICES_MODES,
    name="choices_resnet",
    paper=grid(**RESNET_OWN, data="cifar100", trials=15),
)


# --- what dummies do ---
def against_images(ctx, seed, net, data, scale):
    """What the chain sees of dummies against auxiliary images: features and softmax."""
    clients = Clients(ctx, net, data, OneSeed(seed))
    bridge, aux = clients.bridge(), clients.aux
    inputs = clients.aux_inputs(scale), clients.dummies(len(aux))
    other, dummy = map(bridge.observe, inputs)
    moved = (dummy.probabilities - other.probabilities).abs().sum()
    ratio = dummy.outputs.mean() / other.outputs.mean()
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


# --- small experiments that the chapter runs on the spot, and that are not recorded ---
def even_guess(seed, batches=2000):
    """InsAcc of naming every class equally often, by number of classes and composition (B = 64)."""
    generator, rows = torch.Generator().manual_seed(seed), []
    for n in (10, 100, 200, 1000):
        even, row = round_to_total(torch.full((n,), 64 / n), 64), {"classes": n}
        for scheme, name in SCHEMES.items():
            truth = metrics.counts(compose(name, 64, n, batches, generator), n)
            row[scheme] = (
                metrics.instance_accuracy(even.expand_as(truth), truth).mean().item()
            )
        rows.append(row)
    return pd.DataFrame(rows)


def restricted(ctx, seed):
    """InsAcc of each attack on whole updates and on those without the last layer, mean of five clients with digits."""
    clients = Clients(ctx, "lenet", DIGITS, OneSeed(seed))
    victims, aux = clients.victims, clients.aux
    drawn = [clients.batch("imbalanced", QUARTER, 64) for _ in range(5)]
    sizes = victims.shape, victims.n_classes
    model = ctx.build("lenet", *sizes, seed=seed, init="positive")
    whole = [fedsgd(model, batch.x, batch.labels) for batch in drawn]
    hide = FixedPoint(bits=40, bound=1e4)
    clear, _ = partially_encrypted(whole, last_layers(model), hide)
    attacks = {
        "LLG": llg.recover,
        "ZLG": lambda u, m: zlg.recover(u, m, aux),
        "iLRG": ilrg.recover,
        "GDBR": lambda u, m: gdbr.recover(u, m, aux),
    }

    def outcome(attack, updates):
        try:
            results = [attack(update, model) for update in updates]
        except WithheldParameter:
            return "refuses: withheld"
        except ValueError as error:
            return "refuses: no bias" if "bias" in str(error) else str(error)
        scored = [scores(counts, of.truth) for counts, of in zip(results, drawn)]
        return f"{sum(row['insacc'] for row in scored) / len(scored):.0%}"

    given = {"whole update": whole, "last layer withheld": clear}
    rows = [
        {"attack": a} | {w: outcome(f, u) for w, u in given.items()}
        for a, f in attacks.items()
    ]
    return pd.DataFrame(rows)
