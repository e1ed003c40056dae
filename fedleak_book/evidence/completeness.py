"""Is what the papers do not print listed? Every such setting has choices or a reason, and so has every recorded value.

Under ``[[open]]``, ``data/published/<paper>/choices.toml`` lists the settings without choices and the recorded values
that are none, each with the reason.
"""

from collections.abc import Iterator, Sequence

from fedleak_book import paths
from fedleak_book.evidence import choices
from fedleak_book.evidence.measurements import canonical, of_cell
from fedleak_book.evidence.published import LOST, Paper, Table
from fedleak_book.experiments import records
from fedleak_book.experiments.experiment import Row


def unlisted(paper: Paper) -> list[str]:
    """Return the settings of a paper that it does not print and that have neither choices nor a reason, by table.

    The same for values of such settings that were recorded for one of its tables and are no choice.
    """
    missing = dict.fromkeys(_settings(paper))
    for path in sorted(paths.recorded(paper.name).glob("*.csv")):
        if (recorded := records.recorded(paper.name, path.stem)) is None:
            continue
        rows, declared = recorded[0], recorded[1]["declared"]
        settings = [name for name in [*declared["axes"], *declared["by"], *declared["facts"]] if name in rows]
        cells = rows[settings].drop_duplicates().assign(**declared["fixed"]).to_dict("records")
        for name in paper.tables.keys() & {*declared["tables"]}:
            missing |= dict.fromkeys(_values(paper.tables[name], cells, path.stem))
    return list(missing)


def _settings(paper: Paper) -> Iterator[str]:
    rules = choices.load(paper.name)
    for table in paper.tables.values():
        for row in table.rows:
            for setting in (name for name, value in row.items() if value == LOST):
                if not rules.of(table.name, setting, row) and not rules.reason(table.name, setting, row):
                    yield f"{table.name}: {setting} has no choices where {_named(table, row)}"


def _values(table: Table, rows: Sequence[Row], record: str) -> Iterator[str]:
    rules = choices.load(table.paper)
    for cell in table.rows:
        for setting in (name for name, value in cell.items() if value == LOST):
            allowed = rules.of(table.name, setting, cell)
            for row in rows if allowed else ():
                value = (table.unnamed(row) | canonical(row)).get(setting)
                is_new = of_cell(cell, table.keys, row) and value is not None and value not in allowed
                if is_new and not rules.reason(table.name, setting, cell | {"recorded": value}):
                    place = _named(table, cell)
                    yield f"{table.name}: {setting} {value} is recorded ({record}) and no choice where {place}"


def _named(table: Table, row: Row) -> str:
    return ", ".join(f"{key} is {row.get(key)}" for key in table.keys) or "all rows"
