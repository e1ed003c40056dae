"""For the page on verdicts: settings that the papers do not print, and the tests of the transports."""

from itertools import groupby, product
from typing import Any

import numpy as np
import pandas as pd
from generated import comparisons
from render import plain, table

from fedleak_book.experiments import choices, judged, published, verdicts
from fedleak_book.experiments.choices import Choices
from fedleak_book.experiments.published import Published
from fedleak_book.experiments.status import Measured

Row = dict[str, Any]
FEWEST, PERMUTATIONS = 5, 2000
"""Values that a table has at least to be fitted, and permutations of them."""


def listed(papers: list[Row]) -> str:
    """Return every choice with its source, one table per paper."""
    parts = []
    for paper in papers:
        rows = [
            {
                "Setting": choice.setting
                + f" ({', '.join(f'{k} {v}' for k, v in choice.when.items())})" * bool(choice.when),
                "Where": ", ".join(choice.tables) or "all tables",
                "One choice for": f"the {choice.tied}",
                "Choices": "<br>".join(
                    f"{value}: {plain(source)}" for value, source in zip(choice.values, choice.sources, strict=True)
                ),
            }
            for choice in choices.load(paper["chapter"]).choices
        ]
        if rows:
            parts += [f"### {paper['title']}: what is not printed\n", table(pd.DataFrame(rows))]
    return "\n".join(parts)


def fitted(papers: list[Row]) -> str:
    """Return, for each table that was scanned, the joint choice that fits most of its values, and what chance fits."""
    rows = []
    for paper in papers:
        printed, name = published.load(paper["chapter"]), paper["chapter"]
        every = judged.points(printed, judged.load_claims(name))
        judgements = {key: verdicts.judge(printed.items[key], name, measured) for key, measured in every.items()}
        scanned = [
            key
            for key, judgement in judgements.items()
            if len(judgement.points) > 1
            and any(map(verdicts.free, judgement.points))
            and printed.items[key].kind == "value"
        ]
        for table_name, keys in groupby(scanned, key=lambda key: printed.items[key].table):
            ids = list(keys)
            if len(ids) >= FEWEST:
                items = [printed.items[key] for key in ids]
                joint = best(items, [judgements[key].points for key in ids], choices.load(name))
                rows.append({"Paper": paper["title"], "Table": table_name, **joint})
    return table(pd.DataFrame(rows)) if rows else "Nothing was scanned yet."


def best(items: list[Published], points: list[tuple[Measured, ...]], rules: Choices) -> Row:
    """Return the joint choice that puts most values in their bands, and how often permuted values do as well.

    In each of `PERMUTATIONS` the published values of one metric change places, and the choice is searched anew.
    """
    free = [[verdicts.free(point) for point in measured] for measured in points]
    ranges: dict[str, tuple[Any, ...]] = {}
    for item, measured in zip(items, free, strict=True):
        for setting in {name for settings in measured for name in settings}:
            ranges[asked(item, setting)] = rules.of(item.table, setting, item.cell)
    joint = [dict(zip(ranges, values, strict=True)) for values in product(*ranges.values())]
    low, high = np.empty((len(joint), len(items))), np.empty((len(joint), len(items)))
    for j, (item, measured) in enumerate(zip(items, points, strict=True)):
        for g, want in enumerate(joint):
            fits = (all(want[asked(item, k)] == v for k, v in settings.items()) for settings in free[j])
            fitting = next((point for point, fit in zip(measured, fits, strict=False) if fit), None)
            # a choice that was not measured is in no band
            low[g, j], high[g, j] = (fitting.low, fitting.high) if fitting else (np.nan, np.nan)
    value, tolerance = (np.array([getattr(i, name) for i in items], dtype=float) for name in ("published", "tolerance"))

    def inside(at: np.ndarray) -> np.ndarray:
        return ((low >= at - tolerance - 1e-9) & (high <= at + tolerance + 1e-9)).sum(1)

    rng, hits = np.random.default_rng(0), inside(value)
    columns = [np.flatnonzero([i.column == name for i in items]) for name in {i.column for i in items}]
    null = []
    for _ in range(PERMUTATIONS):
        moved = value.copy()
        for places in columns:
            moved[places] = value[rng.permutation(places)]
        null.append(inside(moved).max())
    chosen = ", ".join(f"{k} {v}" for k, v in joint[int(hits.argmax())].items())
    return {
        "Fits best": plain(chosen),
        "In their bands": f"{hits.max()} of {len(items)}",
        "Permuted values": f"{np.mean(null):.1f} on average",
        "p": f"{np.mean(np.array(null) >= hits.max()):.2f}",
    }


def asked(item: Published, setting: str) -> str:
    """Name a setting that is chosen once for a table; widths by network, and compositions by scheme."""
    named = {"widths": "net", "composition": "scheme", "aux": "auxiliary"}.get(setting)
    return f"{setting} of {item.cell.get(named, '')}" if named else setting


def backtests(papers: list[Row]) -> str:
    """Return how often each transport covered what is known, and whether it counts."""
    rows = []
    for paper in papers:
        for name, test in choices.load_backtests(paper["chapter"]).items():
            share = f"{test.covered:,} of {test.values:,} ({test.covered / test.values:.0%})" if test.values else "none"
            row = {"Paper": paper["title"], "Record": f"`{name}`", "Covered": share}
            rows.append(row | {"Mean half-width": f"{test.half_width:.3f}", "Counts": "yes" if test.trusted else "no"})
    return table(pd.DataFrame(rows))


def fragments() -> dict[str, str]:
    """Return the fragments by name."""
    papers = comparisons()
    return {"choices": listed(papers), "fitted": fitted(papers), "backtests": backtests(papers)}
