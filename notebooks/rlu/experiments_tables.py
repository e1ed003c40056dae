"""RLU: Tables 1 and 2, the system of equations and the networks as they are initialised."""

import torch
from torch import nn

from fedleak_book.experiments import Experiment, grid
from fedleak.federated import Scheme, Server
from fedleak_book.experiments.kinds import NUMBER
from fedleak.models import head
from notebooks.rlu.clients import CLIENTS, LR, RULED, attack_rows
from notebooks.rlu.clients import NAMES

EXTRA = {
    "sgdm": dict(momentum=0.9),
    "nag": dict(momentum=0.9),
    "fedprox": dict(regularisation=5.0),
    "feddyn": dict(regularisation=1.0),
    "feddc": dict(regularisation=1.0),
}


def noted_round(server, x, y):
    """Run a round; return the clients' updates, and each step's bias gradient from the logits, [client, step, n]."""
    logits = []
    handle = server.model.register_forward_hook(lambda *a: logits.append(a[2].detach()))
    updates = server.round(x, y)
    handle.remove()
    p = torch.stack(logits).unflatten(0, y.shape[:2]).softmax(-1)
    return updates, (p - nn.functional.one_hot(y, p.shape[-1])).mean(2)


def identity(ctx, seed, name, data):
    """Compute the largest error of Eq. 16 over three rounds of three clients, with five steps each."""
    images, generator = ctx.images(data), torch.Generator().manual_seed(seed)
    worst, h = 0.0, torch.zeros(1)
    model = ctx.build("lenet", images.shape, 10, seed=seed).double()
    server = Server(model, Scheme(name, LR, 5, **EXTRA.get(name, {})), 3)
    bias = head(model).bias
    for _ in range(3):
        index = torch.randint(len(images), (3, 5, 16), generator=generator)
        x, y = images.x[index].double(), images.y[index]
        updates, gradients = noted_round(server, x, y)
        for k, update in enumerate(updates):
            h = server.history(k, bias)
            by_eq_16 = h - LR * server.scheme.weights().to(gradients) @ gradients[k]
            worst = max(worst, (update.tensors[bias] - by_eq_16).abs().max().item())
    share = float(h.abs().max() / update.tensors[bias].abs().max())
    yield {"error": worst, "share_of_h": share}


TABLE1 = Experiment(
    "table1",
    identity,
    quick=grid(name=NAMES, data="mnist5k"),
    paper=grid(name=NAMES, data="mnist"),
    trials=(2, 10),
    values=dict(error=NUMBER, share_of_h=NUMBER),
    rounding="error",
)


LENET = dict(
    net="lenet",
    activation=["relu", "tanh"],
    batch_size=32,
    alpha=0.5,
    steps=[1, 10],
    clients=10,
)
CIFAR10 = dict(net="vgg16", data="cifar10", activation=["relu", "elu"], batch_size=64)


def untrained(
    ctx, seed, net, data, activation, batch_size, alpha, steps, clients, share=None
):
    """Score every rule on the clients of one untrained network."""
    images = ctx.images(data)
    like = dict(seed=seed, activation=activation)
    model = ctx.build(net, images.shape, images.n_classes, **like)
    round_of = (data, alpha, steps, batch_size, clients, seed)
    yield from attack_rows(ctx, model, *round_of, share)


TABLE2_CIFAR10 = Experiment(
    "table2_cifar10",
    untrained,
    quick=grid(**LENET | dict(data="photos", activation="relu", clients=1, steps=1)),
    paper=grid(**CIFAR10, alpha=0.5, steps=[1, 10], clients=CLIENTS),
    trials=(1, 10),
    fixed=dict(lr=LR, stage=0, share=0.87),  # leaves the server 100 images per class
    tables="table2",
    **RULED,
)

TABLE2_CIFAR100 = Experiment(  # one step: `ONE_STEP`
    "table2_cifar100",
    untrained,
    quick=grid(**LENET | dict(data="photos", activation="relu", clients=1, steps=10)),
    paper=grid(
        net="vgg16",
        data="cifar100",
        activation=["relu", "selu"],
        batch_size=256,
        alpha=0.1,
        steps=10,
        clients=CLIENTS,
    ),
    trials=(1, 10),
    fixed=dict(lr=LR, stage=0),
    tables="table2",
    **RULED,
)

TABLE2 = Experiment(
    "table2",
    untrained,
    quick=grid(**LENET | dict(data="mnist5k"))
    + grid(**LENET | dict(data="photos", activation="elu")),
    paper=grid(**LENET | dict(data=["mnist", "svhn"])),
    trials=(1, 10),
    fixed=dict(lr=LR, stage=0),
    **RULED,
)
