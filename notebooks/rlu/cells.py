"""RLU: cells of records as small tables, and names of networks, data sets and algorithms."""

import pandas as pd

from fedleak import data, models
from notebooks.rlu.claims import FIVE, PASSES, PRINTED
from notebooks.show import TITLES

RULES = ["RLU", "iLRG", "ZLG+", "LLG+"]
TABLE2 = ("table2", "table2_cifar10", "table2_cifar100", "one_step")
"""The records of the printed Table 2."""
ACTIVATION = dict(relu="ReLU", tanh="Tanh", elu="ELU", selu="SELU", silu="SiLU")
SETTING = {
    "single": "CIFAR-10, one step",
    "cifar10": data.title("cifar10"),
    "svhn": data.title("svhn"),
    "tanh": "MNIST, Tanh",
    "alpha": "MNIST, α = 0.1",
    "late": "MNIST, accuracy 0.95",
    "untrained": "MNIST, untrained",
    "developed on: .60, m = 1": "MNIST, 0.60, one step (developed on)",
    "developed on: .60, m = 10": "MNIST, 0.60 (developed on)",
    "developed on: .86, m = 1": "MNIST, 0.86, one step (developed on)",
    "developed on: .86, m = 10": "MNIST, 0.86 (developed on)",
}
NAMED = {
    "data": lambda name: data.title({"photos": "cifar10"}.get(name, name)),  # stand-in
    "net": lambda name: models.title(name).partition(",")[0],
    "activation": ACTIVATION.get,
    "name": TITLES.get,
}


KEYS = [
    "setting",
    "rounds",
    "name",
    "level",
    "steps",
    "activation",
    "data",
    "stage",
    "rule",
]


def wide(cells, columns="rule", value="iacc", **settings):
    """Pivot cells: a column per rule (or other key), and a row per setting, named by the keys that differ."""
    for name, wanted in settings.items():
        cells = cells[cells[name] == wanted]
    keys = [c for c in KEYS if c in cells and c != columns]
    index = [c for c in keys if cells[c].nunique(dropna=False) > 1] or ["data"]
    return cells.pivot(index=index, columns=columns, values=value)


def ahead(cells):
    """Return whether RLU's mean is at least that of each rival in every cell."""
    table = wide(cells)
    return (table["RLU"] >= table[RULES[1:]].max(axis=1)).all()


def fall(rows, **settings):
    """Return each rule's loss of iAcc from α = 5 to 0.05."""
    for name, wanted in settings.items():
        rows = rows[rows[name] == wanted]
    table = rows.pivot(index="rule", columns="alpha", values="iacc").astype(float)
    return table[5.0] - table[0.05]


def named(cells):
    """Replace keys of data sets, networks, activations and algorithms by their names."""
    return cells.assign(
        **{c: cells[c].map(names) for c, names in NAMED.items() if c in cells}
    )


TICK = {True: "✔", False: "✗"}
COLUMNS = {
    "batch": "batch of 8",
    "repeats": "repeated labels",
    "activation": "Tanh",
    "steps": "ten steps",
    "trained": "trained network",
}


def table5(cells):
    """Return Table 5: our iAcc and mark of each rule in each column, with the paper's mark."""
    wide = cells.pivot(index="rule", columns="column", values="iacc")
    table = pd.DataFrame({"rule": list(PRINTED)})
    for i, column in enumerate(FIVE):
        mine, theirs = (
            wide[column],
            [TICK[marks[i] == "1"] for marks in PRINTED.values()],
        )
        table[COLUMNS[column]] = [
            f"{mine[rule]:.2f} {TICK[mine[rule] >= PASSES[0]]} / {mark}"
            for rule, mark in zip(PRINTED, theirs)
        ]
    return table


def joined(*cells):
    """Join cells of several experiments; a later experiment's cell replaces an earlier one's."""
    rows = pd.concat(cells, ignore_index=True)
    cell = ["steps", "net", "data", "activation", "rule"]
    return rows[~rows.duplicated(cell, keep="last")]
