"""Is what the papers do not print listed? Every such setting has choices or a reason, and so has every recorded value.

Under ``[[open]]``, ``data/published/<paper>/choices.toml`` lists the settings without choices and the recorded values
that are none, each with the reason.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from fedleak_book.evidence.measurements import canonical, of_cell
from fedleak_book.evidence.published import LOST, Paper, Table
from fedleak_book.experiments import records
from fedleak_book.experiments.experiment import Row


def unlisted(paper: Paper) -> list[str]:
    """Return the settings of a paper that it does not print and that have neither choices nor a reason, by table.

    The same for values of such settings that were recorded for one of its tables and are no choice.
    """
    missing = dict.fromkeys(line for table in paper.tables.values() for line in _settings(table))
    for record in records.every(paper.name):
        settings = [name for name in [*record.cells_by, *record.declared["facts"]] if name in record.rows]
        cells = record.rows[settings].drop_duplicates().assign(**record.fixed).to_dict("records")
        for name in paper.tables.keys() & {*record.declared["tables"]}:
            missing |= dict.fromkeys(_values(paper.tables[name], cells, record.name))
    return list(missing)


def _open(table: Table) -> Iterator[tuple[Row, str, Sequence[Any]]]:
    """Yield the settings that are not printed, each with the paper's row and its choices."""
    for row in table.rows:
        for setting in (name for name, value in row.items() if value == LOST):
            yield row, setting, table.choices(setting, row)


def _settings(table: Table) -> Iterator[str]:
    for row, setting, allowed in _open(table):
        if not allowed and not table.rules_of("open", row, setting):
            yield f"{table.name}: {setting} has no choices where {_named(table, row)}"


def _values(table: Table, rows: Sequence[Row], record: str) -> Iterator[str]:
    for cell, setting, allowed in _open(table):
        for row in rows if allowed else ():
            value = (table.unnamed(row) | canonical(row)).get(setting)
            is_new = of_cell(cell, table.keys, row) and value is not None and value not in allowed
            if is_new and not table.rules_of("open", {**cell, "recorded": value}, setting):
                place = _named(table, cell)
                yield f"{table.name}: {setting} {value} is recorded ({record}) and no choice where {place}"


def _named(table: Table, row: Row) -> str:
    return ", ".join(f"{key} is {row.get(key)}" for key in table.keys) or "all rows"
