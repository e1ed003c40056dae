"""Judge the papers' values on what is recorded, and keep the verdicts."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedleak_book.evidence import effects, measurements, published, scoreboard, verdicts
from fedleak_book.evidence.measurements import Measured
from fedleak_book.evidence.published import Paper
from fedleak_book.evidence.spread import two_kinds
from fedleak_book.experiments import looks, records
from fedleak_book.experiments.records import Record

Claimed = Mapping[str, Sequence[Measured]]


def keep(name: str, claims: Claimed) -> None:
    """Write the verdicts on a chapter and what its claims and transports measured as effects."""
    paper = published.load(name)
    measured, tests = points(paper, claims), effects.backtests(paper)
    effects.write(name, (effect for of in measured.values() for point in of for effect in point.effects), tests)
    scoreboard.write(name, rows(paper, measured, tests))


def rows(paper: Paper, measured: Claimed, tests: Mapping[str, effects.Backtest]) -> list[dict[str, Any]]:
    """Return one row per published value: verdict and measurement, by effects of the records that passed their test."""
    trusted = {name for name, test in tests.items() if test.trusted}

    def known(point: Measured) -> Measured:
        return replace(point, effects=tuple(effect for effect in point.effects if effect.record in trusted))

    return [verdicts.row(paper.items[key], paper, [*map(known, readings)]) for key, readings in measured.items()]


def points(paper: Paper, claims: Claimed) -> dict[str, Sequence[Measured]]:
    """Return all that was measured for each published value, in the order of the paper's files."""
    cells = _recorded_cells(paper)
    measured = dict(claims)
    for name, table in paper.tables.items():
        if table.values:
            measured |= measurements.from_table(table, cells[name])
    every = {}
    for key, item in paper.items.items():
        readings = measured.get(key) or [Measured(key, None, source="—", note="nothing was measured for it")]
        if item.table and all(reading.ours is None for reading in readings):
            readings = [replace(readings[0], differences=measurements.unprinted(paper.tables[item.table], item))]
        every[key] = readings
    return every


def _recorded_cells(paper: Paper) -> Mapping[str, list[dict[str, Any]]]:
    """Return the cells of a chapter's records, by the printed table that they belong to; the table's own come first.

    ``ends`` has, by column, the least and the largest value that is possible.
    """
    cells = defaultdict[str, list[dict[str, Any]]](list)
    printed = {name for name, table in paper.tables.items() if table.values}
    for record in records.every(paper.name):
        if wanted := printed & {*record.declared["tables"]}:
            ends = {name: kind.range for name, kind in record.kinds.items()}
            settled = [row | {"ends": ends} for row in record.cells().to_dict("records")]
            for row, groups in zip(settled, _groups(record), strict=False):
                row |= {"groups": groups, "looks": looks.at(paper.name, record.name, row["n"])}
            for name in wanted:
                cells[name] = settled + cells[name] if name == record.name else cells[name] + settled
    return cells


def _groups(record: Record) -> Iterator[dict[str, Any]]:
    """Yield, for each cell of a record with trials, the columns whose trials are of two kinds."""
    if "trial" in record.rows:
        by, values = ([name for name in names if name in record.rows] for names in (record.cells_by, record.kinds))
        for _, cell in records.units(record.rows, by, values).groupby(by, sort=False, dropna=False):
            yield {name: groups for name in values if (groups := two_kinds(cell[name].dropna().to_numpy()))}
