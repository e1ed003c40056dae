"""RLU: ten steps of VGG-16 at every learning rate, and the effect of fewer images; declared for a GPU.

On a processor a trial takes minutes: two of ``reduced_rates_cifar10`` took 14 each. The choices
are those of ``data/published/rlu/choices.toml``.
"""

from fedleak.federated import Scheme
from fedleak_book.experiments import Experiment, grid, spawned
from fedleak_book.experiments.kinds import rate
from notebooks.rlu.clients import AUX, CLIENTS, IACC, RULED, sample_server, split_images
from notebooks.rlu.experiments_choices import RATES, one_round
from notebooks.rlu.experiments_one_step import at_levels

STEPS = 10
FIXED = dict(steps=STEPS, stage=0, clients=CLIENTS)
TENS = dict(net="vgg16", batch_size=64, alpha=0.5)
HUNDREDS = dict(net="vgg16", batch_size=256, alpha=0.1)
VALUES = {classes: IACC | dict(cacc=rate("clients", classes)) for classes in (10, 100)}
PARTS = {10: ("cifar10", 7291, 100), 100: ("cifar100", 1117, 4)}
"""By the number of classes a data set that is incomplete here, its clients' images, and the server's per class."""


def ten_steps(ctx, seed, net, data, activation, batch_size, alpha, lr, share=None):
    """One round of ten local steps at a learning rate."""
    pool, test = split_images(ctx, data, share)
    auxiliary = sample_server(test, AUX, spawned(seed, "auxiliary") % 2**31)
    how = dict(net=net, batch_size=batch_size, alpha=alpha)
    scheme = Scheme("fedavg", lr, STEPS)
    yield from one_round(ctx, pool, auxiliary, activation, scheme, seed, **how)


def reduced_ten_steps(ctx, seed, net, data, activation, batch_size, alpha, lr, classes):
    """The same with all images, and with as few as CIFAR-10 or CIFAR-100 has here."""
    how = dict(net=net, batch_size=batch_size, alpha=alpha)
    scheme = Scheme("fedavg", lr, STEPS)

    def score(pool, auxiliary, level):
        return one_round(ctx, pool, auxiliary, activation, scheme, seed, level, **how)

    yield from at_levels(ctx, seed, data, classes, PARTS[classes], score)


QUICK = dict(
    net="lenet", data="photos", activation="elu", batch_size=8, alpha=0.5, lr=0.01
)
RATES_CIFAR10 = Experiment(
    "rates_cifar10",
    ten_steps,
    quick=grid(**QUICK),
    paper=grid(data="cifar10", activation=["relu", "elu"], **TENS, lr=RATES),
    trials=(1, 10),
    fixed=FIXED | dict(share=0.87),  # leaves the server 100 of every class
    tables="table2",
    **RULED | dict(values=VALUES[10]),
)
RATES_CIFAR100 = Experiment(
    "rates_cifar100",
    ten_steps,
    quick=grid(**QUICK),
    paper=grid(data="cifar100", activation=["relu", "selu"], **HUNDREDS, lr=RATES),
    trials=(1, 10),
    fixed=FIXED,
    tables="table2",
    **RULED | dict(values=VALUES[100]),
)


def reduced(name, classes, activations, sizes):
    """The effect of fewer images, measured on data that are complete here."""
    axes = dict(data=["mnist", "cifar10-jpeg"], activation=activations, **sizes)
    return Experiment(
        name,
        reduced_ten_steps,
        quick=grid(**QUICK),
        paper=grid(**axes, lr=RATES),
        trials=(1, 6),
        by=("level", "rule"),
        values=VALUES[classes],
        fixed=FIXED | dict(classes=classes),
    )


REDUCED_CIFAR10 = reduced("reduced_rates_cifar10", 10, ["relu", "elu"], TENS)
REDUCED_CIFAR100 = reduced("reduced_rates_cifar100", 100, ["relu", "selu"], HUNDREDS)
