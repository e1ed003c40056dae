"""A statistic of an experiment's cells, with an interval: a bootstrap over the trials."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fedleak.intervals import MIN_EQUAL_VALUES, MIN_VALUES
from fedleak_book.evidence.spread import MOST
from fedleak_book.experiments import records
from fedleak_book.experiments.kinds import NUMBER, Kind, stretch

RESAMPLES, ROW_RESAMPLES = 400, 100
Statistic = Callable[..., float]
Where = Mapping[str, Any] | Callable[[pd.DataFrame], Any]


def matching_rows(rows: pd.DataFrame, filters: Where | None) -> pd.DataFrame:
    """Return the rows that a claim or a cell is about; see `Claim`."""
    if callable(filters):
        return rows[filters(rows)]
    for column, value in (filters or {}).items():
        rows = rows[rows[column].isin(value if isinstance(value, list) else [value])]
    return rows


@dataclass(frozen=True)
class Having:
    """A condition on rows: these values (a list: one of them) in the columns that the rows have."""

    settings: Mapping[str, Any]

    def __call__(self, rows: pd.DataFrame) -> pd.Series:
        """Return which rows fulfil it."""
        keep = pd.Series(True, rows.index)
        for name in {*self.settings} & {*rows}:
            keep &= rows[name].isin(np.atleast_1d(self.settings[name]))
        return keep


def having(**settings: Any) -> Having:
    """Return the condition that rows have these values in the columns that they have."""
    return Having(settings)


class Cells:
    """The means of one value by the cells that some columns make, and its trials: the same in every cell, in pairs.

    Recorded cells that have no trials any more have means alone. The values of the column `wide` become the columns of
    the statistic's frame; without it the statistic gets a series.
    """

    def __init__(self, rows: pd.DataFrame, by: Sequence[str], value: str, wide: str | None):
        varying = [c for c in by if c in rows and (c == wide or rows[c].nunique(dropna=False) > 1)]
        keys = varying or [by[0]]
        self.rows, self.place = rows, rows.groupby(keys, dropna=False).ngroup()
        numbered = rows.assign(cell=self.place, trial=rows.get("trial", 0))
        grid = records.units(numbered, ["cell"], [value]).pivot(index="cell", columns="trial", values=value)
        values = grid.to_numpy(dtype=float)
        counts = (~np.isnan(values)).sum(axis=1)
        self.means = np.nansum(values, axis=1) / np.where(counts, counts, np.nan)
        self.trials = [cell[~np.isnan(cell)] for cell in values] if "trial" in rows else []
        self.n = min(map(len, self.trials)) if "trial" in rows else int(rows.get("n", pd.Series([0])).min())
        places = numbered.drop_duplicates("cell").set_index(keys)["cell"].sort_values()
        self.places: Any = places.unstack(wide, fill_value=-1) if wide and len(keys) > 1 else places

    def frame(self, means: np.ndarray) -> Any:
        """Return means as the statistic takes them."""
        return type(self.places)(np.append(means, np.nan)[self.places.to_numpy()], *self.places.axes)


def needed(statistic: Statistic, cells: Sequence[Cells]) -> list[pd.DataFrame]:
    """Return the rows of the cells that a statistic depends on: whose mean, very large or very small, changes it.

    A value far outside moves a mean, an extreme, a count of what is above a line, and a difference alike; a cell that
    moves none of them takes no part, and its settings say nothing about the claim.
    """
    means, decisive = [table.means.copy() for table in cells], []

    def moved(changed: np.ndarray, place: int, far: float) -> bool:
        before, changed[place] = changed[place], far
        try:
            return _value(statistic, cells, means) != plain
        except (ArithmeticError, KeyError, IndexError, ValueError):
            return True
        finally:
            changed[place] = before

    plain = _value(statistic, cells, means)
    for changed, table in zip(means, cells, strict=True):
        chosen = [p for p in range(len(changed)) if any(moved(changed, p, far) for far in (1e6, -1e6, math.nan))]
        decisive.append(table.rows[table.place.isin(chosen)] if chosen else table.rows)
    return decisive


def _value(statistic: Statistic, cells: Sequence[Cells], means: Iterable[np.ndarray]) -> float:
    return float(statistic(*(table.frame(values) for table, values in zip(cells, means, strict=True))))


def estimate(statistic: Statistic, cells: Sequence[Cells], kind: Kind = NUMBER) -> tuple[float, float, float, int]:
    """Return a statistic of some experiments' cells with its 95 % interval, and the smallest number of trials.

    A bootstrap over the trials, with the ends that `_bounds` says, widened as a mean's interval is. Without trial rows,
    or with fewer than three trials, there is no interval.
    """
    value, n = _value(statistic, cells, [cell_set.means for cell_set in cells]), min(cell_set.n for cell_set in cells)
    if n < MIN_VALUES or not all(cell_set.trials for cell_set in cells):
        return value, math.nan, math.nan, n
    rng = np.random.default_rng(0)
    sizes = sorted({len(cell) for cell_set in cells for cell in cell_set.trials})
    draws = {size: rng.integers(size, size=(RESAMPLES, size)) for size in sizes}
    means = [np.array([cell[draws[len(cell)]].mean(1) for cell in cell_set.trials]) for cell_set in cells]
    resampled = [_value(statistic, cells, [values[:, b] for values in means]) for b in range(RESAMPLES)]
    return value, *_bounds(value, resampled, n, kind), n


def by_trial(statistic: Statistic, cells: Sequence[Cells]) -> list[float]:
    """Return the statistic of each trial alone; nothing where cells differ in their trials, or there are many."""
    sizes = {len(cell) for cell_set in cells for cell in cell_set.trials}
    if len(sizes) != 1 or not all(cell_set.trials for cell_set in cells) or max(sizes) > MOST:
        return []
    alone = ([np.array([cell[k] for cell in c.trials]) for c in cells] for k in range(*sizes))
    return [_value(statistic, cells, means) for means in alone]


def _bounds(value: float, resampled: Sequence[float], n: int, kind: Kind) -> tuple[float, float]:
    """Return the percentiles of a bootstrap, as far out as Student's t is for n trials.

    Below ten trials no resample goes that far: the usual percentiles are then farther from the value by as much.
    """
    tail = 100 * float(stats.norm.sf(stats.norm.ppf(0.975) * (stretch(n) if n >= MIN_EQUAL_VALUES else 1)))
    low, high = np.nanpercentile(resampled, [tail, 100 - tail]).tolist()
    if n < MIN_EQUAL_VALUES:
        below, above = max(0.0, value - low), max(0.0, high - value)
        low, high = value - stretch(n) * below, value + stretch(n) * above
    return kind.widened(value, low, high, n)


def of_rows(statistic: Statistic, rows: pd.DataFrame, kind: Kind = NUMBER) -> tuple[float, float, float, int]:
    """Return a statistic of trial rows with its 95 % interval: for what is no function of the cells' means."""
    value, n = float(statistic(rows)), int(rows["trial"].nunique()) if "trial" in rows else 0
    if n < MIN_VALUES:
        return value, math.nan, math.nan, n
    rng, places = np.random.default_rng(0), rows.reset_index(drop=True).groupby("trial").indices
    resampled = []
    for draw in rng.integers(n, size=(ROW_RESAMPLES, n)):
        chosen = [places[t] for t in np.array(list(places))[draw]]
        numbered = np.repeat(np.arange(n), [len(c) for c in chosen])
        resampled.append(float(statistic(rows.iloc[np.concatenate(chosen)].assign(trial=numbered))))
    return value, *_bounds(value, resampled, n, kind), n
