"""Recorded runs: the rows of every trial as CSV, and beside them where they come from."""

import hashlib
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedleak.files import write_text
from fedleak_book import paths
from fedleak_book.experiments import looks
from fedleak_book.experiments.experiment import Row, fits
from fedleak_book.experiments.kinds import Kind, interval

NOW, RECORDED = "this run", "recorded"
"""Where rows can come from."""
EXACT = "is exact"
"""Column of `Record.cells`: whether nothing in a cell is random. No measured column has a space in its name."""

NAMES = {"widths": str}
"""Columns of names, such as 120-84 and 512, that stay text although a record may have numbers alone."""


def units(rows: pd.DataFrame, by: Sequence[str], values: Sequence[str]) -> pd.DataFrame:
    """Reduce rows to one an independent unit: the means over the rows of a trial, such as its ten clients."""
    return rows.groupby([*by, "trial"], sort=False, dropna=False)[list(values)].mean().reset_index()


def summarise(
    rows: pd.DataFrame, by: Sequence[str], kinds: Mapping[str, Kind], fixed: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """Reduce trial rows to one row a cell: ``value, value low, value high`` (95 % interval of the mean) and ``n``.

    `by` names the columns that make a cell, `kinds` the columns of numbers and what each is, which may depend on
    settings that all rows share and that are no columns, `fixed`. What is independent is a ``trial``: its rows, such as
    clients that share a network, are averaged first. A value that is NaN in some trials is averaged over the others.
    """
    summary = []
    for keys, group in units(rows, by, list(kinds)).groupby(list(by), sort=False, dropna=False):
        row: dict[str, Any] = dict(zip(by, keys, strict=True))
        for value, kind in kinds.items():
            v, is_zero = group[value].dropna().to_numpy(dtype=float), kind.is_reference({**(fixed or {}), **row})
            ends = interval(v, kind) if v.size and np.isfinite(v).all() and not is_zero else (math.nan, math.nan)
            row |= {value: v.mean() if v.size else math.nan, f"{value} low": ends[0], f"{value} high": ends[1]}
        summary.append({**row, "n": len(group)})
    return pd.DataFrame(summary)


def record(paper: str, artefact: str, table: pd.DataFrame, facts: Mapping[str, Any]) -> None:
    """Write a table and its provenance under ``data/results/<paper>/``; a quick run's, below that in ``quick/``."""
    body = table.to_csv(index=False, float_format="%.7g")
    folder = paths.recorded(paper, facts.get("profile", "paper"))
    with suppress(ValueError):  # a damaged table is replaced
        if facts.get("profile", "paper") == "paper" and (earlier := recorded(paper, artefact)):
            looks.note(paper, artefact, facts["declared"]["axes"], earlier.rows, table)
    write_text(folder / f"{artefact}.csv", body)
    facts = {**facts, "sha256": hashlib.sha256(body.encode()).hexdigest()}
    write_text(folder / f"{artefact}.json", json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


@dataclass(frozen=True, eq=False)
class Record:
    """Rows of trials under their name, and their provenance, as the files of a record have them."""

    name: str
    rows: pd.DataFrame
    facts: Mapping[str, Any]
    """What the file beside the table says; ``declared`` is `Experiment.declared`, as it was when they were recorded."""

    @property
    def declared(self) -> Mapping[str, Any]:
        """The declaration."""
        return self.facts["declared"]

    @property
    def cells_by(self) -> list[str]:
        """The columns that make a cell."""
        return [*self.declared["axes"], *self.declared["by"]]

    @property
    def first(self) -> str:
        """The first averaged column, which is meant where none is named."""
        return str(next(iter(self.declared["values"])))

    @property
    def kinds(self) -> dict[str, Kind]:
        """What each averaged column is."""
        return {name: Kind(**kind) for name, kind in self.declared["kinds"].items()}

    @property
    def fixed(self) -> Mapping[str, Any]:
        """The settings that are the same everywhere."""
        return self.declared["fixed"]

    def cells(self) -> pd.DataFrame:
        """Return one row a cell: mean, interval and n, with every setting as a column.

        Trial rows are summarised by what is declared; a table recorded before trials were kept has its cells.
        """
        rows, exact = self.rows, {}
        if "trial" in rows:
            by = [c for c in self.cells_by if c in rows]
            kinds = {name: kind for name, kind in self.kinds.items() if name in rows}
            rows, exact = summarise(self.rows, by, kinds, self.fixed), {EXACT: self.declared["exact"]}
            if facts_of := [c for c in self.declared["facts"] if c in self.rows]:
                least = self.rows.groupby(by, sort=False, dropna=False)[facts_of].min().reset_index()
                rows = rows.merge(least.astype(rows.dtypes[by]), on=by)  # a key all blank may be of another type
        return rows.assign(**{k: v for k, v in self.fixed.items() if k not in rows}, **exact)


def recorded(paper: str, artefact: str, profile: str = "paper") -> Record | None:
    """Read a recorded table and its provenance; None if there is none.

    A table that is not the one that its provenance was written for, or has none, is a `ValueError`.
    """
    path = paths.recorded(paper, profile) / f"{artefact}.csv"
    if not path.exists():
        return None
    table, facts = _read(path, changed(path), changed(path.with_suffix(".json")))
    return Record(artefact, table.copy(deep=False), facts)


def load(paper: str, name: str) -> Record | None:
    """Read a record, or those that it joins, the rows of one trial once; None if there is none."""
    joined, found = joins(paper, name), parts(paper, name)
    if not joined:
        return found.get(name)
    whole = Record(name, pd.DataFrame(), joined)
    tables = [completed(record, whole.declared["axes"], joined["joins"][part]) for part, record in found.items()]
    rows = pd.concat(tables, ignore_index=True).drop_duplicates([*whole.cells_by, "trial"], ignore_index=True)
    return replace(whole, rows=rows)


def parts(paper: str, name: str) -> dict[str, Record]:
    """Read a record, or else those that it joins, by name."""
    names = (joins(paper, name) or {"joins": [name]})["joins"]
    return {part: record for part in names if (record := recorded(paper, part)) is not None}


def every(paper: str) -> Iterator[Record]:
    """Yield the records of a chapter that have a table of their own, by name."""
    for path in sorted(paths.recorded(paper).glob("*.csv")):
        if record := recorded(paper, path.stem):
            yield record


def joins(paper: str, name: str) -> dict[str, Any]:
    """Return what joins several records under one name, ``{}`` if nothing does.

    A file without a table of its own names them, ``joins``, each with rules for the settings that its rows lack.
    """
    facts = paths.facts(paths.recorded(paper) / f"{name}.json")
    return facts if "joins" in facts else {}


def joined_in(paper: str, part: str) -> str:
    """Return the name under which a record is joined with others; "" where it stands alone."""
    facts = paths.provenance(paper)
    return next((name for name, fields in facts.items() if part in fields.get("joins", ())), "")


def retired(paper: str) -> dict[str, dict[str, str]]:
    """Return the records whose code is gone, by name: the ``commit`` that has it, the ``trial``, what it ``says``."""
    facts = paths.provenance(paper)
    return {name: fields["retired"] for name, fields in facts.items() if "retired" in fields}


def completed(record: Record, axes: Sequence[str], rules: Sequence[Row]) -> pd.DataFrame:
    """Return the rows of a record with all axes of what joins it: its fixed settings, and those of the rules."""
    table = record.rows.assign(**{axis: record.fixed.get(axis) for axis in axes if axis not in record.rows})
    for rule in rules:
        value = rule["is"]
        if when := rule.get("when"):
            value = np.where([fits(when, row) for row in table.to_dict("records")], value, table[rule["setting"]])
        table = table.assign(**{rule["setting"]: value})
    return table[[*axes, *(column for column in table if column not in axes)]]


@lru_cache(maxsize=256)
def _read(path: Path, *written: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    if not (facts := paths.facts(path.with_suffix(".json"))):
        raise ValueError(f"{path.name} has no provenance beside it")
    body = path.read_bytes()
    if hashlib.sha256(body).hexdigest() != facts["sha256"]:
        raise ValueError(f"{path.name} is not the table that its provenance was written for: record it again")
    options: dict[str, Any] = {"engine": "python", "keep_default_na": False, "na_values": ["NaN", ""]}
    return pd.read_csv(io.BytesIO(body), dtype=NAMES, **options), facts


def changed(path: Path) -> int:
    """Say when a file was written last, so that what was read of it is read again after that; 0 where there is none."""
    return path.stat().st_mtime_ns if path.exists() else 0
