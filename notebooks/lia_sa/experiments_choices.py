"""LIA-SA: every plausible choice of what its paper does not print, as ``data/published/lia_sa/choices.toml`` has them."""

import dataclasses

from fedleak_book.experiments import Experiment, grid
from notebooks.lia_sa.experiments_clients import (
    FIG6,
    LEVELS,
    NETS,
    ONE,
    TABLE2,
    defended,
    similarities,
)
from notebooks.lia_sa.clients import (
    LIA,
    MORE,
    PAIRS,
    PASSIVE,
    RULED,
    SMALL,
    SPACED,
    VGGS,
    one_round,
    rounds,
)

LITERAL = LIA[0]
OTHERS = list(SPACED)
WIDER = ["fcn3-256", "fcn3-1024"]
FIG3_SIZES = dict(clients=5, batch_size=[16, 64, 256, 1024])
DEEPER = [(net, "cifar10") for net in VGGS[1:]]
DEEPER += [(f"resnet{d}", "cifar100") for d in (34, 50, 101, 152)]


def by_constants(ctx, seed, net, data, rule, constants, clients, batch_size):
    """One round with other constants than 0.1 u."""
    recipe = LITERAL if constants == "0.1 u" else f"LIA-SA, {constants}"
    recipe = rule if constants is None else recipe
    for row in one_round(ctx, seed, net, data, recipe, clients, batch_size):
        yield {k: v for k, v in row.items() if k != "constants"}


def of(pairs, rules=(LITERAL,), constants=OTHERS, clients=5, batch_size=1024, **more):
    """Rounds by constants."""
    same = dict(constants=constants, clients=clients, batch_size=batch_size)
    return rounds(list(rules), pairs, **same, **more)


CONSTANTS = Experiment(
    "constants",
    by_constants,
    quick=of([("fcn3", "mnist5k")], batch_size=16),
    paper=of(PAIRS, **FIG3_SIZES)
    + of(PAIRS, clients=MORE, batch_size=64, trials=10)
    + of(SMALL[:2])
    + of(DEEPER, trials=10)
    + of([(net, "mnist") for net in WIDER])
    + of([(net, "mnist") for net in WIDER], constants="0.1 u")
    + of([(net, "mnist") for net in ["fcn3", *WIDER]], PASSIVE, None, trials=80),
    trials=(1, 20),
    **RULED | dict(facts=RULED["facts"][:-1]),
    tables=("table1", "fig3", "fig4"),
)
SAME = dict(net="resnet18", data="cifar10", recipe=OTHERS)
FIG6_CONSTANTS = Experiment(
    "fig6_constants",
    defended,
    quick=grid(
        **SAME | dict(data="photos"), defence="noise", level=1e-3, batch_size=16
    ),
    paper=grid(**SAME, defence="noise", level=LEVELS["noise"], batch_size=[16, 64])
    + grid(
        **SAME, defence="compression", level=LEVELS["compression"], batch_size=[16, 64]
    )
    + grid(**SAME, defence=ONE, level=[0.2, 0.4, 0.8], batch_size=[16, 64], trials=3),
    trials=(1, 20),
    values=FIG6.values,
    facts=FIG6.facts,
    rounding="b_err",
    fixed=dict(clients=5),
    tables="fig6",
)

NOISY = dict(net="resnet18", data="cifar10", defence="noise")
EVERY = dict(recipe=["literal", "log", *OTHERS])
FIG6_TRIALS = dataclasses.replace(  # enough trials for a bound of 0.9
    FIG6_CONSTANTS,
    name="fig6_trials",
    paper=grid(**NOISY, **EVERY, level=1e-3, batch_size=[16, 64])
    + grid(**NOISY, **EVERY, level=1e-2, batch_size=16),
    trials=(1, 40),
)
TABLE1_TRIALS = Experiment(  # the baselines of Table I on CIFAR-10
    "table1_trials",
    one_round,
    quick=rounds(PASSIVE, [("vgg11_bn", "photos")], batch_size=64),
    paper=rounds(PASSIVE, SMALL[2:3]),
    trials=(1, 50),
    tables="table1",
    **RULED,
)


def similarities_by_constants(ctx, seed, net, data, rule, constants, batch_size):
    """Cosine similarities of a client's gradient with the honest one's, with other constants than 0.1 u."""
    sent = "LIA-SA, log" if constants == "log-spaced" else f"LIA-SA, {constants}"
    yield from similarities(ctx, seed, net, data, sent, batch_size)


PRESET = dict(net=NETS, rule=LITERAL, constants=[*OTHERS, "log-spaced"])
TABLE2_CONSTANTS = Experiment(
    "table2_constants",
    similarities_by_constants,
    quick=grid(**PRESET, data="synthetic-100", batch_size=16),
    paper=grid(**PRESET, data="cifar100", batch_size=64),
    trials=(1, 3),
    by="reading",
    values=TABLE2.values,
    facts="images",
    tables="similarity_liasa",
)
