"""The arena: the experiments. A trial is a function of its context, its seed and its setting.

What trials share, networks, updates and attackers, is in ``updates.py``.
"""

import pandas as pd
import torch

from fedleak import metrics
from fedleak.attacks import registry
from fedleak.attacks.contest import contest
from fedleak.attacks.labels.counts import round_to_total
from fedleak.attacks.result import Result
from fedleak_book.experiments import Experiment, grid
from fedleak.data import compose, draw
from fedleak.federated import Update, fedsgd
from fedleak.federated.aggregation import plain_sum
from fedleak.federated.defences import protections
from fedleak_book.experiments.training import Federation, accuracy
from fedleak_book.experiments.kinds import rate
from notebooks.filters.experiments import FILTERS, PERCENTILE, SVT
from notebooks.filters.experiments import settings as filters
from notebooks.arena.updates import (
    ADAPTIVE,
    ALL,
    AT_ONCE,
    FISHERS,
    KNOWS,
    LEARNED,
    LEARNING,
    PASSIVE,
    SCHEMES,
    SCORES,
    SOFT,
    STATES,
    TOLD,
    USUAL,
    contested,
    defence_of,
    held_by,
    images,
    EVALUATED,
    one_update,
    prepared,
    ready,
    row_of,
)
from notebooks.arena.updates import KINDS, costly, RUNGS

__all__ = ["FILTERS"]
LENET = {"net": "lenet", "data": "MNIST", "state": STATES}
SMALL = {**LENET, "data": "MNIST, 5,000"}
IACC = dict(iacc=rate("batch_size"))
ACCURACY = dict(accuracy=rate(1000))


# --- networks, training and batch size ---
SIZES = [8, 32, 128, 512]
_SMALL_DEEP = {"net": ["vgg16-quarter", "resnet20-1"], "data": "photographs"}
_DEEP = {"net": ["vgg11_bn", "resnet18"], "data": "CIFAR-10", "batch_size": SIZES}
NETWORKS = contested(
    "networks",
    quick=grid(**SMALL, batch_size=[8, 128], trials=3)
    + grid(**_SMALL_DEEP, state=STATES, batch_size=8)
    + grid(**_SMALL_DEEP, state="trained", batch_size=8, attack=KNOWS),
    paper=grid(**LENET, batch_size=SIZES)
    + grid(**_DEEP, state="untrained", trials=10)
    + grid(**_DEEP, state="trained")
    + grid(**_DEEP, state="trained", attack=KNOWS),
    trials=(2, 20),
)


def of_kinds(net="net", **more):
    """Settings of every kind of data that is no image, with its network under the name `net`."""
    return [
        setting
        for data, network in KINDS.items()
        for setting in grid(**{net: network}, data=data, **more)
    ]


# --- compositions, schemes, labels ---
COMPOSITIONS = ["permuted", "balanced", "subclassed", "unbalanced", "single"]
COMPOSED = contested(
    "compositions",
    quick=grid(**SMALL, composition=["balanced", "single"]),
    paper=grid(**LENET, composition=COMPOSITIONS),
    trials=(3, 20),
)
BY_SCHEME = contested(
    "schemes",
    quick=grid(**SMALL, scheme=["FedAvg", "Scaffold"]),
    paper=grid(**LENET, scheme=["FedSGD", *SCHEMES]),
    trials=(2, 10),
)


# --- texts and rows of tables ---
INPUTS = contested(
    "inputs",
    quick=of_kinds(batch_size=8, state="untrained", scheme="FedSGD"),
    paper=of_kinds(batch_size=[8, 32], state=STATES, scheme="FedSGD")
    + of_kinds(batch_size=32, state=STATES, scheme="FedAvg"),
    trials=(2, 20),
)


# --- the client's step: its labels, and the mode of its network ---
MODES = [  # the network, the client's mode, the mode of the attacker's own passes
    ("lenet with dropout", "evaluation", "evaluation"),
    ("lenet with dropout", "training", "evaluation"),
    ("lenet with batch norm", "evaluation", "evaluation"),
    ("lenet with batch norm", "training", "evaluation"),
    ("lenet with batch norm", "training", "training"),
]
MODES = [dict(zip(("net", "client", "attacker"), m, strict=True)) for m in MODES]
HARD = next(iter(SOFT))
_SOFT = {"labelling": [*SOFT], **EVALUATED}
_USUAL = {"labelling": HARD, "batch_size": USUAL["batch_size"]}
CLIENT_STEPS = contested(
    "client_steps",
    quick=grid(**SMALL, **_SOFT, batch_size=8)
    + grid(**MODES[-1], data=SMALL["data"], state="untrained", **_USUAL),
    paper=grid(**LENET, **_SOFT, batch_size=[8, 32])
    + [s for m in MODES for s in grid(**m, data="MNIST", state=STATES, **_USUAL)],
    trials=(2, 20),
    also=TOLD,
)


# --- defences, and what they cost ---
FEW = {"noise": [0.1], "clipping and noise": [0.01], "sparsification": [0.9]}


def defended(few, only=lambda kind: True, **setting):
    """Settings of the registered defences that `only` keeps, at their strengths, or at few of them."""
    strengths = {n: [*k.strengths] for n, k in protections().items() if only(k)}
    strengths |= {name: FEW[name] for name in strengths if few and name in FEW}
    pairs = [grid(defence=n, strength=s, **setting) for n, s in strengths.items()]
    return sum(pairs, grid(defence="none", strength=0.0, **setting))


DEFENCES = contested(
    "defences",
    quick=defended(True, **SMALL) + grid(defence="no last bias", strength=0.0, **SMALL),
    paper=defended(False, **LENET)
    + grid(defence="no last bias", strength=0.0, **LENET),
    trials=(2, 20),
    also=[ADAPTIVE],
)


def federation(ctx, seed, data, defence, strength, users, participants, rounds, lr):
    """Test accuracy of LeNet after federated training under a defence."""
    pool = images(ctx, data)
    model = ctx.build("lenet", pool.shape, pool.n_classes, seed=seed)
    of = {"samples": 80, "composition": "unbalanced", "seed": seed}
    clients = Federation.of(model, pool, users=users, **of)
    protection = defence_of(defence, strength, model, seed, clients=users)
    for _ in range(rounds):
        clients.round(participants, 1, 8, lr=lr, defence=protection)
    return {"accuracy": accuracy(model, images(ctx, data, "tested"))}


_TEN = {"participants": 10, "lr": 0.1}
_MANY = {"data": "MNIST", "users": 100}
_NOISE = grid(defence="none", strength=0.0) + grid(defence="noise", strength=0.3)


def with_noise(**setting):
    """Settings of trainings without noise and with it."""
    return [{**noise, **s} for s in grid(**setting) for noise in _NOISE]


FEDERATIONS = Experiment(
    "federations",
    federation,
    quick=defended(True, costly, data=SMALL["data"], users=40, rounds=200, **_TEN)
    + with_noise(data=SMALL["data"], users=100, rounds=20, **_TEN),
    paper=defended(False, costly, rounds=300, **_MANY, **_TEN)
    + with_noise(participants=10, lr=[0.3, 0.1], rounds=150, **_MANY)
    + with_noise(participants=90, lr=0.3, rounds=150, **_MANY, trials=3)
    # without the first, which is no filter; NVFlare is an extra, which no quick run needs
    + filters(False, (PERCENTILE, SVT), rounds=300, **_MANY, **_TEN, trials=3)[1:],
    trials=(1, 10),
    values=ACCURACY,
)


# --- sums of clients, once and round after round ---
COHORT = 5


def cohort_of(ctx, seed, net, data, state, batch_size, composition):
    """The model, the counts of five clients, and the sum of their gradients under the models that they are sent."""
    pool, generator = images(ctx, data), torch.Generator().manual_seed(seed)
    model = prepared(ctx, net, data, state, seed)
    labels = compose(composition, batch_size, pool.n_classes, COHORT, generator)
    index = draw(pool, labels, generator)

    def total(models):
        pairs = zip(models, index, strict=True)
        return plain_sum([fedsgd(m, pool.x[i], pool.y[i]) for m, i in pairs])

    truth = metrics.counts(labels, pool.n_classes)
    return model, truth, total([model] * COHORT), total


def aggregation(ctx, seed, attack, net, data, state, batch_size, composition):
    """One attack on a sum of five updates; scores are means over the clients."""
    entrant = ALL[attack]
    if entrant in LEARNED and state != "trained":
        return
    assert entrant.blind or entrant.lacking(PASSIVE)
    what = seed, net, data, state, batch_size, composition
    cohort = ctx.once(("sum", *what), lambda: cohort_of(ctx, *what), most=AT_ONCE)
    model, truth, summed, total = cohort
    if entrant in FISHERS:
        sends = entrant.sends(model, COHORT, seed)
        who, fished = registry.MALICIOUS_AGGREGATOR, {attack: (total(sends), sends)}
        knowledge = {"batch_size": batch_size, "input_shape": images(ctx, data).shape}
        attempts = contest(
            summed, model, who, knowledge, attacks=[entrant], manipulated=fished
        )
    else:
        mean = {name: t / COHORT for name, t in summed.tensors.items()}
        as_one = Update(mean, "gradient", summed.samples)
        aux, who = images(ctx, data, "aux"), registry.WITH_AUXILIARY
        knowledge = held_by(aux, seed, iterations=LEARNING[data])
        preparations = ready(ctx, attack, seed, net, data, state, "sum")
        attempts = contest(
            as_one, model, who, knowledge, attacks=[entrant], prepared=preparations
        )
    for attempt in attempts:
        counts = attempt.counts
        if counts is not None and entrant not in FISHERS:  # a fifth of the cohort's
            counts = round_to_total(counts / COHORT, batch_size).expand(COHORT, -1)
        yield mean_row(attempt, counts, truth)


def mean_row(attempt, counts, truth):
    """One attack's row: the mean of its scores over the clients."""
    if counts is None:
        return row_of(attempt, truth)
    alone = [attempt._replace(result=Result(client_counts)) for client_counts in counts]
    rows = pd.DataFrame([row_of(f, t) for f, t in zip(alone, truth, strict=True)])
    return {**rows.iloc[0], **rows[[*SCORES]].mean()}


AGGREGATION = contested(
    "aggregation",
    quick=grid(**SMALL, batch_size=32, composition="unbalanced"),
    paper=grid(**LENET, batch_size=32, composition="unbalanced"),
    trials=(2, 20),
    trial=aggregation,
    fixed={"clients": COHORT},
)


# --- the effect of knowledge ---


def ladder(ctx, seed, rung, **setting):
    """One attack on one update, with what a rung of the ladder has."""
    who, many, defence = RUNGS[rung]
    setting |= {"adversary": who, "aux_images": many, "defence": defence}
    yield from one_update(ctx, seed, **setting)


LADDER = contested(
    "ladder",
    quick=grid(rung=list(RUNGS), **SMALL),
    paper=grid(rung=list(RUNGS), **LENET),
    trials=(2, 20),
    trial=ladder,
    fixed={k: USUAL[k] for k in ("batch_size", "composition", "scheme", "strength")},
)
CONTESTS = [NETWORKS, COMPOSED, BY_SCHEME, CLIENT_STEPS, INPUTS, DEFENCES]
CONTESTS += [AGGREGATION, LADDER]
