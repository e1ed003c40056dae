"""RLU: Table 2 on ResNet-50 and Tiny-ImageNet, and Table 4 on CIFAR-100, on few clients of few networks.

Batch norm takes the statistics of the whole auxiliary data here: one forward pass of them serves all probes of LLG+,
which are batches of one label each in LLG+ itself.
"""

import dataclasses

import torch

from fedleak.attacks.labels import llg
from fedleak.data.partitions import dirichlet, local_batches
from fedleak.federated import Scheme, Update, fedavg, fedsgd
from fedleak.models import head, head_pass
from fedleak_book.experiments import Experiment, grid, spawned
from fedleak_book.experiments.kinds import rate
from notebooks.rlu.clients import (
    AUX,
    CLIENTS,
    IACC,
    RULED,
    accuracies,
    count_labels,
    one_step,
    prepare_rules,
    round_facts,
    sample_server,
    split_images,
)
from notebooks.rlu.experiments_choices import one_round
from notebooks.rlu.experiments_schemes import MILD, STRONG


def head_alone(update, model):
    """Return the part of an update that is of the head, as an update of its layer."""
    last = head(model)
    names = {"weight": last.weight, "bias": last.bias}
    parts = {name: update.tensors[whole] for name, whole in names.items()}
    return Update(parts, update.kind, update.samples, update.steps, update.lr)


def probed_network(ctx, net, data, activation, per_class, seed):
    """Return an untrained network, the server's images, and LLG+ on the head's inputs of them; once for all trials."""

    def make():
        pool, test = split_images(ctx, data)
        auxiliary = sample_server(test, per_class, spawned(seed, "auxiliary") % 2**31)
        like = dict(seed=spawned(seed, "weights"), activation=activation)
        model = ctx.build(net, pool.shape, pool.n_classes, **like)
        inputs = head_pass(model, auxiliary.x).inputs
        probes = dataclasses.replace(auxiliary, x=inputs)
        return model, auxiliary, llg.prepare(head(model).layer, probes)

    return ctx.once(("probed", net, data, activation, per_class, seed), make)


def clients_of(ctx, data, alpha, steps, batch_size, clients, seed):
    """Return all partitions of the clients' images, and the batches of the first clients."""
    pool, _ = split_images(ctx, data)
    generator = torch.Generator().manual_seed(spawned(seed, "batches"))
    parts = dirichlet(pool.y, CLIENTS, alpha, spawned(seed, "partition") % 2**31)
    sizes = steps, batch_size, generator
    return pool, parts, [local_batches(part, *sizes) for part in parts[:clients]]


def ten_steps(
    ctx, seed, net, data, activation, batch_size, alpha, steps, clients, per_class, lr
):
    """Score every rule on some clients' several steps; LLG+ on the head's inputs."""
    model, auxiliary, by_size = probed_network(
        ctx, net, data, activation, per_class, seed
    )
    pool, parts, batches = clients_of(
        ctx, data, alpha, steps, batch_size, clients, seed
    )
    read, real = (
        prepare_rules(model, auxiliary, "search"),
        round_facts(pool, parts, auxiliary),
    )
    for index in batches:
        x, y = pool.x[index], pool.y[index]
        update = fedavg(model, x, y, lr, share="delta")
        mean = head_alone(one_step(update), model)
        answers = read(update) | {"LLG+": by_size.recover(mean).counts}
        for rule, counts in answers.items():
            algorithm = 2 if rule == "RLU" else None
            scored = accuracies(counts, count_labels(y, pool.n_classes))
            yield {"rule": rule, "algorithm": algorithm} | scored | real


def probes_of_head(
    ctx, seed, net, data, activation, batch_size, alpha, clients, per_class
):
    """Score LLG+ on some clients' one step: its gradients of the head need a forward pass alone."""
    model, auxiliary, by_size = probed_network(
        ctx, net, data, activation, per_class, seed
    )
    pool, parts, batches = clients_of(ctx, data, alpha, 1, batch_size, clients, seed)
    layer, real = head(model).layer, round_facts(pool, parts, auxiliary)
    for (index,) in batches:
        y = pool.y[index]
        update = fedsgd(layer, head_pass(model, pool.x[index]).inputs, y)
        scored = accuracies(
            by_size.recover(update).counts, count_labels(y, pool.n_classes)
        )
        yield {"rule": "LLG+", "algorithm": None} | scored | real


RESNET = dict(
    net="resnet50-imagenet", data="tiny-imagenet", activation=["relu", "silu"]
)
QUICK = dict(net="resnet20-1", data="photos", activation="relu")
TINY = IACC | dict(cacc=rate("clients", 200))
SETTINGS = dict(alpha=0.1, lr=0.01, stage=0, per_class=5)
TABLE2_RESNET50 = Experiment(
    "table2_resnet50",
    ten_steps,
    quick=grid(**QUICK, batch_size=8),
    paper=grid(**RESNET, batch_size=32),
    trials=(1, 3),
    fixed=SETTINGS | dict(steps=10, clients=1),
    tables="table2",
    **RULED | dict(values=TINY),
)
ONE_STEP_RESNET50 = Experiment(
    "one_step_resnet50",
    probes_of_head,
    quick=grid(**QUICK, batch_size=8),
    paper=grid(**RESNET, batch_size=256),
    trials=(1, 3),
    fixed=SETTINGS | dict(steps=1, clients=2),
    tables="table2",
    **RULED | dict(values=TINY),
)


def few_clients(
    ctx,
    seed,
    data,
    net,
    name,
    level,
    momentum,
    regularisation,
    batch_size,
    alpha,
    steps,
    clients,
    lr,
):
    """Score the rules on some clients of one round of a scheme."""
    pool, test = split_images(ctx, data)
    auxiliary = sample_server(test, AUX, spawned(seed, "auxiliary") % 2**31)
    scheme = Scheme(name, lr, steps, momentum, regularisation)
    sizes = dict(net=net, batch_size=batch_size, alpha=alpha, clients=clients)
    for row in one_round(ctx, pool, auxiliary, "relu", scheme, seed, **sizes):
        yield {k: v for k, v in row.items() if k != "cacc"}


def schemes_on(settings, **more):
    """Return settings of some schemes, with some more in each."""
    return [setting | more for setting in settings]


TABLE4_CIFAR100 = Experiment(
    "table4_cifar100",
    few_clients,
    quick=schemes_on(MILD[:1], data="photos", net="lenet", batch_size=8),
    paper=schemes_on(
        MILD + STRONG, data="cifar100", net="vgg16-quarter", batch_size=256
    ),
    trials=(1, 3),
    fixed=dict(alpha=0.1, lr=0.01, activation="relu", steps=10, rounds=1)
    | dict(stage=0, clients=1),
    tables="table4",
    **RULED | dict(values=IACC),
)
