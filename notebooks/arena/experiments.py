"""The arena: the experiments. A trial is a function of its context, its seed and its setting.

What trials share, networks, updates and attackers, is in ``updates.py``.
"""

from functools import partial

import torch

from fedleak import metrics
from fedleak.attacks import registry
from fedleak.attacks.contest import contest
from fedleak.attacks.labels.counts import round_to_total
from fedleak.data import compose, draw
from fedleak.federated import Update, fedsgd
from fedleak.federated.aggregation import plain_sum
from fedleak.federated.defences import protections
from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.kinds import NUMBER, rate
from fedleak_book.experiments.training import Federation, accuracy
from notebooks.arena import updates as u
from notebooks.filters import defences as filters
from notebooks.updates import SETS, STATES, TRAINED, UNTRAINED, load_clients_images
from notebooks.updates import get_network, load_other_images

LENET = {"net": "lenet", "data": "MNIST", "state": STATES}
SMALL = {**LENET, "data": "MNIST, 5,000"}


def declare_contest(
    name, quick, paper, trials, attacks=u.ALL, trial=u.one_update, fixed=None
):
    """Declare a contest: its settings, each for every attack by itself (or its own ``attack``), and `USUAL` for the rest.

    So an attack that is added is a new value of an axis, and the finished trials of the others stay.
    """
    axes = set().union(*quick, *paper)
    usual = {k: v for k, v in u.USUAL.items() if k not in axes}
    profiles = {
        profile: [
            {**s, "attack": a}
            for s in settings
            for a in ([s["attack"]] if "attack" in s else attacks)
        ]
        for profile, settings in (("quick", quick), ("paper", paper))
    }
    how = {"facts": "reason", "times": "seconds", "fixed": fixed or usual}
    values = {**u.SCORES, "seconds": NUMBER}
    return Experiment(name, trial, **profiles, trials=trials, values=values, **how)


# --- networks, training and batch size ---
SIZES = [8, 32, 128, 512]
_SMALL_DEEP = {"net": ["vgg16-quarter", "resnet20-1"], "data": "photographs"}
_DEEP = {"net": ["vgg11_bn", "resnet18"], "data": "CIFAR-10", "batch_size": SIZES}
NETWORKS = declare_contest(
    "networks",
    quick=grid(**SMALL, batch_size=[8, 128], trials=3)
    + grid(**_SMALL_DEEP, state=STATES, batch_size=8)
    + grid(**_SMALL_DEEP, state=TRAINED, batch_size=8, attack=u.KNOWS),
    paper=grid(**LENET, batch_size=SIZES)
    + grid(**_DEEP, state=UNTRAINED, trials=10)
    + grid(**_DEEP, state=TRAINED)
    + grid(**_DEEP, state=TRAINED, attack=u.KNOWS),
    trials=(2, 20),
)

# --- compositions, schemes ---
COMPOSITIONS = ["permuted", "balanced", "subclassed", "unbalanced", "single"]
COMPOSED = declare_contest(
    "compositions",
    quick=grid(**SMALL, composition=["balanced", "single"]),
    paper=grid(**LENET, composition=COMPOSITIONS),
    trials=(3, 20),
)
BY_SCHEME = declare_contest(
    "schemes",
    quick=grid(**SMALL, scheme=["FedAvg", "Scaffold"]),
    paper=grid(**LENET, scheme=["FedSGD", *u.SCHEMES]),
    trials=(2, 10),
)


# --- texts and rows of tables ---
def of_kinds(**axes):
    """Return settings of every kind of data that is no image, with its network."""
    grids = (grid(net=net, data=data, **axes) for data, net in u.KINDS.items())
    return [setting for of_kind in grids for setting in of_kind]


INPUTS = declare_contest(
    "inputs",
    quick=of_kinds(batch_size=8, state=UNTRAINED, scheme="FedSGD"),
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
_SOFT = {"labelling": [*u.SOFT], "client": "evaluation", "attacker": "evaluation"}
_HARD = {"labelling": next(iter(u.SOFT)), "batch_size": u.USUAL["batch_size"]}
CLIENT_STEPS = declare_contest(
    "client_steps",
    quick=grid(**SMALL, **_SOFT, batch_size=8)
    + grid(**MODES[-1], data=SMALL["data"], state=UNTRAINED, **_HARD),
    paper=grid(**LENET, **_SOFT, batch_size=[8, 32])
    + [s for m in MODES for s in grid(**m, data="MNIST", state=STATES, **_HARD)],
    trials=(2, 20),
    attacks=[*u.ALL, *u.TOLD],
)

# --- defences, and what they cost ---
FEW = {"noise": [0.1], "clipping and noise": [0.01], "sparsification": [0.9]}
REGISTERED = {name: [*kind.strengths] for name, kind in protections().items()}
COSTLY = {n: s for n, s in REGISTERED.items() if protections()[n].changes_training}


def defended(strengths, **axes):
    """Return settings without a defence, and with each defence at its strengths."""
    pairs = (grid(defence=n, strength=s, **axes) for n, s in strengths.items())
    return sum(pairs, grid(defence="none", strength=0.0, **axes))


_BARE = {"defence": "no last bias", "strength": 0.0}
DEFENCES = declare_contest(
    "defences",
    quick=defended(REGISTERED | FEW, **SMALL) + grid(**_BARE, **SMALL),
    paper=defended(REGISTERED, **LENET) + grid(**_BARE, **LENET),
    trials=(2, 20),
    attacks=[*u.ALL, u.ADAPTIVE],
)


def federation(ctx, seed, data, defence, strength, users, participants, rounds, lr):
    """Test accuracy of LeNet after federated training under a defence."""
    pool, limit = load_clients_images(ctx, data), SETS[data].tested
    model = ctx.build("lenet", pool.shape, pool.n_classes, seed=seed)
    of = {"samples": 80, "composition": "unbalanced", "seed": seed}
    clients = Federation.of(model, pool, users=users, **of)
    protection = u.make_defence(defence, strength, model, seed, clients=users)
    for _ in range(rounds):
        clients.round(participants, 1, 8, lr=lr, defence=protection)
    return {"accuracy": accuracy(model, load_other_images(ctx, data, limit))}


_TEN = {"participants": 10, "lr": 0.1}
_MANY = {"data": "MNIST", "users": 100}


def with_noise(**axes):
    """Return settings of trainings without noise and with it."""
    noise = grid(defence="none", strength=0.0) + grid(defence="noise", strength=0.3)
    return [{**one, **setting} for setting in grid(**axes) for one in noise]


FEDERATIONS = Experiment(
    "federations",
    federation,
    quick=defended(COSTLY | FEW, data=SMALL["data"], users=40, rounds=200, **_TEN)
    + with_noise(data=SMALL["data"], users=100, rounds=20, **_TEN),
    paper=defended(COSTLY, rounds=300, **_MANY, **_TEN)
    + with_noise(participants=10, lr=[0.3, 0.1], rounds=150, **_MANY)
    + with_noise(participants=90, lr=0.3, rounds=150, **_MANY, trials=3)
    # without the first, which is no filter; NVFlare is an extra, which no quick run needs
    + defended(filters.COSTLY, rounds=300, **_MANY, **_TEN, trials=3)[1:],
    trials=(1, 10),
    values={"accuracy": rate(1000)},
)
_VARIED = "net", "state", "data", "defence", "strength"
FILTERS = declare_contest(
    "filters",
    quick=defended(filters.DEFAULTS, net="lenet", state=STATES, data=SMALL["data"]),
    paper=defended(filters.STRENGTHS, net="lenet", state=STATES, data="MNIST"),
    trials=(1, 10),
    attacks=[name for name, attack in u.ALL.items() if attack not in u.LEARNED],
    fixed={k: v for k, v in u.USUAL.items() if k not in _VARIED} | {"lr": filters.LR},
)

# --- sums of clients ---
COHORT = 5


def make_cohort(ctx, seed, net, data, state, batch_size, composition):
    """Return the model, the counts of five clients, the sum of their gradients, and how models that are sent change it."""
    pool, generator = (
        load_clients_images(ctx, data),
        torch.Generator().manual_seed(seed),
    )
    model = get_network(ctx, net, data, state, seed)
    labels = compose(composition, batch_size, pool.n_classes, COHORT, generator)
    index = draw(pool, labels, generator)

    def total(models):
        pairs = zip(models, index, strict=True)
        return plain_sum([fedsgd(m, pool.x[i], pool.y[i]) for m, i in pairs])

    truth = metrics.counts(labels, pool.n_classes)
    return model, truth, total([model] * COHORT), total


def aggregation(ctx, seed, attack, net, data, state, batch_size, composition):
    """One attack on a sum of five updates; scores are means over the clients."""
    entrant, aux = u.ALL[attack], u.load_aux(ctx, data)
    if entrant in u.LEARNED and state != TRAINED:
        return
    assert entrant.blind or entrant.lacking(u.PASSIVE)
    what = seed, net, data, state, batch_size, composition
    make = partial(make_cohort, ctx, *what)
    model, truth, update, total = ctx.once(("sum", *what), make, most=u.AT_ONCE)
    if entrant in u.FISHERS:
        sends = entrant.sends(model, COHORT, seed)
        how = {"manipulated": {attack: (total(sends), sends)}}
        knowledge = {"batch_size": batch_size, "input_shape": aux.shape}
        who = registry.MALICIOUS_AGGREGATOR
    else:  # reads the mean as one update
        mean = {name: t / COHORT for name, t in update.tensors.items()}
        update = Update(mean, "gradient", update.samples)
        how = {
            "prepared": u.get_preparations(ctx, attack, seed, net, data, state, "sum")
        }
        who, knowledge = registry.WITH_AUXILIARY, u.make_knowledge(aux, data, seed)
    for attempt in contest(update, model, who, knowledge, attacks=[entrant], **how):
        counts = attempt.counts
        if counts is not None and entrant not in u.FISHERS:  # a fifth of the cohort's
            counts = round_to_total(counts / COHORT, batch_size).expand(COHORT, -1)
        yield u.make_row(attempt, counts, truth)


_SUMS = {"batch_size": 32, "composition": "unbalanced"}
AGGREGATION = declare_contest(
    "aggregation",
    quick=grid(**SMALL, **_SUMS),
    paper=grid(**LENET, **_SUMS),
    trials=(2, 20),
    trial=aggregation,
    fixed={"clients": COHORT},
)

# --- the effect of knowledge ---
RUNGS = {
    "nothing": {"adversary": registry.NOBODY.name},
    "class shares": {"adversary": u.SHARES.name},
    "gradients": {"adversary": registry.EAVESDROPPER.name},
    "+ model": {"adversary": registry.WHITE_BOX.name},
    "+ 2 images a class": {"aux_images": 20},
    "+ many images a class": {},
    "last layer withheld": {"defence": "last layer encrypted"},
}


def ladder(ctx, seed, rung, **setting):
    """One attack on one update, with what a rung of the ladder has."""
    yield from u.one_update(ctx, seed, **setting, **RUNGS[rung])


LADDER = declare_contest(
    "ladder",
    quick=grid(rung=[*RUNGS], **SMALL),
    paper=grid(rung=[*RUNGS], **LENET),
    trials=(2, 20),
    trial=ladder,
    fixed={k: u.USUAL[k] for k in ("batch_size", "composition", "scheme", "strength")},
)
