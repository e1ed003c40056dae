"""What a paper says in words, measured: a statistic of an experiment's cells, with an interval over its trials."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd

from fedleak_book import imports, paths
from fedleak_book.evidence import effects, measurements
from fedleak_book.evidence.effects import Effect, Transport
from fedleak_book.evidence.estimates import (
    Cells,
    Having,
    Statistic,
    Where,
    by_trial,
    estimate,
    matching_rows,
    needed,
    of_rows,
)
from fedleak_book.evidence.measurements import Measured
from fedleak_book.evidence.published import Paper, Published
from fedleak_book.evidence.spread import two_kinds
from fedleak_book.experiments import looks
from fedleak_book.experiments.experiment import Row, fits
from fedleak_book.experiments.kinds import NUMBER, Kind
from fedleak_book.experiments.records import RECORDED, Record


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
            about["differences"] = measurements.of_cells(table, _settled(recorded, chosen), item.cell, settled)
            if any(not d.why for d in about["differences"]):
                about["effects"] = tuple(self._effects(paper, item, settled, recorded))
        about["ends"] = self.kind.range
        if not self.rows and item.misses(*result[1:3]):
            about["groups"] = two_kinds(by_trial(self.statistic, cells))
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

    def _cells(self, record: Record, rows: pd.DataFrame) -> Cells:
        return Cells(rows, record.cells_by, self.value or record.first, self.wide)

    @property
    def at(self) -> str:
        """Reading and filters, as ``effects.csv`` has them."""
        filters = self.filters.settings if isinstance(self.filters, Having) else self.filters
        text = filters.__qualname__ if callable(filters) else effects.text_of(filters or {})
        return "; ".join(filter(None, (self.reading, text)))

    def _effects(
        self, paper: Paper, item: Published, used: Sequence[Row], recorded: Sequence[Record]
    ) -> Iterator[Effect]:
        """Yield the effects of the transports of its table: the same statistic at both levels, on the same trials.

        Of a claim about several cells one counts that fits each of them whose settings differ. With `parts` several may
        fit some of them each, and their sum counts.
        """
        table = paper.tables[item.table]
        cells = [row for row in table.rows if fits(item.cell, row)]
        far = [{d.setting for d in measurements.of_cells(table, used, cell) if d.counts} for cell in cells]
        holding = [effects.transports(table.rules_of("transport", cell)) for cell in cells]
        declared = [(record.cells_by, record.first, dict(record.fixed)) for record in recorded]
        code = f"{''.join(map(imports.code_of, paths.modules(paper.name, 'claims')))} {declared}"
        sums = dict[Any, tuple[list[Transport], set[int]]]()
        for transport in () if self.rows else effects.transports(paper.rules.get("transport", ())):
            short = {k for k, settings in enumerate(far) if settings & {*transport.settings}}
            covered, chosen = {k for k in short if transport in holding[k]}, [transport]
            if not covered or not all(fits(transport.only, table.unnamed(row) | dict(row)) for row in used):
                continue
            if self.parts:
                earlier, before = sums.get((transport.record, transport.settings), ([], set()))
                chosen, covered = [*earlier, transport], before | covered
                sums[transport.record, transport.settings] = chosen, covered
            if covered >= short:
                measure = partial(self._ends, paper.name, chosen, recorded)
                yield from effects.effect(paper.name, chosen, self.id, self.at, measure, code)

    def _ends(self, paper: str, chosen: Sequence[Transport], recorded: Sequence[Record]) -> effects.Ends:
        """Return the interval of what the statistic changes, by data set; of `parts`, the sum of the largest."""
        ends = [dict(self._changes(paper, transport, recorded)) for transport in chosen]
        if not self.parts:
            return ends[0]
        most = {name: sum(end[name][1] for end in ends) for name in ends[0] if all(name in end for end in ends)}
        return {name: (-end, end) for name, end in most.items()}

    def _changes(
        self, paper: str, transport: Transport, recorded: Sequence[Record]
    ) -> Iterator[tuple[str, tuple[float, float]]]:
        """Yield the interval of what the whole level changes on each of a transport's data sets that has the cells."""
        for name, sample in effects.rows_of(paper, transport, {}).groupby("data"):
            with suppress(KeyError, IndexError, ValueError):
                levels = [*self._levels(sample.assign(**transport.when), transport, recorded)]
                parts = [_contrast(part, levels) for part in self.parts or (self.statistic,) if part]
                most = max(abs(end) for part in parts for end in part)
                yield str(name), (-most, most) if self.parts else parts[0]

    def _levels(self, rows: pd.DataFrame, transport: Transport, recorded: Sequence[Record]) -> Iterator[Cells]:
        """Yield the cells of each record at the whole level, and then at a part of it."""
        for level in (effects.WHOLE, transport.part):
            for record in recorded:
                chosen = rows[rows["level"] == level].drop(columns="level").rename(columns=transport.columns)
                fixed = {name: record.fixed[name] for name in set(record.fixed) & set(chosen)}
                yield self._cells(record, matching_rows(matching_rows(chosen, fixed), self.filters))


def _contrast(statistic: Statistic, cells: Sequence[Cells]) -> tuple[float, float]:
    """Return the interval of a statistic at the first half of some cells less that at the second."""
    half = len(cells) // 2
    return estimate(lambda *t: statistic(*t[:half]) - statistic(*t[half:]), cells)[1:3]


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
