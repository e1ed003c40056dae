"""The page on inspecting models on the client: counts of refused models, from the arena's record."""

from collections.abc import Iterator

import pandas as pd

from fedleak.models import title
from fedleak_book.evidence.results import Recorded
from notebooks.show import number, table

CHECKS = {
    "dead": "dead units",
    "duplicated": "duplicated rows",
    "bins": "bins",
    "shut_out": "class shut out",
    "silent": "silent activations",
    "saturated": "saturated softmax",
}
READ = {
    "LIA-SA": "of the labels",
    "EludingSA": "of the sum’s squared norm",
    "MANDRAKE": "of the images",
}


def of(values: pd.Series) -> str:
    """Return how many of some models were refused."""
    return f"{int(values.sum())} of {len(values)}"


def hits_by_check(rows: pd.DataFrame) -> str:
    """Return which checks found something, in how many models of which network."""
    hits = rows.groupby("net", sort=False)[list(CHECKS)].sum().T.stack()
    found = (f"{CHECKS[c]}: {title(net)} {int(k)}" for (c, net), k in hits.items() if k)
    return "; ".join(found) or "–"


def honest(rows: pd.DataFrame) -> str:
    """Return the false positives, one row per stage of training."""
    lines = []
    for stage, group in rows[rows["sent"] == "honest"].groupby("stage", sort=False):
        mixed, alike = (group[group["batch"] == b] for b in ("mixed", "one class"))
        line = {"Honest model": "1 step" if stage == "1 steps" else stage}
        line |= {"Refused by its weights": of(mixed["weights"])}
        line |= {"with a mixed batch": of(mixed["refused"])}
        line |= {"with a batch of one class": of(alike["refused"])}
        lines.append(line | {"Found": hits_by_check(group)})
    return table(pd.DataFrame(lines))


def refusals(rows: pd.DataFrame) -> dict[str, str]:
    """Return how often crafted models are refused, as columns of a table."""
    batch = of(rows["refused"])
    return {"Refused by its weights": of(rows["weights"]), "with a batch": batch}


def crafted(rows: pd.DataFrame) -> str:
    """Return the true positives on models crafted as published, one row per kind."""
    rows = rows[(rows["sent"] != "honest") & (rows["noise"] == 0)]
    lines = []
    for sent, group in rows[rows["spared"] == 0].groupby("sent", sort=False):
        found = {words: int(group[name].sum()) for name, words in CHECKS.items()}
        lines.append({"Crafted model": sent, **refusals(group), **found})
    return table(pd.DataFrame(lines))


def adapted(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame, pd.Series]]:
    """Yield kind, disguise, rows and the remaining success per network, of the servers that recover anything."""
    by = ["sent", "spared", "noise"]
    for (sent, spared, noise), group in rows[rows["read"].notna()].groupby(by):
        how = f"noise {noise:g}" if noise else "as published"
        how = f"{spared:.0%} of units honest" if spared else how
        yield sent, how, group, group.groupby("net")["read"].mean()


def disguised(rows: pd.DataFrame) -> str:
    """Return, per disguise, how often a server that knows the checks is refused, and what it still recovers."""
    lines = []
    for sent, how, group, read in adapted(rows):
        mean, low, high = map(number, (read.mean(), read.min(), read.max()))
        line = {"Crafted model": sent, "Disguise": how, **refusals(group)}
        lines.append(line | {"Still read": f"{mean} ({low} to {high}) {reads(sent)}"})
    return table(pd.DataFrame(lines))


def escapes(rows: pd.DataFrame) -> str:
    """Return a sentence on each kind's least refused disguise; among equals, the one that reads most."""
    best = dict[str, tuple[float, float, str]]()
    for sent, how, group, read in adapted(rows):
        refused, mean = group["refused"], read.mean()
        sentence = f"{sent} with {how} is refused {of(refused)} times and reads {number(mean)} {reads(sent)}"
        rank = refused.mean(), -mean, sentence
        best[sent] = min(best.get(sent, rank), rank)
    sentences = "; ".join(sentence for *_, sentence in best.values())
    return f"The disguises that are refused least: {sentences}."


def reads(sent: str) -> str:
    """Return the quantity of which a kind of attack recovers a share."""
    return READ[sent.partition(",")[0]]


def in_short(rows: pd.DataFrame) -> str:
    """Return one sentence with the counts over all."""
    fair, bad = rows[rows["sent"] == "honest"], rows[rows["sent"] != "honest"]
    plain = bad[(bad["noise"] == 0) & (bad["spared"] == 0)]
    hidden = bad.drop(plain.index)
    return (
        f"The inspection refused {of(plain['refused'])} models crafted as published, {of(hidden['refused'])} whose "
        f"server hides what the checks look for, and {of(fair['refused'])} honest models ({of(fair['weights'])} by the "
        f"weights alone). The honest models come from {fair.groupby(['net', 'trial']).ngroups} networks, too few to "
        "exclude a false-positive rate of a few per cent."
    )


def fragments() -> dict[str, str]:
    """Return the tables and sentences."""
    rows = Recorded("arena", device="cpu").best_rows("inspected")
    parts = (honest, crafted, disguised, escapes, in_short)
    return {f"inspected_{part.__name__}": part(rows) for part in parts}
