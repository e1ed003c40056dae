"""Recompute randomly chosen cells of the recorded results, and compare them with what is recorded.

A recorded table follows from a declared experiment and a seed: one of its settings is drawn, all its trials are
computed again, and every row that comes out is looked for in the record.
"""

import io
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from fedleak import paths
from fedleak.errors import DataNotFound
from fedleak.experiments import records, running
from fedleak.experiments.context import Context
from fedleak.intervals import Kind

SAME, CLOSE, DIFFERS, NEW = "same", "within the interval", "differs", "new"
"""What a row can be: `NEW` is one of a setting that the record does not have, of something that was added since."""
RELATIVE = 1e-3
"""Numbers agree to this: sums in another order, on another processor or with other threads, differ by less than that,
unless they turn the decision of a trial; then the mean of the trials stays within its interval."""
FEW = 0.1
"""Where the recorded trials are too few for an interval, means agree to this share: of the largest value in the table
if all are rates or differences of rates, else of the recorded mean."""


class Record(NamedTuple):
    """A recorded table, and where it comes from."""

    paper: str
    artefact: str
    profile: str
    table: pd.DataFrame
    facts: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.paper}/{self.artefact} ({self.profile})"


class Outcome(NamedTuple):
    """What came of one table: its rows, and the verdict on each."""

    record: Record
    rows: pd.DataFrame
    verdicts: list[str]


def recorded(paper: str | None = None) -> list[Record]:
    """Return the recorded tables (of one paper) that can be computed again on a CPU, tables of times left out."""
    found = []
    for folder in sorted((paths.root() / "data" / "results").iterdir()):
        for profile in ("quick", "paper") if paper in (None, folder.name) else ():
            for path in sorted(paths.recorded(folder.name, profile).glob("*.csv")):
                if one := records.recorded(folder.name, path.stem, profile):
                    told, cpu = one[1]["declared"], one[1]["device"] == "cpu"
                    if cpu and "trial" in one[0] and set(told["values"]) - set(told["times"]):
                        found.append(Record(folder.name, path.stem, profile, *one))
    return found


def spot_check(chosen: Iterable[Record], seed: int, budget: float, say: Callable[[str], None] = print) -> list[Outcome]:
    """Recompute one setting of some of these tables, in the random order of a seed, for as long as the budget lasts.

    The budget is seconds, by what the tables have cost when they were recorded, shared evenly among their settings. A
    table of a data set that is not here is passed over.
    """
    draw = random.Random(seed)
    queue = sorted(chosen, key=str)
    draw.shuffle(queue)
    outcomes, spent = [], 0.0
    contexts: dict[tuple[str, str], Context] = defaultdict(lambda: Context("cpu"))
    for record in queue:
        own, facts = random.Random(draw.random()), record.facts
        experiment = running.declared(record.paper).get(record.artefact)
        if experiment is None:
            say(f"{record}: passed over, its notebook declares no such experiment")
            continue
        settings = experiment.settings(record.profile, facts["trials"])
        if spent + (cost := facts["seconds"] / len(settings)) > budget:
            continue
        where = experiment, contexts[record.paper, record.profile], [own.choice(settings)]
        try:
            with _threads(facts["threads"]), tempfile.TemporaryDirectory() as folder:
                rows = running.run(record.paper, *where, seed=facts["seed"], folder=Path(folder))
        except DataNotFound as error:
            say(f"{record}: passed over, {str(error).splitlines()[0]}")
            continue
        spent += cost
        if rows.empty:
            say(f"{record}: passed over, the setting that was drawn has no rows")
            continue
        verdicts = compare(record.table, rows, facts["declared"])
        outcomes.append(Outcome(record, rows, verdicts))
        counts = ", ".join(f"{verdicts.count(v)} {v}" for v in (SAME, CLOSE, DIFFERS, NEW) if v in verdicts)
        say(f"{record}: {len(rows)} of {len(record.table)} rows: {counts}")
    return outcomes


@contextmanager
def _threads(count: int | list[int]) -> Iterator[None]:
    """Compute in as many threads as a record was made in (the first of several): sums are in the same order."""
    before = torch.get_num_threads()
    torch.set_num_threads(count if isinstance(count, int) else count[0])
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compare(table: pd.DataFrame, rows: pd.DataFrame, declaration: Mapping[str, Any]) -> list[str]:
    """Give each row a verdict: the recorded trial is the same, or its cell's mean is within the interval, or not."""
    # as the recorded ones have been: written, and an empty text read as a NaN
    rows = pd.read_csv(io.StringIO(rows.to_csv(index=False, float_format="%.7g")))
    keys = [k for k in [*declaration["axes"], *declaration["by"]] if k in table and k in rows]
    values = [v for v in declaration["values"] if v in table and v in rows and v not in declaration["times"]]
    table, rows = (
        t.assign(cell=[tuple(map(_plain, k)) for k in t[keys].itertuples(index=False)]) for t in (table, rows)
    )
    pairs = rows.reset_index().merge(table, on=["cell", "trial"], suffixes=("", " then"))
    for v in values:
        pairs = pairs[_close(pairs[v], pairs[f"{v} then"], v in declaration["rounding"])]
    old, same = dict(iter(table.groupby("cell"))), {*pairs["index"]}
    verdicts = pd.Series(NEW, rows.index)
    for cell, group in rows.groupby("cell"):
        if cell in old:
            verdicts[group.index] = CLOSE if _within(group, old[cell], table[values], declaration) else DIFFERS
    return [SAME if place in same else verdict for place, verdict in verdicts.items()]


def _plain(value: Any) -> Hashable:
    """Return a number that is the same whether it was read as an integer or not, other values as text, NaN as None."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return None if pd.isna(value) else float(value) if number else str(value)


def _close(a: pd.Series, b: pd.Series, rounding: bool) -> Any:
    if not rounding:
        return np.isclose(a, b, rtol=RELATIVE, atol=1e-6, equal_nan=True)
    low, high = np.minimum(a.abs(), b.abs()), np.maximum(a.abs(), b.abs())
    # The same on the same processor, elsewhere of the same order of magnitude.
    return (high <= 10 * low) | (high < 1e-9)


def _within(group: pd.DataFrame, known: pd.DataFrame, values: pd.DataFrame, declaration: Mapping[str, Any]) -> bool:
    """Say whether the new means lie within the intervals of the recorded ones; the values are of the whole table."""
    kinds = {v: Kind(**declaration["kinds"][v]) for v in values}
    settings = {**declaration["fixed"], **known.iloc[0].to_dict()}
    then = records.summarise(known.assign(cell=0), ["cell"], kinds, settings).iloc[0]
    for v, now in group[list(values)].mean().dropna().items():
        low, high = then[f"{v} low"], then[f"{v} high"]
        if pd.isna(low):
            largest = values[v].abs().max()
            half = FEW * (largest if largest <= 1 else abs(then[v]))
            low, high = then[v] - half, then[v] + half
        if not low <= now <= high:
            return False
    return True
