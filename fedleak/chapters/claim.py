"""What a paper says in words, as a statistic of trial rows, by the id that it has in ``claims.toml``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedleak.chapters.experiment import Experiment
from fedleak.experiments import records, status
from fedleak.experiments.claims import Cells, estimate, needed, of_rows, said
from fedleak.experiments.published import Paper
from fedleak.experiments.status import Measured
from fedleak.intervals import NUMBER, Kind

Where = Mapping[str, Any] | Callable[[pd.DataFrame], Any]


@dataclass(frozen=True)
class Claim:
    """One measure of one claim.

    Parameters
    ----------
    id
        Of the claim in ``claims.toml``.
    statistic
        Number made of the means by cell: it gets, for each experiment, a series over the cells, or with `wide` a frame
        with that column's values as columns. Without experiments it takes nothing, and is exact. None was not tried.
    of
        The experiments.
    value
        Column that is averaged; by default the experiment's first value.
    where
        Keeps the rows with these values (a list: one of them), or those that a function of the rows says.
    rows
        Give the statistic the trial rows themselves.
    kind
        What the number is: of a share, or of a difference of shares, the interval knows the ends.
    reading
        Name of one of several ways to read the paper: every one is claimed, and all have to agree.
    note
        What the reader should know of this number.
    """

    id: str
    statistic: Callable[..., float] | None
    of: Sequence[Experiment] = ()
    value: str = ""
    wide: str | None = None
    where: Where | None = None
    rows: bool = False
    kind: Kind = NUMBER
    reading: str = ""
    note: str = ""

    def measure(self, tables: Sequence[pd.DataFrame], source: str, paper: Paper) -> Measured:
        """Measure it on one table of trial rows an experiment, and name the settings in which these differ."""
        if self.statistic is None or not self.of:
            return said(self.id, self.statistic and float(self.statistic()), self.reading, self.note)
        try:
            chosen = [kept(table, self.where) for table in tables]
            if self.rows:
                (rows,) = used = chosen
                result = of_rows(self.statistic, rows, self.kind)
            else:
                pairs = zip(self.of, chosen, strict=True)
                cells = [Cells(t, [*e.axes, *e.by], self.value or next(iter(e.values)), self.wide) for e, t in pairs]
                result = estimate(self.statistic, cells, self.kind)
                used = [one.only(t) for one, t in zip(needed(self.statistic, cells), chosen, strict=True)]
        except (KeyError, IndexError, ValueError) as missing:  # a setting that these rows do not have
            note = f"not in these rows: {missing}"
            return Measured(self.id, None, source=source, reading=self.reading, note=note)
        differ: tuple[status.Difference, ...] = ()
        if (item := paper.items[self.id]).table:
            ours, hangs = (self._settled(each) for each in (chosen, used))
            differ = status.of_cells(paper.tables[item.table], ours, item.cell, hangs)
        exact = all(e.exact for e in self.of)
        return Measured(self.id, *result, exact, source, differ, self.reading, self.note)

    def _settled(self, tables: Sequence[pd.DataFrame]) -> list[dict[str, Any]]:
        """Return the cells of some tables of rows, one an experiment."""
        return [
            row
            for e, t in zip(self.of, tables, strict=True)
            if len(t)
            for row in records.settled(t, {"declared": e.declared}).to_dict("records")
        ]


def kept(rows: pd.DataFrame, where: Where | None) -> pd.DataFrame:
    """Return the rows that a claim or a cell is about; see `Claim`."""
    if callable(where):
        return rows[where(rows)]
    for column, value in (where or {}).items():
        rows = rows[rows[column].isin(value if isinstance(value, list) else [value])]
    return rows


class Claims(list[Claim]):
    """The claims of a chapter, in the order of its module."""

    def add(self, id: str, statistic: Callable[..., float] | None, of: Any = (), **options: Any) -> None:
        """Add a claim; the parameters are those of `Claim`, and `of` may be one experiment."""
        self.append(Claim(id, statistic, (of,) if isinstance(of, Experiment) else tuple(of), **options))
