"""What a paper says in words, measured: a statistic of an experiment's cells, with an interval over its trials."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fedleak.experiments import choices, records, status
from fedleak.experiments.choices import Effect
from fedleak.experiments.experiment import Experiment
from fedleak.experiments.published import Paper, Published
from fedleak.experiments.records import RECORDED
from fedleak.experiments.status import Measured
from fedleak.intervals import LEAST, NUMBER, POINT, Kind, stretch, widened

RESAMPLES, ROW_RESAMPLES = 400, 100
Statistic = Callable[..., float]
Where = Mapping[str, Any] | Callable[[pd.DataFrame], Any]


@dataclass(frozen=True)
class Claim:
    """One measure of one claim."""

    id: str
    """Of the claim in ``claims.toml``."""
    statistic: Statistic | None
    """Number made of the means by cell: it gets, for each experiment, a series over the cells, or with `wide` a frame
    with that column's values as columns. Without experiments it takes nothing, and is exact. None was not tried."""
    of: Sequence[Experiment] = ()
    value: str = ""
    """Column that is averaged; by default the experiment's first value."""
    wide: str | None = None
    where: Where | None = None
    """Keeps the rows with these values (a list: one of them), or those that a function of the rows says."""
    rows: bool = False
    """Give the statistic the trial rows themselves."""
    kind: Kind = NUMBER
    """What the number is: of a share, or of a difference of shares, the interval knows the ends."""
    reading: str = ""
    """Name of one of several ways to read the paper: every one is claimed, and all have to agree."""
    note: str = ""
    """What the reader should know of this number."""

    def measure(self, tables: Sequence[pd.DataFrame | None], paper: Paper) -> Measured:
        """Measure it on one table of trial rows an experiment, name the settings that differ, and what these are worth."""
        found = [table for table in tables if table is not None]
        if len(found) < len(tables):
            return Measured(self.id, None, source="—", reading=self.reading, note="not recorded")
        told: dict[str, Any] = {"source": RECORDED, "reading": self.reading, "note": self.note}
        if self.statistic is None:
            return Measured(self.id, None, **told)
        if not self.of:
            return Measured(self.id, float(self.statistic()), n=1, exact=True, **told)
        try:
            chosen = [kept(table, self.where) for table in found]
            if self.rows:
                (rows,) = used = chosen
                result = of_rows(self.statistic, rows, self.kind)
            else:
                pairs = zip(self.of, chosen, strict=True)
                cells = [Cells(t, [*e.axes, *e.by], self.value or next(iter(e.values)), self.wide) for e, t in pairs]
                result = estimate(self.statistic, cells, self.kind)
                used = needed(self.statistic, cells, chosen)
        except (KeyError, IndexError, ValueError) as missing:  # a setting that these rows do not have
            return Measured(self.id, None, **told | {"note": f"not in these rows: {missing}"})
        if (item := paper.items[self.id]).table:
            table = paper.tables[item.table]
            told["differences"] = status.of_cells(table, self._settled(chosen), item.cell, self._settled(used))
            if any(not d.why for d in told["differences"]):
                told["effects"] = tuple(self._effects(paper, item))
        told["ends"] = self.kind.range
        return Measured(self.id, *result, all(e.exact for e in self.of), **told)

    def _effects(self, paper: Paper, item: Published) -> Iterator[Effect]:
        """Yield what the transports of its table are worth: the same statistic at both levels, on the same trials."""
        for one in choices.load(paper.name).transports_of(item.table, item.cell):
            rows = choices.selected(one, paper.name)
            ends = {}
            for name, own in rows.groupby(one.over) if rows is not None and not self.rows else ():
                with suppress(KeyError, IndexError, ValueError):
                    ends[str(name)] = self._contrast(own.assign(**one.when), one.part)
            if ends:
                yield Effect(one.record, one.settings, ends)

    def _contrast(self, rows: pd.DataFrame, part: str) -> tuple[float, float]:
        """Return the interval of the statistic at the whole level less that at a part of it."""
        cells = []
        for level in (choices.WHOLE, part):
            for e in self.of:
                own = rows[rows["level"] == level]
                for name in set(e.fixed) & set(own):
                    own = own[own[name] == e.fixed[name]]
                by = [*e.axes, *e.by]
                cells.append(Cells(kept(own, self.where), by, self.value or next(iter(e.values)), self.wide))
        assert self.statistic is not None
        statistic, half = self.statistic, len(self.of)
        _, low, high, _ = estimate(lambda *t: statistic(*t[:half]) - statistic(*t[half:]), cells)
        return low, high

    def _settled(self, tables: Iterable[pd.DataFrame]) -> list[dict[str, Any]]:
        """Return the cells of some tables of rows, one an experiment."""
        pairs = [(t, {"declared": e.declared}) for e, t in zip(self.of, tables, strict=True) if len(t)]
        return [row for pair in pairs for row in records.settled(*pair).to_dict("records")]


class Claims(list[Claim]):
    """The claims of a chapter, in the order of its module."""

    def add(self, id: str, statistic: Statistic | None, of: Any = (), **options: Any) -> None:
        """Add a claim; the parameters are those of `Claim`, and `of` may be one experiment."""
        self.append(Claim(id, statistic, (of,) if isinstance(of, Experiment) else tuple(of), **options))


def kept(rows: pd.DataFrame, where: Where | None) -> pd.DataFrame:
    """Return the rows that a claim or a cell is about; see `Claim`."""
    if callable(where):
        return rows[where(rows)]
    for column, value in (where or {}).items():
        rows = rows[rows[column].isin(value if isinstance(value, list) else [value])]
    return rows


class Cells:
    """The means of one value by the cells that some columns make, and its trials: the same in every cell, in pairs.

    Recorded cells that have no trials any more have means alone. The values of the column `wide` become the columns of
    the statistic's frame; without it the statistic gets a series.
    """

    def __init__(self, rows: pd.DataFrame, by: Sequence[str], value: str, wide: str | None):
        varying = [c for c in by if c in rows and (c == wide or rows[c].nunique(dropna=False) > 1)]
        self.keys = varying or [by[0]]
        self.trials: list[np.ndarray] = []
        if "trial" in rows:
            means = records.units(rows, self.keys, [value])
            grid = means.set_index([*self.keys, "trial"])[value].unstack("trial")
            self.index, self.means = grid.index, np.nanmean(grid.to_numpy(dtype=float), axis=1)
            self.trials = [cell[~np.isnan(cell)] for cell in grid.to_numpy(dtype=float)]
            self.n = min(map(len, self.trials))
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


def _tuples(table: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows as tuples that compare equal, NaN being None."""
    return [tuple(None if v != v else v for v in row) for row in table.itertuples(index=False)]


def needed(statistic: Statistic, cells: Sequence[Cells], tables: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """Return the rows of the cells that a statistic hangs on: whose mean, very large or very small, changes it.

    A value far outside moves a mean, an extreme, a count of what is above a line, and a difference alike; a cell that
    moves none of them takes no part, and its settings say nothing about the claim.
    """
    means, found = [one.means.copy() for one in cells], []

    def moved(place: int, own: np.ndarray, far: float) -> bool:
        own[place] = far
        try:
            return _value(statistic, cells, means) != plain
        except (ArithmeticError, KeyError, IndexError, ValueError):
            return True

    plain = _value(statistic, cells, means)
    for own, one, table in zip(means, cells, tables, strict=True):
        keys, chosen = _tuples(one.index.to_frame(index=False)), set()
        for place, key in enumerate(keys):
            if any(moved(place, own, far) for far in (1e6, -1e6, math.nan)):
                chosen.add(key)
            own[place] = one.means[place]
        wanted = chosen or set(keys)
        found.append(table[[key in wanted for key in _tuples(table[one.keys])]])
    return found


def _value(statistic: Statistic, cells: Sequence[Cells], means: Iterable[np.ndarray]) -> float:
    return float(statistic(*(one.frame(own) for one, own in zip(cells, means, strict=True))))


def estimate(statistic: Statistic, cells: Sequence[Cells], kind: Kind = NUMBER) -> tuple[float, float, float, int]:
    """Return a statistic of some experiments' cells with its 95 % interval, and the smallest number of trials.

    A bootstrap over the trials, with the ends that `_bounds` says, widened as a mean's interval is. Without trial rows,
    or with fewer than three trials, there is no interval.
    """
    value, n = _value(statistic, cells, [one.means for one in cells]), min(one.n for one in cells)
    if n < LEAST or not all(one.trials for one in cells):
        return value, math.nan, math.nan, n
    rng = np.random.default_rng(0)
    sizes = sorted({len(cell) for one in cells for cell in one.trials})
    draws = {size: rng.integers(size, size=(RESAMPLES, size)) for size in sizes}
    means = [np.array([cell[draws[len(cell)]].mean(1) for cell in one.trials]) for one in cells]
    found = [_value(statistic, cells, [own[:, b] for own in means]) for b in range(RESAMPLES)]
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


def of_rows(statistic: Statistic, rows: pd.DataFrame, kind: Kind = NUMBER) -> tuple[float, float, float, int]:
    """Return a statistic of trial rows with its 95 % interval: for what is no function of the cells' means."""
    value, n = float(statistic(rows)), int(rows["trial"].nunique()) if "trial" in rows else 0
    if n < LEAST:
        return value, math.nan, math.nan, n
    rng, places = np.random.default_rng(0), rows.reset_index(drop=True).groupby("trial").indices
    found = []
    for draw in rng.integers(n, size=(ROW_RESAMPLES, n)):
        chosen = [places[t] for t in np.array(list(places))[draw]]
        numbered = np.repeat(np.arange(n), [len(c) for c in chosen])
        found.append(float(statistic(rows.iloc[np.concatenate(chosen)].assign(trial=numbered))))
    return value, *_bounds(value, found, n, kind), n
