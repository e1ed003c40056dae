"""The effects of fewer images on other data, as data: ``data/published/<paper>/effects.csv``, and their backtests.

A paper's transports (`choices`) say where they were recorded. `fedleak claims` measures an effect again where its
record, its declaration or the claims' code changed, and reads all others.
"""

import csv
import hashlib
import io
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from fedleak.files import write_text
from fedleak_book import paths
from fedleak_book.evidence import choices
from fedleak_book.evidence.choices import WHOLE, Transport
from fedleak_book.evidence.published import Table
from fedleak_book.experiments import records
from fedleak_book.experiments.experiment import Row, fits
from fedleak_book.experiments.kinds import DIFFERENCE, Kind, interval

LEAST_COVERED, LEAST_VALUES, WIDEST = 0.9, 20, 0.1
"""A transport counts once it covered this share of at least this number of values, blind, by intervals with a mean
half-width of at most `WIDEST`: wider ones cannot fail."""
FILES = ("effects.csv", "backtests.csv")
"""What is written here, beside what is printed."""
KEYS = ("record", "settings", "where", "column", "at")
DIGITS = ".12g"
Ends = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Effect:
    """The effect of settings, as an interval on each of the data sets where both levels were measured."""

    record: str
    settings: tuple[str, ...]
    ends: Ends
    where: str = ""
    """Rows of the record that are meant, as text."""
    column: str = ""
    """Averaged column, or the id of a claim whose statistic was measured."""
    at: str = ""
    """Settings of our rows at which it was measured; a claim's reading and filters, as text."""
    digest: str = ""
    """Of what it was measured on; see `digest_of`."""

    @property
    def hull(self) -> tuple[float, float]:
        """The least and the largest effect that any of the data sets leaves possible, and none."""
        finite = [end for ends in self.ends.values() for end in ends if not math.isnan(end)]
        return min([0.0, *finite]), max([0.0, *finite])

    @property
    def key(self) -> tuple[str, ...]:
        """What identifies it in the file."""
        return self.record, ", ".join(self.settings), self.where, self.column, self.at


def text_of(settings: Row) -> str:
    """Return settings as the file has them."""
    return "; ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in settings.items()
    )


def digest_of(paper: str, transports: Sequence[Transport], code: str = "") -> str:
    """Return a digest of what effects depend on: records, declarations, and the code of a claim."""
    digest = hashlib.sha256(code.encode())
    for transport in transports:
        recorded = records.provenance(paths.recorded(paper) / f"{transport.record}.json")
        digest.update(f"{transport} {recorded.get('sha256')}".encode())
    return digest.hexdigest()[:12]


def of_cell(table: Table, row: Row, cell: Row, column: str) -> tuple[Effect, ...]:
    """Return the effects that are known for a value of one of the paper's tables in a row of ours."""
    declared = choices.load(table.paper).transports_of(table.name, cell)
    applying = (t for t in declared if fits(t.only, table.unnamed(row) | dict(row)))
    found = (of_column(table.paper, transport, row, column) for transport in applying)
    return tuple(effect for effect in found if effect is not None)


def of_column(paper: str, transport: Transport, row: Row, column: str) -> Effect | None:
    """Return the effect on a column in one of our rows; None where the record has no such cell."""
    same = {name: row.get(name) for name in transport.same}

    def measure() -> Ends:
        rows = rows_of(paper, transport, same)
        if rows is None or column not in rows:
            return {}
        pairs = {str(name): contrast(group, transport.part, column) for name, group in rows.groupby("data")}
        return {name: pair for name, pair in pairs.items() if pair is not None}

    return known(paper, [transport], column, text_of(same), measure)


def known(
    paper: str, transports: Sequence[Transport], column: str, at: str, measure: Callable[[], Ends], code: str = ""
) -> Effect | None:
    """Return an effect as the file has it, or measured where that is out of date; None where there is none."""
    first, where = transports[0], " | ".join(filter(None, (text_of(t.where) for t in transports)))
    effect = Effect(first.record, first.settings, {}, where, column, at, digest_of(paper, transports, code))
    recorded = load(paper).get(effect.key)
    if recorded is None or recorded.digest != effect.digest:
        recorded = replace(effect, ends=measure())
    return recorded if recorded.ends else None


def rows_of(paper: str, transport: Transport, same: Row) -> pd.DataFrame | None:
    """Return the rows of a transport's record with these values, and its fixed settings; None where there are none."""
    if (record := records.recorded(paper, transport.record)) is None:
        return None
    rows = record[0].assign(**record[1]["declared"]["fixed"])
    for name, value in {**transport.where, **same}.items():
        if name in rows:
            rows = rows[rows[name].isna() if pd.isna(value) else rows[name] == value]
    return rows if len(rows) else None


def contrast(rows: pd.DataFrame, part: str, column: str) -> tuple[float, float] | None:
    """Return the interval of what the whole level has more than a part of it, paired by trial; None without pairs."""
    means = rows.groupby(["level", "trial"])[column].mean().unstack("level")
    if part not in means or WHOLE not in means:
        return None
    apart = (means[WHOLE] - means[part]).dropna()
    return interval(apart.to_numpy(), DIFFERENCE) if len(apart) else None


# --- the files ------------------------------------------------------------------------------------------------------


def load(paper: str) -> Mapping[tuple[str, ...], Effect]:
    """Return the effects that are written down, by their keys."""
    path = paths.published(paper) / "effects.csv"
    return _load(path, records.changed(path))


@lru_cache(maxsize=32)
def _load(path: Path, changed: int) -> Mapping[tuple[str, ...], Effect]:
    effects = dict[tuple[str, ...], Effect]()
    for line in csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))) if changed else ():
        record, settings, where, column, at = key = tuple(line[name] for name in KEYS)
        ends = dict(effects[key].ends) if key in effects else {}
        ends[line["data"]] = float(line["low"] or "nan"), float(line["high"] or "nan")
        effects[key] = Effect(record, tuple(settings.split(", ")), ends, where, column, at, line["digest"])
    return effects


def write(paper: str, effects: Iterable[Effect]) -> None:
    """Write effects, each once, and the backtests of the paper's transports; what has none leaves no file."""
    lines = [
        {**dict(zip(KEYS, key, strict=True)), "data": name, "low": _text(low), "high": _text(high), "digest": of.digest}
        for key, of in sorted({effect.key: effect for effect in effects}.items())
        for name, (low, high) in of.ends.items()
    ]
    tests = [
        {"record": name, **asdict(of), "half_width": _text(of.half_width)} for name, of in backtests(paper).items()
    ]
    for name, rows in (("effects", lines), ("backtests", tests)):
        if rows:
            file = io.StringIO()
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
            write_text(paths.published(paper) / f"{name}.csv", file.getvalue())


def _text(value: float) -> str:
    return "" if math.isnan(value) else format(value, DIGITS)


# --- does transport cover what is known? --------------------------------------------------------------------------


@dataclass(frozen=True)
class Backtest:
    """How often a value at the whole level was covered by one at a part of it and the effect on *other* data."""

    values: int
    covered: int
    half_width: float = math.inf
    """Mean over the values, in the unit of the column: all columns of transports so far are shares."""
    digest: str = ""
    """Of what it was measured on; see `digest_of`."""

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
    """Return the backtest of every transport of a paper whose record is there: as written down, or measured anew."""
    earlier, tests = load_backtests(paper), dict[str, Backtest]()
    for transport in choices.load(paper).transports:
        if transport.record in tests or (recorded := records.recorded(paper, transport.record)) is None:
            continue
        digest = digest_of(paper, [transport])
        test = earlier.get(transport.record)
        if test is None or test.digest != digest:
            rows, declared = recorded[0], recorded[1]["declared"]
            kinds = {name: Kind(kind["name"]) for name, kind in declared["kinds"].items()}
            test = replace(backtest(rows, transport.same, kinds), digest=digest)
        tests[transport.record] = test
    return tests


def load_backtests(paper: str) -> dict[str, Backtest]:
    """Return the backtests of a paper's transports that are written down."""
    path = paths.published(paper) / "backtests.csv"
    return _load_backtests(path, records.changed(path))


@lru_cache(maxsize=64)
def _load_backtests(path: Path, changed: int) -> dict[str, Backtest]:
    lines = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))) if changed else ()
    return {
        line["record"]: Backtest(int(line["values"]), int(line["covered"]), float(line["half_width"]), line["digest"])
        for line in lines
    }


def trusted(paper: str, record: str) -> bool:
    """Say whether a recorded transport counts."""
    return load_backtests(paper).get(record, Backtest(0, 0)).trusted
