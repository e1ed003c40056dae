"""For the page on verdicts: what the papers do not print, and how well the transports hold."""

from itertools import groupby, product
from typing import Any

import numpy as np
import pandas as pd
from generated import comparisons
from render import keep, plain, table
from sphinx.application import Sphinx

from fedleak_book.experiments import choices, published, scoreboard, verdicts
from fedleak_book.experiments.choices import Choices
from fedleak_book.experiments.published import Published
from fedleak_book.experiments.status import Measured

Row = dict[str, Any]
FEWEST, PERMUTATIONS = 5, 2000
"""Values that a table has at least to be fitted, and permutations of them."""


def listed(papers: list[Row]) -> str:
    """Return every choice with its source, a table a paper."""
    parts = []
    for paper in papers:
        rows = [
            {
                "Setting": one.setting + f" ({', '.join(f'{k} {v}' for k, v in one.when.items())})" * bool(one.when),
                "Where": ", ".join(one.tables) or "all tables",
                "One choice for": f"the {one.tied}",
                "Choices": "<br>".join(
                    f"{value}: {plain(source)}" for value, source in zip(one.values, one.sources, strict=True)
                ),
            }
            for one in choices.load(paper["chapter"]).choices
        ]
        if rows:
            parts += [f"### {paper['title']}: what is not printed\n", table(pd.DataFrame(rows))]
    return "\n".join(parts)


def fitted(papers: list[Row]) -> str:
    """Return, for each table that was scanned, the joint choice that fits most of its values, and what chance fits."""
    rows = []
    for paper in papers:
        printed, name = published.load(paper["chapter"]), paper["chapter"]
        every = scoreboard.points(printed, scoreboard.kept(name))
        judged = {key: verdicts.judge(printed.items[key], name, found) for key, found in every.items()}
        scanned = [
            key
            for key, one in judged.items()
            if len(one.points) > 1 and any(map(verdicts.free, one.points)) and printed.items[key].kind == "value"
        ]
        for table_name, keys in groupby(scanned, key=lambda key: printed.items[key].table):
            own = list(keys)
            if len(own) >= FEWEST:
                items = [printed.items[key] for key in own]
                told = best(items, [judged[key].points for key in own], choices.load(name))
                rows.append({"Paper": paper["title"], "Table": table_name, **told})
    return table(pd.DataFrame(rows)) if rows else "Nothing was scanned yet."


def best(items: list[Published], points: list[tuple[Measured, ...]], rules: Choices) -> Row:
    """Return the joint choice that puts most values in their bands, and how often permuted values do as well.

    In each of `PERMUTATIONS` the published values of one metric change places, and the choice is searched anew.
    """
    free = [[verdicts.free(point) for point in own] for own in points]
    ranges: dict[str, tuple[Any, ...]] = {}
    for item, own in zip(items, free, strict=True):
        for setting in {name for one in own for name in one}:
            ranges[asked(item, setting)] = rules.of(item.table, setting, item.cell)
    joint = [dict(zip(ranges, values, strict=True)) for values in product(*ranges.values())]
    low, high = np.empty((len(joint), len(items))), np.empty((len(joint), len(items)))
    for j, (item, own) in enumerate(zip(items, points, strict=True)):
        for g, want in enumerate(joint):
            fits = (all(want[asked(item, k)] == v for k, v in one.items()) for one in free[j])
            here = next((point for point, fit in zip(own, fits, strict=False) if fit), None)
            low[g, j], high[g, j] = (here.low, here.high) if here else (np.nan, np.nan)  # not measured: in no band
    value, tolerance = (np.array([getattr(i, name) for i in items], dtype=float) for name in ("published", "tolerance"))

    def inside(at: np.ndarray) -> np.ndarray:
        return ((low >= at - tolerance - 1e-9) & (high <= at + tolerance + 1e-9)).sum(1)

    rng, found = np.random.default_rng(0), inside(value)
    columns = [np.flatnonzero([i.column == name for i in items]) for name in {i.column for i in items}]
    null = []
    for _ in range(PERMUTATIONS):
        moved = value.copy()
        for places in columns:
            moved[places] = value[rng.permutation(places)]
        null.append(inside(moved).max())
    chosen = ", ".join(f"{k} {v}" for k, v in joint[int(found.argmax())].items())
    return {
        "Fits best": plain(chosen),
        "In their bands": f"{found.max()} of {len(items)}",
        "Permuted values": f"{np.mean(null):.1f} in the mean",
        "p": f"{np.mean(np.array(null) >= found.max()):.2f}",
    }


def asked(item: Published, setting: str) -> str:
    """Name a setting that is chosen once for a table; widths by network, and compositions by scheme."""
    named = {"widths": "net", "composition": "scheme", "aux": "auxiliary"}.get(setting)
    return f"{setting} of {item.cell.get(named, '')}" if named else setting


def backtests(papers: list[Row]) -> str:
    """Return how often each transport covered what is known, and whether it counts."""
    rows = []
    for paper in papers:
        for name, one in choices.known(paper["chapter"]).items():
            share = f"{one.covered:,} of {one.values:,} ({one.covered / one.values:.0%})" if one.values else "none"
            row = {"Paper": paper["title"], "Record": f"`{name}`", "Covered": share}
            rows.append(row | {"Mean half-width": f"{one.half_width:.3f}", "Counts": "yes" if one.trusted else "no"})
    return table(pd.DataFrame(rows))


def write(app: Sphinx) -> None:
    """Write the fragments."""
    papers = comparisons()
    keep(app, {"choices": listed(papers), "fitted": fitted(papers), "backtests": backtests(papers)})


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
