"""RLU: Tables 2 and 3, one round of untrained networks, as printed and at every choice that the paper does not print.

The choices are those of ``data/published/rlu/choices.toml``.
"""

import copy
import dataclasses

import torch

from fedleak.data.partitions import dirichlet, local_batches
from fedleak.federated import Scheme, Server
from fedleak.models import head
from fedleak_book.experiments import Experiment, grid, spawned
from notebooks.rlu import clients as c
from notebooks.rlu.clients import ALPHAS, AUX, CLIENTS, LR, RULED


def untrained(
    ctx, seed, net, data, activation, batch_size, alpha, steps, clients, share=None
):
    """Score every rule on the clients of one untrained network."""
    images = ctx.images(data)
    like = dict(seed=seed, activation=activation)
    model = ctx.build(net, images.shape, images.n_classes, **like)
    round_of = (data, alpha, steps, batch_size, clients, seed)
    yield from c.attack_rows(ctx, model, *round_of, share)


LENET = dict(net="lenet", activation=["relu", "tanh"], batch_size=32, alpha=0.5)
LENET |= dict(steps=[1, 10], clients=CLIENTS)
PHOTOS = LENET | dict(data="photos")
TABLE2 = Experiment(
    "table2",
    untrained,
    quick=grid(**LENET, data="mnist5k") + grid(**PHOTOS | dict(activation="elu")),
    paper=grid(**LENET, data=["mnist", "svhn"]),
    trials=(1, 10),
    fixed=dict(lr=LR, stage=0),
    tables="table2",
    **RULED,
)
QUICK = PHOTOS | dict(activation="relu", clients=1)
CIFAR10 = dict(net="vgg16", data="cifar10", batch_size=64, clients=CLIENTS)
CIFAR100 = dict(net="vgg16", data="cifar100", batch_size=256, clients=CLIENTS)
TABLE2_CIFAR10 = dataclasses.replace(
    TABLE2,
    name="table2_cifar10",
    quick=grid(**QUICK | dict(steps=1)),
    paper=grid(**CIFAR10, activation=["relu", "elu"], alpha=0.5, steps=[1, 10]),
    fixed=TABLE2.fixed | dict(share=0.87),  # leaves the server 100 images per class
)
TABLE2_CIFAR100 = dataclasses.replace(  # one step: `ONE_STEP`
    TABLE2,
    name="table2_cifar100",
    quick=grid(**QUICK | dict(steps=10)),
    paper=grid(**CIFAR100, activation=["relu", "selu"], alpha=0.1, steps=10),
)
TENS = dict(activation="relu", batch_size=64, steps=10, clients=CLIENTS)
TABLE3_VGG16 = dataclasses.replace(
    TABLE2,
    name="table3_vgg16",
    quick=grid(net="lenet", data="photos", alpha=[0.1, 5.0], **TENS),
    paper=grid(net="vgg16", data="cifar10", alpha=ALPHAS, **TENS),
    tables=("table3",),
)


# --- at every choice ---


def server_images(test, seed, per_class=AUX, role="auxiliary"):
    """Sample the server's images of each class by a trial's seed."""
    return c.sample_server(test, per_class, spawned(seed, role) % 2**31)


def draw_batches(pool, alpha, steps, batch_size, clients, seed, of=""):
    """Draw the ten clients' images, and the batches of the first of them."""
    generator = torch.Generator().manual_seed(spawned(seed, f"batches{of}"))
    parts = dirichlet(pool.y, CLIENTS, alpha, spawned(seed, f"partition{of}") % 2**31)
    sizes = steps, batch_size, generator
    return parts, [local_batches(part, *sizes) for part in parts[:clients]]


def score_round(
    ctx,
    pool,
    auxiliary,
    net,
    activation,
    batch_size,
    alpha,
    scheme,
    clients,
    seed,
    of="",
):
    """Score every rule on the first clients of one round; RLU of several steps by Algorithm 2."""
    like, n = dict(seed=spawned(seed, "weights"), activation=activation), pool.n_classes
    model = ctx.build(net, pool.shape, n, **like)
    sizes = alpha, scheme.steps, batch_size, clients
    parts, index = draw_batches(pool, *sizes, seed, of)
    before, server = copy.deepcopy(model), Server(model, scheme, clients)
    updates = server.round([pool.x[i] for i in index], [pool.y[i] for i in index])
    read = c.prepare_rules(before, auxiliary, "search")
    real = c.round_facts(pool, parts, auxiliary)
    for k, (update, i) in enumerate(zip(updates, index)):
        history = server.history(k, head(before).bias)
        for rule, counts in read(update, scheme=scheme, history=history).items():
            algorithm = 2 if rule == "RLU" and scheme.steps > 1 else None
            row = {"rule": rule, "algorithm": algorithm}
            yield row | c.accuracies(counts, c.count_labels(pool.y[i], n)) | real


def first_round(
    ctx,
    seed,
    data,
    net,
    activation,
    batch_size,
    alpha,
    steps,
    lr,
    clients=CLIENTS,
    share=None,
    name="fedavg",
    level="",
    momentum=0.0,
    regularisation=0.0,
):
    """Score the rules after one round of a scheme; iAcc alone at a level of Table 4, which has no cAcc."""
    pool, test = c.split_images(ctx, data, share)
    auxiliary, how = server_images(test, seed), (net, activation, batch_size, alpha)
    scheme = Scheme(name, lr, steps, momentum, regularisation)
    for row in score_round(ctx, pool, auxiliary, *how, scheme, clients, seed):
        yield {k: v for k, v in row.items() if not level or k != "cacc"}


RATES = [0.003, 0.01, 0.03]
UNTRAINED = dict(net="lenet", batch_size=32, alpha=0.5, stage=0, clients=CLIENTS)


CHOICES = Experiment(
    "choices",
    first_round,
    quick=grid(data="mnist5k", activation="relu", steps=10, lr=[0.01, 0.03]),
    paper=grid(data="svhn", activation="relu", steps=10, lr=RATES)
    + grid(data="svhn", activation="tanh", steps=10, lr=RATES, trials=60),
    trials=(1, 20),
    fixed=UNTRAINED,
    tables="table2",
    **RULED,
)
ONE_STEP_LENET = dataclasses.replace(  # the cells of Table 2 that ten trials left open
    CHOICES,
    name="one_step_lenet",
    quick=grid(data="mnist5k", activation="relu", steps=1, lr=0.01),
    paper=grid(data="svhn", activation=["relu", "tanh"], steps=1, lr=0.01),
    trials=(1, 200),
)
