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
    hits = {
        (c, n): int(of_network[c].sum())
        for c in CHECKS
        for n, of_network in rows.groupby("net", sort=False)
    }
    return (
        "; ".join(f"{CHECKS[c]}: {title(n)} {k}" for (c, n), k in hits.items() if k)
        or "–"
    )


def honest(rows: pd.DataFrame) -> str:
    """Return the false positives, one row per stage of training."""
    honest_rows = rows[rows["sent"] == "honest"]
    lines = []
    for stage, group in honest_rows.groupby("stage", sort=False):
        mixed, alike = (
            group[group["batch"] == batch] for batch in ("mixed", "one class")
        )
        lines.append(
            {
                "Honest model": "1 step" if stage == "1 steps" else stage,
                "Refused by its weights": of(mixed["weights"]),
                "with a mixed batch": of(mixed["refused"]),
                "with a batch of one class": of(alike["refused"]),
                "Found": hits_by_check(group),
            }
        )
    return table(pd.DataFrame(lines))


def crafted(rows: pd.DataFrame) -> str:
    """Return the true positives on models crafted as published, one row per kind."""
    crafted_rows = rows[
        (rows["sent"] != "honest") & (rows["noise"] == 0) & (rows["spared"] == 0)
    ]
    lines = [
        {
            "Crafted model": sent,
            "Refused by its weights": of(group["weights"]),
            "with a batch": of(group["refused"]),
            **{checks: int(group[name].sum()) for name, checks in CHECKS.items()},
        }
        for sent, group in crafted_rows.groupby("sent", sort=False)
    ]
    return table(pd.DataFrame(lines))


def adapted(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame, pd.Series]]:
    """Yield kind, disguise, rows and the remaining success per network, of the servers that recover anything."""
    for (sent, spared, noise), group in rows[rows["read"].notna()].groupby(
        ["sent", "spared", "noise"]
    ):
        how = (
            f"{spared:.0%} of units honest"
            if spared
            else f"noise {noise:g}"
            if noise
            else "as published"
        )
        yield sent, how, group, group.groupby("net")["read"].mean()


def disguised(rows: pd.DataFrame) -> str:
    """Return, per disguise, how often a server that knows the checks is refused, and what it still recovers."""
    lines = [
        {
            "Crafted model": sent,
            "Disguise": how,
            "Refused by its weights": of(group["weights"]),
            "with a batch": of(group["refused"]),
            "Still read": f"{number(read.mean())} ({number(read.min())} to {number(read.max())}) {reads(sent)}",
        }
        for sent, how, group, read in adapted(rows)
    ]
    return table(pd.DataFrame(lines))


def escapes(rows: pd.DataFrame) -> str:
    """Return a sentence on each kind's least refused disguise; among equals, the one that reads most."""
    best = dict[str, tuple[float, float, str]]()
    for sent, how, group, read in adapted(rows):
        sentence = f"{sent} with {how} is refused {of(group['refused'])} times and reads {number(read.mean())} {reads(sent)}"
        best[sent] = min(
            best.get(sent, (2.0, 0.0, "")),
            (group["refused"].mean(), -read.mean(), sentence),
        )
    return (
        "The disguises that are refused least: "
        + "; ".join(sentence for *_, sentence in best.values())
        + "."
    )


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
    tables = {
        "honest": honest,
        "crafted": crafted,
        "disguised": disguised,
        "escapes": escapes,
        "in_short": in_short,
    }
    return {f"inspected_{name}": make(rows) for name, make in tables.items()}
