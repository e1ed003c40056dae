"""What a paper does not print, as plausible choices that are declared before the rows, and the effect of fewer images.

``data/published/<paper>/choices.toml`` has them. A **choice** lists values of a setting, each with its source. A
**transport** names the recorded experiment that measured, trial by trial, the effect of a setting on other data that
have both levels, ``whole`` and that of ours.
"""

import itertools
import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedleak_book import paths
from fedleak_book.experiments import records
from fedleak_book.experiments.kinds import DIFFERENCE, Kind, interval
from fedleak_book.experiments.published import Row, Table, fits

WHOLE = "whole"
LEAST_COVERED, LEAST_VALUES, WIDEST = 0.9, 20, 0.1
"""A transport counts once it covered this share of at least this number of values, blind, by intervals with a mean
half-width of at most `WIDEST`: wider ones cannot fail."""


@dataclass(frozen=True)
class Choice:
    """The plausible values of one setting, where a condition on the paper's row holds."""

    setting: str
    values: tuple[Any, ...]
    sources: tuple[str, ...]
    tied: str
    """What shares one choice: the ``paper``, the ``table`` or the ``value``."""
    when: Row = field(default_factory=dict)
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Undeclared:
    """A setting without choices, or recorded values of it that are none (`when` names them as ``recorded``)."""

    setting: str
    why: str
    when: Row = field(default_factory=dict)
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Effect:
    """The effect of settings, as an interval on each of the data sets where both levels were measured."""

    record: str
    settings: tuple[str, ...]
    ends: Mapping[str, tuple[float, float]]

    @property
    def hull(self) -> tuple[float, float]:
        """The least and the largest effect that any of the data sets leaves possible, and none."""
        finite = [end for ends in self.ends.values() for end in ends if not math.isnan(end)]
        return min([0.0, *finite]), max([0.0, *finite])


@dataclass(frozen=True)
class Transport:
    """Where the effect of some settings was measured."""

    settings: tuple[str, ...]
    record: str
    part: str
    """Its level that our rows have."""
    same: tuple[str, ...] = ()
    """Columns of the record that have to have the values of our row."""
    where: Row = field(default_factory=dict)
    """Which rows of the record are meant."""
    when: Row = field(default_factory=dict)
    tables: tuple[str, ...] = ()
    columns: Row = field(default_factory=dict)
    """What columns of the record are called in the rows of a claim."""
    only: Row = field(default_factory=dict)
    """Settings of our rows at which the record was made, where they are no columns of it."""

    def rows(self, paper: str, same: Row) -> pd.DataFrame | None:
        """Return the rows of the record with these values, and its fixed settings; None where there are none."""
        if (record := records.recorded(paper, self.record)) is None:
            return None
        rows = record[0].assign(**record[1]["declared"]["fixed"])
        for name, value in {**self.where, **same}.items():
            if name in rows:
                rows = rows[rows[name].isna() if pd.isna(value) else rows[name] == value]
        return rows if len(rows) else None

    def effect(self, paper: str, row: Row, column: str) -> Effect | None:
        """Return the effect on a column in one of our rows; None where the record has no such cell."""
        rows = self.rows(paper, {name: row.get(name) for name in self.same})
        record = records.recorded(paper, self.record)
        if record is None or rows is None or column not in rows:
            return None
        intervals = {str(name): contrast(group, self.part, column) for name, group in rows.groupby("data")}
        ends = {name: pair for name, pair in intervals.items() if pair is not None}
        return Effect(self.record, self.settings, ends) if ends else None


def contrast(rows: pd.DataFrame, part: str, column: str) -> tuple[float, float] | None:
    """Return the interval of what the whole level has more than a part of it, paired by trial; None without pairs."""
    means = rows.groupby(["level", "trial"])[column].mean().unstack("level")
    if part not in means or WHOLE not in means:
        return None
    apart = (means[WHOLE] - means[part]).dropna()
    return interval(apart.to_numpy(), DIFFERENCE) if len(apart) else None


@dataclass(frozen=True)
class Choices:
    """All that is declared of one paper."""

    written: str = ""
    choices: tuple[Choice, ...] = ()
    transports: tuple[Transport, ...] = ()
    undeclared: tuple[Undeclared, ...] = ()

    def reason(self, table: str, setting: str, cell: Row) -> str:
        """Return why a setting has no choices in a row of the paper; "" where nothing is said."""
        return next((u.why for u in self.undeclared if u.setting == setting and _applies(u, table, cell)), "")

    def of(self, table: str, setting: str, cell: Row) -> tuple[Any, ...]:
        """Return the plausible values of a setting in a row of the paper; none where none are declared."""
        return next((c.values for c in self.choices if c.setting == setting and _applies(c, table, cell)), ())

    def transports_of(self, table: str, cell: Row) -> list[Transport]:
        """Return the transports that hold for a row of the paper."""
        return [t for t in self.transports if _applies(t, table, cell)]


def _applies(rule: Choice | Transport | Undeclared, table: str, cell: Row) -> bool:
    return table in (rule.tables or (table,)) and fits(rule.when, cell)


def load(paper: str) -> Choices:
    """Read what is declared of a paper; nothing where it has no such file."""
    path = paths.published(paper) / "choices.toml"
    return _load(paper, path, records.changed(path))


@lru_cache(maxsize=32)
def _load(paper: str, path: Path, changed: int) -> Choices:
    if not changed:
        return Choices()
    declared = tomllib.loads(path.read_text(encoding="utf-8"))
    choices: list[Choice] = []
    for fields in map(_tuples, declared.get("choice", ())):
        if len(fields["is"]) != len(fields["sources"]):
            raise ValueError(f"{path.name} of {paper}: every choice of {fields['setting']} has a source")
        choices.append(Choice(values=fields.pop("is"), **fields))
    moved = tuple(Transport(**_tuples(fields)) for fields in declared.get("transport", ()))
    undeclared = tuple(Undeclared(**_tuples(fields)) for fields in declared.get("open", ()))
    return Choices(declared["written"], tuple(choices), moved, undeclared)


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}


def effects(table: Table, row: Row, cell: Row, column: str) -> tuple[Effect, ...]:
    """Return the effects that are known for a value of one of the paper's tables in a row of ours."""
    declared = load(table.paper).transports_of(table.name, cell)
    measured = (
        move.effect(table.paper, row, column) for move in declared if fits(move.only, table.unnamed(row) | dict(row))
    )
    return tuple(filter(None, measured))


# --- does transport cover what is known? --------------------------------------------------------------------------


@dataclass(frozen=True)
class Backtest:
    """How often a value at the whole level was covered by one at a part of it and the effect on *other* data."""

    values: int
    covered: int
    half_width: float = math.inf
    """Mean over the values, in the unit of the column: all columns of transports so far are shares."""

    @property
    def trusted(self) -> bool:
        """Whether the transport counts."""
        covers = self.values >= LEAST_VALUES and self.covered >= LEAST_COVERED * self.values
        return covers and self.half_width <= WIDEST


def backtest(rows: pd.DataFrame, by: Sequence[str], kinds: Mapping[str, Kind]) -> Backtest:
    """Predict blind, in every cell and from every other data set, what was measured at the whole level.

    The even trials at the part are what one would have; the effect is that of the other data set; the odd trials at
    the whole level are the truth: their mean has to lie in the interval.
    """
    by = [name for name in by if name not in ("level", "data") and name in rows]
    tests = list[tuple[bool, float]]()
    for part in [level for level in rows["level"].unique() if level != WHOLE]:
        for column, kind in kinds.items():
            groups = rows[rows["level"].isin([part, WHOLE])].groupby([*by, "data", "level", "trial"], dropna=False)
            pairs = groups[column].mean().unstack("level")
            if {part, WHOLE} <= set(pairs):
                tests += _predicted(pairs.dropna(subset=[part, WHOLE]), by, part, kind)
    half_width = float(np.mean([half for _, half in tests])) if tests else math.inf
    return Backtest(len(tests), sum(hit for hit, _ in tests), half_width)


def _predicted(pairs: pd.DataFrame, by: Sequence[str], part: str, kind: Kind) -> Iterator[tuple[bool, float]]:
    """Yield, for each cell and pair of data sets, whether the one's effect covers the other's value, and how wide.

    The second is the interval's half-width. An interval is cut at 0 and 1, as every share is between them.
    """
    for _, cell in pairs.groupby(list(by), dropna=False):
        by_data = {name: group.reset_index() for name, group in cell.groupby(level="data")}
        for (name, group), other in itertools.product(by_data.items(), by_data):
            even, odd = group[group["trial"] % 2 == 0], group[group["trial"] % 2 == 1]
            if other == name or min(len(even), len(odd)) < 3:
                continue
            low, high = interval(even[part].to_numpy(), kind)
            moved = interval((by_data[other][WHOLE] - by_data[other][part]).to_numpy(), DIFFERENCE)
            down, up = Effect("", (), {other: moved}).hull
            truth = float(np.mean(odd[WHOLE]))
            bottom, top = max(0.0, low + down), min(1.0, high + up)
            yield bool(bottom - 1e-9 <= truth <= top + 1e-9), (top - bottom) / 2


def backtests(paper: str) -> dict[str, Backtest]:
    """Measure the backtest of every transport of a paper whose record is there; `judged.keep` writes them down."""
    measured = {}
    for transport in load(paper).transports:
        if transport.record not in measured and (recorded := records.recorded(paper, transport.record)):
            rows, declared = recorded[0], recorded[1]["declared"]
            kinds = {name: Kind(kind["name"]) for name, kind in declared["kinds"].items()}
            measured[transport.record] = backtest(rows, transport.same, kinds)
    return measured


def load_backtests(paper: str) -> dict[str, Backtest]:
    """Return the backtests of a paper's transports, as they were measured with its claims."""
    path = paths.claims(paper)
    return _load_backtests(path, records.changed(path))


@lru_cache(maxsize=64)
def _load_backtests(path: Path, changed: int) -> dict[str, Backtest]:
    recorded = json.loads(path.read_text(encoding="utf-8")) if changed else {}
    return {name: Backtest(**fields) for name, fields in recorded.get("backtests", {}).items()}


def trusted(paper: str, record: str) -> bool:
    """Say whether a recorded transport counts."""
    return load_backtests(paper).get(record, Backtest(0, 0)).trusted
