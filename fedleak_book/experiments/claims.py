"""What a paper says in words, measured: a statistic of an experiment's cells, with an interval over its trials."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fedleak.intervals import MIN_EQUAL_VALUES, MIN_VALUES
from fedleak_book.experiments import choices, looks, records, status
from fedleak_book.experiments.choices import Effect, Transport
from fedleak_book.experiments.kinds import NUMBER, Kind, stretch
from fedleak_book.experiments.published import Paper, Published, Row, fits
from fedleak_book.experiments.records import RECORDED, Record
from fedleak_book.experiments.spread import MOST, two_kinds
from fedleak_book.experiments.status import Measured

RESAMPLES, ROW_RESAMPLES = 400, 100
Statistic = Callable[..., float]
Where = Mapping[str, Any] | Callable[[pd.DataFrame], Any]


@dataclass(frozen=True)
class Claim:
    """One measure of one claim."""

    id: str
    """Of the claim in ``claims.toml``."""
    statistic: Statistic | None
    """Number made of the means by cell: it gets, for each record, a series over the cells, or with `wide` a frame with
    that column's values as columns. Without records it takes nothing, and is exact. None was not tried."""
    of: Sequence[str] = ()
    """Names of records."""
    value: str = ""
    """Column that is averaged; by default the record's first value."""
    wide: str | None = None
    filters: Where | None = None
    """Keeps the rows with these values (a list: one of them), or those that a function of the rows says."""
    rows: bool = False
    """Give the statistic the trial rows themselves."""
    kind: Kind = NUMBER
    """The kind of the number; the interval of a share, or of a difference of shares, stays within its range."""
    reading: str = ""
    """Name of one of several ways to read the paper: every one is claimed, and all have to agree."""
    note: str = ""
    """What the reader should know of this number."""
    parts: Sequence[Statistic] = ()
    """Statistics that a transport's rows have where they lack cells of the claim's own: by each transport it changes by
    no more than the largest change of one of them, in either direction."""
    prediction: bool = False
    """Whether the statistic takes the chapter's `Results`; see `Claims.predict`."""

    def measure(self, records_of: Sequence[Record | None], paper: Paper) -> Measured:
        """Measure it on the records that it names, and name the settings that differ and their effect."""
        recorded = [record for record in records_of if record is not None]
        if len(recorded) < len(records_of):
            return Measured(self.id, None, source="—", reading=self.reading, note="not recorded")
        about: dict[str, Any] = {"source": RECORDED, "reading": self.reading, "note": self.note}
        if self.statistic is None:
            return Measured(self.id, None, **about)
        if not self.of:
            return Measured(self.id, float(self.statistic()), n=1, exact=True, **about)
        try:
            used = chosen = [matching_rows(record.rows, self.filters) for record in recorded]
            if self.rows:
                result = of_rows(self.statistic, chosen[0], self.kind)
            else:
                cells = list(map(self._cells, recorded, chosen))
                result = estimate(self.statistic, cells, self.kind)
                used = needed(self.statistic, cells)
        except (KeyError, IndexError, ValueError) as missing:  # a setting that these rows do not have
            return Measured(self.id, None, **about | {"note": f"not in these rows: {missing}"})
        if math.isnan(result[0]) and result[-1]:
            raise ValueError(f"the statistic of {self.id} is not a number on {result[-1]} recorded trials")
        if (item := paper.items[self.id]).table:
            table, settled = paper.tables[item.table], _settled(recorded, used)
            about["differences"] = status.of_cells(table, _settled(recorded, chosen), item.cell, settled)
            if any(not d.why for d in about["differences"]):
                about["effects"] = tuple(self._effects(paper, item, settled, recorded))
        about["ends"] = self.kind.range
        if not self.rows and item.misses(*result[1:3]):
            about["groups"] = two_kinds(_by_trial(self.statistic, cells))
        value, low, high, n = result
        about["looks"] = max(looks.at(paper.name, name, n) for name in self.of)
        n *= min(record.fixed.get("block", 1) for record in recorded)  # a trial that is the mean of a block of networks
        exact = all(record.declared["exact"] for record in recorded)
        return Measured(self.id, value, low, high, n, exact, **about)

    def measure_run(self, run: Any) -> Iterator[Measured]:
        """Measure a prediction on a chapter's results: a number for each of its bounds, the last item may be a note."""
        try:
            result = self.statistic(run) if self.statistic else ()
        except FileNotFoundError as missing:
            yield Measured(self.id, None, source="—", note=str(missing))
            return
        except (KeyError, IndexError, ValueError) as missing:  # a setting that these rows do not have
            yield Measured(self.id, None, note=f"not in these rows: {missing}")
            return
        values = [*result] if isinstance(result, tuple) else [result]
        note = values.pop() if isinstance(values[-1], str) else ""
        for k, value in enumerate(values):
            low, high = (getattr(value, end, math.nan) for end in ("low", "high"))
            id = self.id + f"-{k + 1}" * bool(k)
            yield Measured(id, float(value), low, high, getattr(value, "n", 0), note=note)

    def _cells(self, record: Record, rows: pd.DataFrame) -> "Cells":
        return Cells(rows, record.cells_by, self.value or record.first, self.wide)

    def _effects(
        self, paper: Paper, item: Published, used: Sequence[Row], recorded: Sequence[Record]
    ) -> Iterator[Effect]:
        """Yield the effects of the transports of its table: the same statistic at both levels, on the same trials.

        Of a claim about several cells one counts that fits each of them whose settings differ. With `parts` several may
        fit some of them each, and their sum counts.
        """
        table, rules = paper.tables[item.table], choices.load(paper.name)
        cells = [row for row in table.rows if fits(item.cell, row)]
        far = [{d.setting for d in status.of_cells(table, used, cell) if d.counts} for cell in cells]
        sums = dict[Any, tuple[dict[str, float], set[int]]]()
        for transport in rules.transports:
            short = {k for k, settings in enumerate(far) if settings & {*transport.settings}}
            fitting = {k for k in short if transport in rules.transports_of(table.name, cells[k])}
            if not fitting or (fitting < short and not self.parts):
                continue
            if not all(fits(transport.only, table.unnamed(row) | dict(row)) for row in used):
                continue
            rows = transport.rows(paper.name, {})
            ends = {}
            for name, sample in rows.groupby("data") if rows is not None and not self.rows else ():
                with suppress(KeyError, IndexError, ValueError):
                    ends[str(name)] = self._change(sample.assign(**transport.when), transport, recorded)
            if ends and not self.parts:
                yield Effect(transport.record, transport.settings, ends)
            if self.parts:
                key = transport.record, transport.settings
                total, covered = sums.get(key, (dict.fromkeys(ends, 0.0), set()))
                total = {name: total[name] + ends[name][1] for name in total.keys() & ends.keys()}
                sums[key] = total, covered | fitting
                if total and covered | fitting >= short:
                    yield Effect(*key, {name: (-most, most) for name, most in total.items()})

    def _change(self, rows: pd.DataFrame, transport: Transport, recorded: Sequence[Record]) -> tuple[float, float]:
        """Return the interval of what the whole level changes; of `parts`, the largest one in both directions."""
        if not self.parts:
            assert self.statistic is not None
            return self._contrast(rows, transport, recorded, self.statistic)
        largest = max(abs(end) for part in self.parts for end in self._contrast(rows, transport, recorded, part))
        return -largest, largest

    def _contrast(
        self, rows: pd.DataFrame, transport: Transport, recorded: Sequence[Record], statistic: Statistic
    ) -> tuple[float, float]:
        """Return the interval of a statistic at the whole level less that at a part of it."""
        cells = []
        for level in (choices.WHOLE, transport.part):
            for record in recorded:
                level_rows = rows[rows["level"] == level].drop(columns="level").rename(columns=transport.columns)
                for name in set(record.fixed) & set(level_rows):
                    level_rows = level_rows[level_rows[name] == record.fixed[name]]
                cells.append(self._cells(record, matching_rows(level_rows, self.filters)))
        half = len(recorded)
        _, low, high, _ = estimate(lambda *t: statistic(*t[:half]) - statistic(*t[half:]), cells)
        return low, high


def _settled(recorded: Iterable[Record], tables: Iterable[pd.DataFrame]) -> list[dict[str, Any]]:
    """Return the cells of some rows of each record."""
    chosen = (replace(record, rows=t) for record, t in zip(recorded, tables, strict=True) if len(t))
    return [row for record in chosen for row in record.cells().to_dict("records")]


class Claims(list[Claim]):
    """The claims of a chapter, in the order of its module."""

    def predict(self, id: str, measure: Statistic) -> None:
        """Add a prediction: `measure` takes the chapter's `Results` and returns a number, or several and a note."""
        self.append(Claim(id, measure, prediction=True))

    def add(self, id: str, statistic: Statistic | None, of: Any = (), **options: Any) -> None:
        """Add a claim; the parameters are those of `Claim`, and `of` may be one name."""
        self.append(Claim(id, statistic, (of,) if isinstance(of, str) else tuple(of), **options))


def matching_rows(rows: pd.DataFrame, filters: Where | None) -> pd.DataFrame:
    """Return the rows that a claim or a cell is about; see `Claim`."""
    if callable(filters):
        return rows[filters(rows)]
    for column, value in (filters or {}).items():
        rows = rows[rows[column].isin(value if isinstance(value, list) else [value])]
    return rows


def having(**settings: Any) -> Callable[[pd.DataFrame], pd.Series]:
    """Return a condition on rows: these values (a list: one of them) in the columns that the rows have."""

    def condition(rows: pd.DataFrame) -> pd.Series:
        keep = pd.Series(True, rows.index)
        for name in {*settings} & {*rows}:
            keep &= rows[name].isin(np.atleast_1d(settings[name]))
        return keep

    return condition


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
        self.means = np.nanmean(grid.to_numpy(dtype=float), axis=1)
        self.trials = [cell[~np.isnan(cell)] for cell in grid.to_numpy(dtype=float)] if "trial" in rows else []
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


def _by_trial(statistic: Statistic, cells: Sequence[Cells]) -> list[float]:
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
