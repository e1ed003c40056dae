"""The effects of fewer images on other data, and whether they hold: measured and written down by `fedleak claims`.

A transport of ``choices.toml`` names the record that measured, trial by trial, the effect of some settings on other
data that have both levels, ``whole`` and that of ours. ``data/published/<paper>/effects.csv`` has the effects, and
``backtests.csv`` how often those of a record covered what is known.
"""

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

from fedleak.files import write_text
from fedleak_book import paths
from fedleak_book.evidence import scoreboard
from fedleak_book.evidence.published import Paper, Table
from fedleak_book.experiments import records
from fedleak_book.experiments.experiment import Row, fits
from fedleak_book.experiments.kinds import DIFFERENCE, Kind, interval

WHOLE = "whole"
LEAST_COVERED, LEAST_VALUES, WIDEST = 0.9, 20, 0.1
"""A transport counts once it covered this share of at least this number of values, blind, by intervals with a mean
half-width of at most `WIDEST`: wider ones cannot fail."""
FILES = ("effects.csv", "backtests.csv")
"""What is written here, beside what is printed."""
KEYS = ("record", "settings", "where", "column", "at")
DIGITS = ".12g"
Ends = Mapping[str, tuple[float, float]]


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


def transports(rules: Iterable[Row]) -> list[Transport]:
    """Return the transports that some rules of ``choices.toml`` declare."""
    plain: Iterator[dict[str, Any]]
    plain = ({k: tuple(v) if isinstance(v, list) else v for k, v in rule.items()} for rule in rules)
    return [Transport(**fields) for fields in plain]


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


def digest_of(paper: str, transports: Iterable[Transport], code: str = "") -> str:
    """Return a digest of what effects depend on: records, declarations, and the code of a chapter's claims."""
    digest = hashlib.sha256(code.encode())
    for transport in transports:
        recorded = records.recorded(paper, transport.record)
        digest.update(f"{transport} {recorded and recorded.facts['sha256']}".encode())
    return digest.hexdigest()[:12]


def effect(
    paper: str, of: Sequence[Transport], column: str, at: str, measure: Callable[[], Ends], code: str = ""
) -> list[Effect]:
    """Return the effect of transports, which are of the same settings by one record; nothing without an interval.

    It is read from the file, and measured where that has none or was written for another record or claim.
    """
    where = " | ".join(filter(None, (text_of(transport.where) for transport in of)))
    entry = Effect(of[0].record, of[0].settings, {}, where, column, at, digest_of(paper, of, code))
    ends = _written(paper).get((*entry.key, entry.digest)) or measure()
    return [replace(entry, ends=ends)] if ends else []


def of_cell(table: Table, row: Row, cell: Row, column: str) -> tuple[Effect, ...]:
    """Return the effects that are known for a value of one of the paper's tables in a row of ours."""
    effects = list[Effect]()
    for transport in transports(table.rules_of("transport", cell)):
        if fits(transport.only, table.unnamed(row) | dict(row)):
            same = {name: row.get(name) for name in transport.same}
            measure = partial(_of_column, table.paper, transport, same, column)
            effects += effect(table.paper, [transport], column, text_of(same), measure)
    return tuple(effects)


def _of_column(paper: str, transport: Transport, same: Row, column: str) -> Ends:
    rows = rows_of(paper, transport, same)
    samples = rows.groupby("data") if column in rows else ()
    pairs = {str(name): contrast(sample, transport.part, column) for name, sample in samples}
    return {name: pair for name, pair in pairs.items() if pair is not None}


def rows_of(paper: str, transport: Transport, same: Row) -> pd.DataFrame:
    """Return the rows of a transport's record with these values, and its fixed settings."""
    if (record := records.recorded(paper, transport.record)) is None:
        return pd.DataFrame({"data": []})
    rows = record.rows.assign(**record.fixed)
    for name, value in {**transport.where, **same}.items():
        if name in rows:
            rows = rows[rows[name].isna() if pd.isna(value) else rows[name] == value]
    return rows


def contrast(rows: pd.DataFrame, part: str, column: str) -> tuple[float, float] | None:
    """Return the interval of what the whole level has more than a part of it, paired by trial; None without pairs."""
    means = rows.groupby(["level", "trial"])[column].mean().unstack("level")
    if part not in means or WHOLE not in means:
        return None
    apart = (means[WHOLE] - means[part]).dropna()
    return interval(apart.to_numpy(), DIFFERENCE) if len(apart) else None


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


def backtest(rows: pd.DataFrame, by: Sequence[str], kinds: Mapping[str, Kind], digest: str = "") -> Backtest:
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
    return Backtest(len(tests), sum(hit for hit, _ in tests), half_width, digest)


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


def backtests(paper: Paper) -> dict[str, Backtest]:
    """Return the backtest of every record that a paper's transports name, with the columns that the first keeps."""
    tests = dict[str, Backtest]()
    for transport in transports(paper.rules.get("transport", ())):
        record = records.recorded(paper.name, transport.record)
        if record and record.name not in tests:
            kinds = {name: Kind(kind.name) for name, kind in record.kinds.items()}
            tests[record.name] = backtest(record.rows, transport.same, kinds, digest_of(paper.name, [transport]))
    return tests


# --- the files ------------------------------------------------------------------------------------------------------


def write(paper: str, effects: Iterable[Effect], tests: Mapping[str, Backtest]) -> None:
    """Write effects, each once, and backtests; a paper without them gets no file."""
    lines = [
        {**dict(zip(KEYS, key, strict=True)), "data": name, "low": low, "high": high, "digest": of.digest}
        for key, of in sorted({effect.key: effect for effect in effects}.items())
        for name, (low, high) in of.ends.items()
    ]
    tested = [{"record": name, **asdict(of)} for name, of in tests.items()]
    for name, rows in zip(FILES, (lines, tested), strict=True):
        file = paths.published(paper) / name
        if rows:
            write_text(file, pd.DataFrame(rows).to_csv(index=False, float_format=f"%{DIGITS}"))
        else:
            file.unlink(missing_ok=True)


@cache
def _written(paper: str) -> Mapping[tuple[str, ...], Ends]:
    """Return the effects as this process found them, by keys and digests; none of a file that was changed by hand."""
    path, of = paths.published(paper) / FILES[0], [*KEYS, "digest"]
    if not path.is_file() or scoreboard.sha256(path.read_bytes()) != scoreboard.written(paper).get(path.name):
        return {}
    text = dict.fromkeys([*of, "data"], str)
    rows = pd.read_csv(path, dtype=text, keep_default_na=False, na_values={"low": "", "high": ""}).groupby(of)
    return {key: dict(zip(t["data"], zip(t["low"], t["high"], strict=True), strict=True)) for key, t in rows}


def load_backtests(paper: str) -> dict[str, Backtest]:
    """Return the backtests of a paper's records that are written down."""
    path = paths.published(paper) / "backtests.csv"
    rows = pd.read_csv(path, dtype={"digest": str}).to_dict("records") if path.is_file() else ()
    return {row.pop("record"): Backtest(**row) for row in rows}
