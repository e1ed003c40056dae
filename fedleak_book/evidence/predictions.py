"""Outcomes of predictions: claims that no paper makes, committed before a run, each a bound on a number or several."""

from collections.abc import Iterator

from fedleak_book.evidence.results import Number, Results
from fedleak_book.evidence.scoreboard import FAILED, HELD, NOT_ATTEMPTED

SIGNS = {NOT_ATTEMPTED: "–", FAILED: "✗", HELD: "✓"}
"""Of several bounds' outcomes, the first that is here counts."""


def ids(run: Results, letters: str = "") -> list[str]:
    """Return the predictions of a chapter, or those whose names begin with one of some letters."""
    starts = tuple(f"{run.paper}-{letter}" for letter in letters) or run.paper
    return [id for id in run.published.items if id.startswith(starts) and not id.endswith("-2")]


def table(run: Results, *of: str, anchors: bool = False) -> Iterator[dict[str, str]]:
    """Yield predictions as rows: name (an anchor, on one page), text, bounds, measurement, and whether all bounds hold.

    A second bound has its own id, ``ID-2``.
    """
    rows = {row["id"]: row for row in run.values}
    for id in of:
        bounds = [rows[key] for key in (id, f"{id}-2") if key in rows]
        outcomes = {row["verdict"] for row in bounds}
        tolerances = [f" ± {row['tolerance']:g}" * bool(row["tolerance"]) for row in bounds]
        yield {
            "": f'<a id="{id}"></a>' * anchors + id.rpartition("-")[2],
            "expected": bounds[0]["claim"],
            "bound": "; ".join(
                row["published"].replace("-", "−") + tolerance
                for row, tolerance in zip(bounds, tolerances, strict=True)
            ),
            "measured": bounds[0]["note"] or "; ".join(f"{Number.measured(row):.3g ci}" for row in bounds),
            "held": next(sign for word, sign in SIGNS.items() if word in outcomes),
        }
