"""Recompute randomly chosen cells of the recorded results, and compare them with the records.

A recorded table follows from a declared experiment and a seed: one of its settings is drawn, all its trials are
computed again, and every row that comes out is looked for in the record.
"""

import io
import random
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from fedleak.errors import DataNotFound
from fedleak_book import paths
from fedleak_book.experiments import records, running
from fedleak_book.experiments.context import Context
from fedleak_book.experiments.kinds import Kind
from fedleak_book.experiments.records import Record

SAME, CLOSE, DIFFERS, NEW, MISSING = "same", "within the interval", "differs", "new", "missing"
"""What a row can be: `NEW` is one of a setting that the record does not have, of something that was added since;
`MISSING` is a recorded one of the setting that does not come out."""
RELATIVE = 1e-3
"""Numbers agree to this: sums in another order, on another processor or with other threads, differ by less than that,
unless they turn the decision of a trial; then the mean of the trials stays within its interval."""
FEW = 0.1
"""Tolerance of means whose recorded trials are too few for an interval, relative to the largest value in the table if
all are rates or differences of rates, else relative to the recorded mean."""


def recorded(paper: str | None) -> dict[str, tuple[str, str, Record]]:
    """Return the records (of one paper) that can be computed again on a CPU, tables of times left out, by name.

    Each has its paper and profile.
    """
    tables = {}
    for path in (paths.root() / "data" / "results").glob(f"{paper or '*'}/**/*.csv"):
        profile = "quick" if path.parent.name == "quick" else "paper"
        chapter = path.parts[-3] if profile == "quick" else path.parts[-2]
        if record := records.recorded(chapter, path.stem, profile):
            averaged = {*record.declared["values"]} - {*record.declared["times"]}
            if record.facts["device"] == "cpu" and "trial" in record.rows and averaged:
                tables[f"{chapter}/{path.stem} ({profile})"] = chapter, profile, record
    return tables


def spot_check(paper: str | None, seed: int, budget: int, say: Callable[[str], None]) -> dict[str, pd.DataFrame]:
    """Recompute one setting of some recorded tables (of one paper), in the random order of a seed.

    Returns the rows of now by the table's name, with the ``verdict`` on each.

    The budget is seconds, by what the tables have cost when they were recorded, shared evenly among their settings.
    Tables of times, and of a GPU, are left out; one of a data set that is not here is passed over. If there are none,
    it is a `ValueError`.
    """
    draw, outcomes, spent = random.Random(seed), dict[str, pd.DataFrame](), 0.0
    tables = recorded(paper)
    if not tables:
        raise ValueError(f"no recorded results of {paper!r}" if paper else "there are no recorded results")
    queue = sorted(tables)
    draw.shuffle(queue)
    for name in queue:
        generator, (chapter, profile, record) = random.Random(draw.random()), tables[name]
        table, facts, joined_in = record.rows, record.facts, records.joined_in(chapter, record.name)
        try:
            experiment = running.named(chapter, joined_in or record.name)
        except ValueError as error:
            say(f"{name}: passed over, {str(error).partition('; ')[0]}")
            continue
        if experiment.version != (then := facts["declared"]["version"]):
            say(f"{name}: passed over, recorded by version {then} of the experiment, which is now {experiment.version}")
            continue
        settings = experiment.settings(profile, facts["trials"])
        if joined_in:
            axes = experiment.axes
            table = records.completed(record, axes, records.joins(chapter, joined_in)["joins"][record.name])
            cells = set(table[axes].map(_plain).itertuples(index=False, name=None))
            settings = [s for s in settings if tuple(_plain(s[axis]) for axis in axes) in cells]
        if spent + (cost := facts["seconds"] / len(settings)) > budget:
            continue
        unit = experiment, Context("cpu"), [generator.choice(settings)]
        with ExitStack() as stack:
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            # as many as the record was made in (the first of several): sums are in the same order
            torch.set_num_threads(facts["threads"] if isinstance(facts["threads"], int) else facts["threads"][0])
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            try:
                rows = running.run(chapter, *unit, seed=facts["seed"], folder=Path(folder))
            except DataNotFound as error:
                say(f"{name}: passed over, {str(error).splitlines()[0]}")
                continue
        spent += cost
        if rows.empty:
            say(f"{name}: passed over, the setting that was drawn has no rows")
            continue
        verdicts = compare(table, rows, experiment.declared if joined_in else facts["declared"])
        lost = missing(table, rows, experiment.axes, [*experiment.axes, *experiment.by])
        outcomes[name] = pd.concat([rows.assign(verdict=verdicts), lost.assign(verdict=MISSING)], ignore_index=True)
        verdicts += [MISSING] * len(lost)
        counts = ", ".join(f"{verdicts.count(v)} {v}" for v in (SAME, CLOSE, DIFFERS, NEW, MISSING) if v in verdicts)
        say(f"{name}: {len(rows)} of {len(table)} rows: {counts}")
    return outcomes


def compare(table: pd.DataFrame, rows: pd.DataFrame, declared: Mapping[str, Any]) -> list[str]:
    """Give each row a verdict: the recorded trial is the same, or its cell's mean is within the interval, or not."""
    # as the recorded ones have been: written, and an empty text read as a NaN
    rows = pd.read_csv(io.StringIO(rows.to_csv(index=False, float_format="%.7g")), dtype=records.NAMES)
    keys = [k for k in [*declared["axes"], *declared["by"]] if k in table and k in rows]
    kinds = {v: Kind(**kind) for v, kind in declared["kinds"].items() if v in table and v in rows}
    kinds = {v: kind for v, kind in kinds.items() if v not in declared["times"]}
    then = records.summarise(table, keys, kinds, declared["fixed"])
    table, rows, then = (t.assign(cell=t[keys].map(_plain).agg("|".join, axis=1)) for t in (table, rows, then))
    pairs = rows.reset_index().merge(table, on=["cell", "trial"], suffixes=("", " then"))
    now = rows.groupby("cell")[list(kinds)].mean().add_suffix(" now").join(then.set_index("cell"), how="inner")
    within = pd.Series(True, now.index)
    for v in kinds:
        pairs = pairs[_close(pairs[v], pairs[f"{v} then"], v in declared["rounding"])]
        half = FEW * (largest if (largest := table[v].abs().max()) <= 1 else now[v].abs())
        low, high = now[f"{v} low"].fillna(now[v] - half), now[f"{v} high"].fillna(now[v] + half)
        tiny = 1e-9 * now[v].abs()  # an interval can be a point, and a mean's last digit another
        within &= (now[f"{v} now"].isna() & now[v].isna()) | now[f"{v} now"].between(low - tiny, high + tiny)
        blank, blank_then = (t[v].isna().groupby(t["cell"]).mean().reindex(now.index) for t in (rows, table))
        within &= blank <= blank_then + FEW  # a mean leaves out what is NaN
    verdicts = rows["cell"].map(within.map({True: CLOSE, False: DIFFERS})).fillna(NEW)
    verdicts[pairs["index"]] = SAME
    return verdicts.tolist()


def missing(table: pd.DataFrame, rows: pd.DataFrame, axes: list[str], keys: list[str]) -> pd.DataFrame:
    """Return the recorded rows of these rows' setting and trials whose cell has none of them."""

    def joined(t: pd.DataFrame, columns: list[str]) -> pd.Series:
        return t[[c for c in columns if c in table and c in rows]].map(_plain).agg("|".join, axis=1)

    of_setting = joined(table, axes).isin(joined(rows, axes)) & table["trial"].isin(rows["trial"])
    return table[of_setting & ~joined(table, keys).isin(joined(rows, keys))]


def _plain(value: Any) -> str:
    """Return a number that is the same whether it was read as an integer or not, as text like any other value."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return str(float(value)) if number else str(value)


def _close(a: pd.Series, b: pd.Series, rounding: bool) -> Any:
    if not rounding:
        return np.isclose(a, b, rtol=RELATIVE, atol=1e-6, equal_nan=True)
    low, high = np.minimum(a.abs(), b.abs()), np.maximum(a.abs(), b.abs())
    # The same on the same processor, elsewhere of the same order of magnitude.
    return (high <= 10 * low) | (high < 1e-9)
