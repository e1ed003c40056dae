"""What a paper says in words, measured: a statistic of an experiment's cells, with an interval over its trials."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fedleak.experiments import records
from fedleak.experiments.records import RECORDED
from fedleak.experiments.status import Measured
from fedleak.intervals import LEAST, NUMBER, POINT, Kind, stretch, widened

RESAMPLES = 400
Statistic = Callable[..., float]


def said(id: str, number: float | None, reading: str, note: str) -> Measured:
    """Return a number that a chapter has worked out itself, which is exact; None was not tried."""
    exact = number is not None
    return Measured(id, number, exact=exact, n=int(exact), source=RECORDED, reading=reading, note=note)


class Cells:
    """The means of one value by cell, and resampled means: the same trials in every cell, so that pairs stay pairs.

    Parameters
    ----------
    rows
        Trial rows, or recorded cells that have no trials any more: those have means and no resamples.
    by
        Columns that make a cell.
    value
        Column that is averaged.
    wide
        The column whose values become the columns of the statistic's frame; without it the statistic gets a series.
    """

    def __init__(self, rows: pd.DataFrame, by: Sequence[str], value: str, wide: str | None):
        varying = [c for c in by if c in rows and (c == wide or rows[c].nunique(dropna=False) > 1)]
        self.keys = varying or [by[0]]
        self.wide = wide
        self.trials: np.ndarray | None = None
        if "trial" in rows:
            means = records.units(rows, self.keys, [value])
            grid = means.set_index([*self.keys, "trial"])[value].unstack("trial")
            self.trials, self.index = grid.to_numpy(dtype=float), grid.index
            self.n = int((~np.isnan(self.trials)).sum(1).min())
            self.means = np.nanmean(self.trials, axis=1)
        else:
            cells = rows.set_index(self.keys)[value]
            self.index, self.means = cells.index, cells.to_numpy(dtype=float)
            self.n = int(rows["n"].min()) if "n" in rows else 0
        places = pd.Series(range(len(self.index)), self.index, dtype=float)
        self.places: Any = places.unstack(wide) if wide and len(self.keys) > 1 else places

    def frame(self, means: np.ndarray) -> Any:
        """Return means as the statistic takes them."""
        at = self.places.to_numpy()
        values = np.where(np.isnan(at), np.nan, means[np.nan_to_num(at).astype(int)])
        if values.ndim == 1:
            return pd.Series(values, self.places.index)
        return pd.DataFrame(values, self.places.index, self.places.columns)

    def resampled(self, draws: Mapping[int, np.ndarray]) -> np.ndarray:
        """Return resampled means ``[cells, resamples]``; the draws ``[resamples, n]`` go by the number of trials."""
        assert self.trials is not None
        found = []
        for cell in self.trials:
            own = cell[~np.isnan(cell)]
            found.append(own[draws[len(own)]].mean(1))
        return np.array(found)

    def counts(self) -> set[int]:
        """Return the numbers of trials that occur."""
        return set() if self.trials is None else set((~np.isnan(self.trials)).sum(1).tolist())


@dataclass(frozen=True)
class Needed:
    """The cells of an experiment that a statistic needs, by the columns that tell them apart."""

    keys: Sequence[str]
    cells: frozenset[tuple[Any, ...]]

    def only(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of these cells."""
        return rows[[cell in self.cells for cell in _tuples(rows[list(self.keys)])]]


def _tuples(table: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows as tuples that compare equal, NaN being None."""
    return [tuple(None if v != v else v for v in row) for row in table.itertuples(index=False)]


def needed(statistic: Statistic, cells: Sequence[Cells]) -> list[Needed]:
    """Find the cells that a statistic hangs on: those that change it when their mean is very large, or very small.

    A value far outside moves a mean, an extreme, a count of what is above a line, and a difference alike; a cell that
    moves none of them takes no part, and its settings say nothing about the claim.
    """
    means = [one.means.copy() for one in cells]

    def value() -> float:
        return float(statistic(*(one.frame(m) for one, m in zip(cells, means, strict=True))))

    plain, found = value(), []
    for number, one in enumerate(cells):
        keys = list(_tuples(one.index.to_frame(index=False)))
        chosen = set()
        for place, key in enumerate(keys):
            for far in (1e6, -1e6, math.nan):
                means[number][place] = far
                try:
                    moved = value() != plain
                except (ArithmeticError, KeyError, IndexError, ValueError):
                    moved = True
                if moved:
                    chosen.add(key)
                    break
            means[number][place] = one.means[place]
        found.append(Needed(one.keys, frozenset(chosen or keys)))
    return found


def estimate(statistic: Statistic, cells: Sequence[Cells], kind: Kind = NUMBER) -> tuple[float, float, float, int]:
    """Return a statistic of some experiments' cells with its 95 % interval, and the smallest number of trials.

    A bootstrap over the trials, with the ends that `_bounds` says, widened as a mean's interval is. Without trial rows,
    or with fewer than three trials, there is no interval.
    """
    value = float(statistic(*(one.frame(one.means) for one in cells)))
    n = min(one.n for one in cells)
    if n < LEAST or any(one.trials is None for one in cells):
        return value, math.nan, math.nan, n
    rng = np.random.default_rng(0)
    sizes = sorted(set().union(*(one.counts() for one in cells)))
    draws = {size: rng.integers(size, size=(RESAMPLES, size)) for size in sizes}
    means = [one.resampled(draws) for one in cells]
    found = [
        float(statistic(*(one.frame(m[:, b]) for one, m in zip(cells, means, strict=True)))) for b in range(RESAMPLES)
    ]
    return value, *_bounds(value, found, n, kind), n


def _bounds(value: float, found: Sequence[float], n: int, kind: Kind) -> tuple[float, float]:
    """Return the percentiles of a bootstrap, as far out as Student's t is for n trials.

    Below ten trials no resample goes that far: the usual percentiles are then farther from the value by as much.
    """
    tail = 100 * float(stats.norm.sf(stats.norm.ppf(0.975) * (stretch(n) if n >= POINT else 1)))
    low, high = np.nanpercentile(found, [tail, 100 - tail]).tolist()
    if n < POINT:
        below, above = max(0.0, value - low), max(0.0, high - value)
        low, high = value - stretch(n) * below, value + stretch(n) * above
    return widened(value, low, high, n, kind)


def of_rows(
    statistic: Statistic, rows: pd.DataFrame, kind: Kind = NUMBER, resamples: int = 100
) -> tuple[float, float, float, int]:
    """Return a statistic of trial rows with its 95 % interval: for what is no function of the cells' means."""
    value, n = float(statistic(rows)), int(rows["trial"].nunique()) if "trial" in rows else 0
    if n < LEAST:
        return value, math.nan, math.nan, n
    rng, places = np.random.default_rng(0), rows.reset_index(drop=True).groupby("trial").indices
    found = []
    for draw in rng.integers(n, size=(resamples, n)):
        chosen = [places[t] for t in np.array(list(places))[draw]]
        numbered = np.repeat(np.arange(n), [len(c) for c in chosen])
        found.append(float(statistic(rows.iloc[np.concatenate(chosen)].assign(trial=numbered))))
    return value, *_bounds(value, found, n, kind), n
