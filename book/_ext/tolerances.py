"""For the page on verdicts: the dates of the tolerances, and the correlation between the labels of a trial."""

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
from generated import comparisons
from render import table

from fedleak_book import paths
from fedleak_book.experiments import notebooks, records
from fedleak_book.experiments.kinds import Kind

WHEN = {
    "none": "no row of the experiment existed",
    "earlier": "rows of it existed, which were recorded anew since",
    "used": "the rows that measure it existed",
}
ENOUGH = 5
"""Trials that a variance is taken of."""


def written(papers: list[dict[str, Any]]) -> str:
    """Count the values whose tolerance was written before rows of ours existed, and the others."""
    every = {paper["title"]: Counter(row["rows"] for row in paper["rows"]) for paper in papers}
    total = sum(every.values(), Counter[str]())
    lines = [{"Paper": name, **{text: entry[key] for key, text in WHEN.items()}} for name, entry in every.items()]
    late = [row["id"] for paper in papers for row in paper["rows"] if row["rows"] != "none"]
    return (
        f"{sum(total.values())} values and claims have a tolerance. {total['none']} were written down before any row "
        f"of their experiment existed. The other {len(late)} are claims of the papers' texts that were "
        f"entered later; their entries in `data/published/` say which rows existed then.\n\n"
        + table(pd.DataFrame(lines))
    )


def correlations(chapter: str) -> list[float]:
    """Return, for each recorded cell of a rate, the correlation of two labels of a trial: (deff − 1) / (m − 1).

    deff is the variance of the trials over that of m labels drawn one by one, p (1 − p) / m.
    """
    coefficients = []
    for path in sorted(paths.recorded(chapter).glob("*.csv")):
        rows, facts = records.recorded(chapter, path.stem) or (pd.DataFrame(), {})
        declared = facts["declared"]
        by = [column for column in [*declared["axes"], *declared["by"]] if column in rows]
        for value, written in declared["kinds"].items():
            kind = Kind(**written)
            if kind.name != "rate" or value not in rows or "trial" not in rows:
                continue
            for keys, group in records.units(rows, by, [value]).groupby(by, sort=False, dropna=False):
                cell_values, cell = group[value].dropna(), {**declared["fixed"], **dict(zip(by, keys, strict=True))}
                ((m,), p) = kind.settled(cell).labels, cell_values.mean()
                if len(cell_values) >= ENOUGH and m > 1 and 0 < p < 1:
                    coefficients.append((cell_values.var() / (p * (1 - p) / m) - 1) / (m - 1))
    return coefficients


def label_correlations() -> str:
    """Return the correlation between the labels of a trial, one row per chapter."""
    lines = []
    for chapter in notebooks.chapters():
        coefficients = np.array(correlations(chapter))
        if len(coefficients):
            shares = {"above 0.05": (coefficients > 0.05).mean(), "above 0.3": (coefficients > 0.3).mean()}
            percentages = {name: f"{share:.0%}" for name, share in shares.items()}
            lines.append(
                {
                    "Chapter": f"`{chapter}`",
                    "Cells": len(coefficients),
                    "Median": np.median(coefficients),
                    **percentages,
                }
            )
    return (
        "(hanging-together)=\nCorrelation between two labels of a trial, over the recorded cells of rates with at "
        "least five trials:\n\n" + table(pd.DataFrame(lines))
    )


def fragments() -> dict[str, str]:
    """Return the fragments by name."""
    return {"written": written(comparisons()), "hanging_together": label_correlations()}
