"""RLU: every plausible choice of an unprinted setting, and the effect of fewer images.

The choices are those of ``data/published/rlu/choices.toml``.
"""

import copy
import dataclasses

import torch

from fedleak.data.partitions import dirichlet, local_batches
from fedleak_book.experiments import Experiment, grid, spawned
from fedleak.federated import Scheme, Server
from fedleak.models import head
from notebooks.rlu.clients import (
    AUX,
    CLIENTS,
    FACTS,
    IACC,
    RULED,
    count_labels,
    round_facts,
    prepare_rules,
    accuracies,
    sample_server,
    split_images,
)

RATES = [0.003, 0.01, 0.03]
MILD = {"momentum": [0.1, 0.3, 0.5], "regularisation": [0.001, 0.01, 0.1, 1.0]}
SETTINGS = dict(net="lenet", batch_size=32, alpha=0.5, stage=0, clients=CLIENTS)


def one_round(
    ctx,
    pool,
    auxiliary,
    activation,
    scheme,
    seed,
    of="",
    net="lenet",
    batch_size=32,
    alpha=0.5,
    clients=CLIENTS,
):
    """Every rule on every client, or the first of the ten, of one round; RLU of several steps by Algorithm 2."""
    generator = torch.Generator().manual_seed(spawned(seed, f"batches{of}"))
    like, n = dict(seed=spawned(seed, "weights"), activation=activation), pool.n_classes
    model = ctx.build(net, pool.shape, n, **like)
    parts = dirichlet(pool.y, CLIENTS, alpha, spawned(seed, f"partition{of}") % 2**31)
    sizes = scheme.steps, batch_size, generator
    index = [local_batches(part, *sizes) for part in parts[:clients]]
    before, server = copy.deepcopy(model), Server(model, scheme, clients)
    updates = server.round([pool.x[i] for i in index], [pool.y[i] for i in index])
    read, real = (
        prepare_rules(before, auxiliary, "search"),
        round_facts(pool, parts, auxiliary),
    )
    for k, (update, i) in enumerate(zip(updates, index)):
        history = server.history(k, head(before).bias)
        answers = read(update, scheme=scheme, history=history)
        for rule, counts in answers.items():
            algorithm = 2 if rule == "RLU" and scheme.steps > 1 else None
            row = {"rule": rule, "algorithm": algorithm}
            yield row | accuracies(counts, count_labels(pool.y[i], n)) | real


def by_rate(ctx, seed, data, activation, steps, lr):
    """Score the rules after one round of FedAvg at a learning rate."""
    pool, test = split_images(ctx, data)
    auxiliary = sample_server(test, AUX, spawned(seed, "auxiliary") % 2**31)
    scheme = Scheme("fedavg", lr, steps)
    yield from one_round(ctx, pool, auxiliary, activation, scheme, seed)


CHOICES = Experiment(
    "choices",
    by_rate,
    quick=grid(data="mnist5k", activation="relu", steps=10, lr=[0.01, 0.03]),
    paper=grid(data="svhn", activation="relu", steps=10, lr=RATES)
    + grid(data="svhn", activation="tanh", steps=10, lr=RATES, trials=60),
    trials=(1, 20),
    fixed=SETTINGS,
    tables="table2",
    **RULED,
)


def schemes_of(**more):
    """Return settings of FedProx and SGDm: all plausible mild ones, and the strong one."""
    settings = []
    for name, setting, strong in (
        ("sgdm", "momentum", 0.9),
        ("fedprox", "regularisation", 5.0),
    ):
        for level, values in (("mild", MILD[setting]), ("strong", [strong])):
            rest = dict(momentum=0.0, regularisation=0.0) | {setting: values}
            settings += grid(name=name, level=level, **rest, **more)
    return settings


def by_scheme(ctx, seed, data, name, level, momentum, regularisation):
    """Score the rules after one round of a scheme other than plain SGD."""
    pool, test = split_images(ctx, data)
    auxiliary = sample_server(test, AUX, spawned(seed, "auxiliary") % 2**31)
    scheme = Scheme(name, 0.01, 10, momentum, regularisation)
    for row in one_round(ctx, pool, auxiliary, "relu", scheme, seed):
        yield {k: row[k] for k in ("rule", "iacc", *FACTS)}


TABLE4_CHOICES = Experiment(
    "table4_choices",
    by_scheme,
    quick=schemes_of(data="mnist5k")[:2],
    paper=schemes_of(data="svhn"),
    trials=(1, 20),
    fixed=SETTINGS | dict(lr=0.01, activation="relu", steps=10, rounds=1),
    tables="table4",
    **RULED | dict(values=IACC),
)
TABLE4_STRONG = dataclasses.replace(  # 60 networks where 20 left a verdict open
    TABLE4_CHOICES,
    name="table4_strong",
    quick=schemes_of(data="mnist5k")[-1:],
    paper=[s for s in schemes_of(data="svhn") if s["momentum"] == 0.9],
    trials=(1, 60),
)
