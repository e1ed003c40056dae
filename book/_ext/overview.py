"""Counts of the scoreboard, tests of the transports and dates of the tolerances: one fragment each."""

from collections.abc import Iterable
from typing import Any

import pandas as pd
from generated import comparisons
from render import table

from fedleak_book.evidence import effects, scoreboard
from fedleak_book.evidence.scoreboard import BEYOND, DECIDED, DEPENDS, DIFFERS, NOT_ATTEMPTED, OPEN, PRINTED
from fedleak_book.evidence.verdicts import BLOCKS

Row = dict[str, Any]
ADAPTED = ("LLG+", "ZLG+")
"""Attacks that RLU's paper compares with in a form for several steps that it does not print."""
WHEN = {
    "none": "no row of the experiment existed",
    "earlier": "rows of it existed, which were recorded anew since",
    "used": "the rows that measure it existed",
}


def every(papers: list[Row]) -> pd.DataFrame:
    """Return the papers' values, predictions and our own extensions, a row each, the papers in the book's order."""
    rows = [row | {"Paper": paper["title"], "chapter": paper["chapter"]} for paper in papers for row in paper["rows"]]
    frame = pd.DataFrame(rows)
    return frame.assign(Paper=pd.Categorical(frame["Paper"], frame["Paper"].unique()))


def cross_table(values: pd.DataFrame, rows: list[str], column: str, order: Iterable[str], zero: object = 0) -> str:
    """Count values by some of their columns: a row for each combination of the first ones, the last one's beside it."""
    counts = pd.crosstab([values[name] for name in rows], values[column]).reindex(columns=[*order], fill_value=0)
    return table(counts.replace(0, zero).reset_index())


def in_the_way(values: pd.DataFrame) -> str:
    """Count, by paper, the obstacles between values and a verdict of grade A; a value may have several."""
    each = values.explode("blocks").fillna({"blocks": "nothing"})
    return cross_table(each, ["Paper"], "blocks", ("nothing", *BLOCKS), "·")


def in_short(values: pd.DataFrame) -> str:
    """Count the values by verdict, one row per paper and grade; our own extensions have rows of their own."""
    link = "[" + values["Paper"].astype(str) + "](/notebooks/" + values["chapter"] + ".ipynb)"
    chapter = link + values["of"].map({BEYOND: ", our own extensions"}).fillna("")
    names = [name for _, of in chapter.groupby(values["Paper"]) for name in sorted(of.unique())]
    shown = values.assign(Chapter=pd.Categorical(chapter, names), Grade=values["grade"].replace("", "–"))
    return cross_table(shown, ["Chapter", "Grade"], "verdict", (*DECIDED, OPEN, DEPENDS, NOT_ATTEMPTED), "·")


def counted(values: pd.DataFrame) -> dict[str, Any]:
    """Count the papers' values, by grade those that have a verdict, and of those that differ the adapted attacks'."""
    numbers: dict[str, Any] = scoreboard.count(values.to_dict("records"))
    for grade, of_grade in values["grade"].value_counts().items():
        verdicts = {word: numbers[grade][word] for word in DECIDED if grade and numbers[grade][word]}
        words = ", ".join(f"{n} {word}" for word, n in verdicts.items())
        numbers[grade] = {"all": int(of_grade), "count": sum(verdicts.values()), "verdicts": words}
    differ = values[(values["verdict"] == DIFFERS) & values["grade"].isin([*"ABC"])]
    adapted = (differ["chapter"] == "rlu") & differ["metric"].str.endswith(ADAPTED)
    return numbers | {"differ": len(differ), "adapted": int(adapted.sum())}


def backtests(papers: list[Row]) -> str:
    """Return how often each transport covered what is known, and whether it counts."""
    rows = []
    for paper in papers:
        for name, test in effects.load_backtests(paper["chapter"]).items():
            share = f"{test.covered:,} of {test.values:,} ({test.covered / test.values:.0%})" if test.values else "none"
            row = {"Paper": paper["title"], "Record": f"`{name}`", "Covered": share}
            rows.append(row | {"Mean half-width": f"{test.half_width:.3f}", "Counts": "yes" if test.trusted else "no"})
    return table(pd.DataFrame(rows))


def fragments() -> dict[str, Any]:
    """Return the fragments by name."""
    papers = comparisons()
    values = every(papers)
    printed = values[values["of"] == PRINTED]
    tolerances = {"all": len(values), "before": int((values["rows"] == "none").sum())}
    return {
        "in_the_way": in_the_way(printed),
        "scoreboard_in_short": in_short(values[values["of"].isin([PRINTED, BEYOND])]),
        "papers": counted(printed),
        "backtests": backtests(papers),
        "written": cross_table(values.replace({"rows": WHEN}), ["Paper"], "rows", WHEN.values()),
        "tolerances": tolerances | {"later": tolerances["all"] - tolerances["before"]},
    }
