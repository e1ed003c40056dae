"""LIA-SA: every plausible choice of what its paper does not print, as ``data/published/lia_sa/choices.toml`` has them."""

import dataclasses

from fedleak_book.experiments import grid
from notebooks.lia_sa.clients import (
    LIA,
    MORE,
    ONE,
    PAIRS,
    PASSIVE,
    RULED,
    SMALL,
    SPACED,
)
from notebooks.lia_sa.clients import VGGS, rounds
from notebooks.lia_sa.experiments import TABLE1
from notebooks.lia_sa.experiments_clients import FIG6, LEVELS, NETS, TABLE2

LITERAL = LIA[0]
OTHERS = list(SPACED)
WIDER = ["fcn3-256", "fcn3-1024"]
FIG3_SIZES = dict(clients=5, batch_size=[16, 64, 256, 1024])
DEEPER = [(net, "cifar10") for net in VGGS[1:]]
DEEPER += [(f"resnet{d}", "cifar100") for d in (34, 50, 101, 152)]


def of(pairs, rules=(LITERAL,), constants=OTHERS, clients=5, batch_size=1024, **more):
    """Rounds by constants."""
    same = dict(constants=constants, clients=clients, batch_size=batch_size)
    return rounds(list(rules), pairs, **same, **more)


CONSTANTS = dataclasses.replace(
    TABLE1,
    name="constants",
    quick=of([("fcn3", "mnist5k")], batch_size=16),
    paper=of(PAIRS, **FIG3_SIZES)
    + of(PAIRS, clients=MORE, batch_size=64, trials=10)
    + of(SMALL[:2])
    + of(DEEPER, trials=10)
    + of([(net, "mnist") for net in WIDER])
    + of([(net, "mnist") for net in WIDER], constants="0.1 u")
    + of([(net, "mnist") for net in ["fcn3", *WIDER]], PASSIVE, None, trials=80),
    trials=(1, 20),
    facts=RULED["facts"][:-1],  # its constants are a setting
    tables=("table1", "fig3", "fig4"),
)
SAME = dict(net="resnet18", data="cifar10", recipe=OTHERS)
FIG6_CONSTANTS = dataclasses.replace(
    FIG6,
    name="fig6_constants",
    quick=grid(
        **SAME | dict(data="photos"), defence="noise", level=1e-3, batch_size=16
    ),
    paper=grid(**SAME, defence="noise", level=LEVELS["noise"], batch_size=[16, 64])
    + grid(
        **SAME, defence="compression", level=LEVELS["compression"], batch_size=[16, 64]
    )
    + grid(**SAME, defence=ONE, level=[0.2, 0.4, 0.8], batch_size=[16, 64], trials=3),
    trials=(1, 20),
    tables=("fig6",),
)

NOISY = dict(net="resnet18", data="cifar10", defence="noise")
EVERY = dict(recipe=["literal", "log", *OTHERS])
FIG6_TRIALS = dataclasses.replace(  # enough trials for a bound of 0.9
    FIG6_CONSTANTS,
    name="fig6_trials",
    paper=grid(**NOISY, **EVERY, level=1e-3, batch_size=[16, 64])
    + grid(**NOISY, **EVERY, level=1e-2, batch_size=16)
    + grid(**NOISY, recipe="vector", level=1e-3, batch_size=[16, 64])
    + grid(**NOISY, recipe="vector", level=1e-2, batch_size=16, trials=100),
    trials=(1, 40),
)
TABLE1_TRIALS = dataclasses.replace(  # the baselines of Table I on CIFAR-10
    TABLE1,
    name="table1_trials",
    quick=rounds(PASSIVE, [("vgg11_bn", "photos")], batch_size=64),
    paper=rounds(PASSIVE, SMALL[2:3]),
    trials=(1, 50),
    tables=("table1",),
)


PRESET = dict(net=NETS, rule=LITERAL, constants=[*OTHERS, "log-spaced"])
TABLE2_CONSTANTS = dataclasses.replace(
    TABLE2,
    name="table2_constants",
    quick=grid(**PRESET, data="synthetic-100", batch_size=16),
    paper=grid(**PRESET, data="cifar100", batch_size=64),
    trials=(1, 3),
    tables=("similarity_liasa",),
)
