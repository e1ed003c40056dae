"""Recompute randomly chosen cells of the recorded results, and compare them with what is recorded.

A recorded table follows from a declared experiment and a seed: one of its settings is drawn, all its trials are
computed again, and every row that comes out is looked for in the record.
"""

import io
import random
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from fedleak import paths
from fedleak.chapters import Context, Experiment, running
from fedleak.errors import DataNotFound
from fedleak.experiments import records
from fedleak.intervals import Kind

Way = tuple[list[dict[str, Any]], Callable[[dict[str, Any], Path], pd.DataFrame]]
SAME, CLOSE, DIFFERS, NEW = "same", "within the interval", "differs", "new"
"""What a row can be: `NEW` is one of a setting that the record does not have, of something that was added since."""
RELATIVE = 1e-3
"""Numbers agree to this: sums in another order, on another processor or with other threads, differ by less than that,
unless they turn the decision of a trial; then the mean of the trials stays within its interval."""
FEW = 0.1
"""Where the recorded trials are too few for an interval, means agree to this share: of the largest value in the table
if all are rates or differences of rates, else of the recorded mean."""


@dataclass(frozen=True)
class Record:
    """A recorded table, and where it comes from."""

    paper: str
    artefact: str
    profile: str
    facts: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.paper}/{self.artefact} ({self.profile})"

    @property
    def table(self) -> pd.DataFrame:
        """The recorded rows."""
        found = records.recorded(self.paper, self.artefact, self.profile)
        if found is None:
            raise FileNotFoundError(f"{self} is not recorded")
        return found[0]


@dataclass(frozen=True)
class Outcome:
    """What came of one table: its rows, and the verdict on each."""

    record: Record
    rows: pd.DataFrame
    verdicts: Sequence[str]


def recorded(paper: str | None = None) -> list[Record]:
    """Return the recorded tables (of one paper) that can be computed again on a CPU, tables of times left out."""
    found = []
    for folder in sorted((paths.root() / "data" / "results").iterdir()):
        for profile in ("quick", "paper") if paper in (None, folder.name) else ():
            for path in sorted(paths.recorded(folder.name, profile).glob("*.csv")):
                one = records.recorded(folder.name, path.stem, profile)
                if one is None or one[1]["device"] != "cpu" or "trial" not in one[0]:
                    continue
                declaration = one[1]["declared"]
                if set(declaration["values"]) - set(declaration["times"]):
                    found.append(Record(folder.name, path.stem, profile, one[1]))
    return found


def spot_check(chosen: Iterable[Record], seed: int, budget: float, say: Callable[[str], None] = print) -> list[Outcome]:
    """Recompute one setting of some of these tables, in random order, for as long as the budget lasts.

    Parameters
    ----------
    chosen
        The tables to draw from; those of a data set that is not here are passed over.
    seed
        Decides on the tables and on the setting in them.
    budget
        Seconds, by what the tables have cost when they were recorded, shared evenly among their settings.
    say
        Where to say what is checked.
    """
    draw = random.Random(seed)
    queue = sorted(chosen, key=str)
    draw.shuffle(queue)
    outcomes, spent = [], 0.0
    ways: dict[tuple[str, str], dict[str, Way]] = {}
    for record in queue:
        own = random.Random(draw.random())
        key = (record.paper, record.profile)
        if key not in ways:
            facts = {k: record.facts[k] for k in ("seed", "trials")}
            ways[key] = _ways(record.paper, record.profile, **facts)
        if record.artefact not in ways[key]:
            say(f"{record}: passed over, its notebook declares no such experiment")
            continue
        settings, compute = ways[key][record.artefact]
        cost = record.facts["seconds"] / len(settings)
        if spent + cost > budget:
            continue
        try:
            rows = recompute(settings, compute, own, record.facts["threads"])
        except DataNotFound as error:
            say(f"{record}: passed over, {str(error).splitlines()[0]}")
            continue
        spent += cost
        if rows.empty:
            say(f"{record}: passed over, the setting that was drawn has no rows")
            continue
        verdicts = compare(record.table, rows, record.facts["declared"])
        outcomes.append(Outcome(record, rows, verdicts))
        counts = ", ".join(f"{verdicts.count(v)} {v}" for v in (SAME, CLOSE, DIFFERS, NEW) if v in verdicts)
        say(f"{record}: {len(rows)} of {len(record.table)} rows: {counts}")
    return outcomes


def _ways(paper: str, profile: str, seed: int, trials: int) -> dict[str, Way]:
    """Return, by experiment of a chapter, its settings, and what computes one of them, without its finished units."""
    context = Context("cpu")

    def run(experiment: Experiment, setting: dict[str, Any], folder: Path) -> pd.DataFrame:
        return running.run(paper, experiment, context, [setting], seed=seed, folder=folder)

    declared = running.declared(paper)
    return {name: (e.settings(profile, trials), partial(run, e)) for name, e in declared.items()}


def recompute(
    settings: Sequence[dict[str, Any]],
    compute: Callable[[dict[str, Any], Path], pd.DataFrame],
    draw: random.Random,
    threads: int | Sequence[int],
) -> pd.DataFrame:
    """Compute the rows of one setting of an experiment, drawn at random, without its cache.

    In as many threads as the record was made in, so that sums are in the same order; of several numbers in the first.
    """
    setting, before = draw.choice(settings), torch.get_num_threads()
    torch.set_num_threads(threads if isinstance(threads, int) else threads[0])
    try:
        with tempfile.TemporaryDirectory() as folder:
            rows = compute(setting, Path(folder))
    finally:
        torch.set_num_threads(before)
    return rows.drop(columns="seed", errors="ignore")


def compare(table: pd.DataFrame, rows: pd.DataFrame, declaration: Mapping[str, Any]) -> list[str]:
    """Give each row a verdict: the recorded trial is the same, or its cell's mean is within the interval, or not."""
    # as the recorded ones have been: written, and an empty text read as a NaN
    rows = pd.read_csv(io.StringIO(rows.to_csv(index=False, float_format="%.7g")))
    keys = [k for k in [*declaration["axes"], *declaration["by"]] if k in table and k in rows]
    values = [v for v in declaration["values"] if v in table and v in rows and v not in declaration["times"]]
    old = {name: group for name, group in table.groupby(keys, dropna=False)}
    verdicts = [NEW] * len(rows)
    for name, group in rows.groupby(keys, dropna=False):
        known = next((g for n, g in old.items() if all(_equal(a, b) for a, b in zip(n, name, strict=True))), None)
        for place, row in group.iterrows() if known is not None else ():
            same = _found(row, known, values, declaration["rounding"])
            verdicts[place] = SAME if same else CLOSE if _within(group, known, table[values], declaration) else DIFFERS
    return verdicts


def _equal(a: Any, b: Any) -> bool:
    missing = pd.isna(a), pd.isna(b)
    return all(missing) if any(missing) else str(a) == str(b) or a == b


def _found(row: pd.Series, known: pd.DataFrame, values: Sequence[str], rounding: Sequence[str]) -> bool:
    """Say whether one of the rows of the same trial has the same values."""
    same = known[known["trial"] == row["trial"]]
    return any(all(_close(row[v], other[v], v in rounding) for v in values) for _, other in same.iterrows())


def _close(a: float, b: float, rounding: bool) -> bool:
    if rounding:  # the same on the same processor, elsewhere of the same order of magnitude
        return max(abs(a), abs(b)) <= 10 * min(abs(a), abs(b)) or max(abs(a), abs(b)) < 1e-9
    return bool(np.isclose(a, b, rtol=RELATIVE, atol=1e-6, equal_nan=True))


def _within(group: pd.DataFrame, known: pd.DataFrame, values: pd.DataFrame, declaration: Mapping[str, Any]) -> bool:
    """Say whether the new means lie within the intervals of the recorded ones; the values are of the whole table."""
    kinds = {v: Kind(**declaration["kinds"][v]) for v in values}
    settings = {**declaration["fixed"], **known.iloc[0].to_dict()}
    then = records.summarise(known.assign(cell=0), ["cell"], kinds, settings).iloc[0]
    now, largest = group[list(values)].mean(), values.abs().max()

    def agrees(v: str) -> bool:
        if pd.isna(then[f"{v} low"]):
            scale = largest[v] if largest[v] <= 1 else abs(then[v])
            return bool(abs(now[v] - then[v]) <= FEW * scale)
        return bool(then[f"{v} low"] <= now[v] <= then[f"{v} high"])

    return all(agrees(v) for v in values if not pd.isna(now[v]))
