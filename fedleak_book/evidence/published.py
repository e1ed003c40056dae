"""What a paper prints: its tables as tables, the claims of its text, and what would count as reproducing them.

``data/published/<paper>/`` holds ``tables.toml`` (per table or figure: where it stands, what its columns mean, what
holds of every row, the tolerances), one CSV for each table (settings as columns, named as our trials name them, and the
printed values; blank: does not apply; ``?``: not known, ``book/data.md``), ``claims.toml`` (what the text says), and
``choices.toml``: plausible values of what is not printed, each with its source (``choice``), why a setting has none
(``open``), and the records that measured the effect of fewer images (``transport``; see `effects`).
"""

import csv
import itertools
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fedleak_book import paths
from fedleak_book.experiments.experiment import Row, fits

LOST = "?"

CHOICES = {
    "direction": ("higher", "lower", "neither"),
    "kind": ("value", "at least", "at most", "between", "above", "below"),
    "rows": ("none", "earlier", "used"),
}
"""What some fields of a published value can be."""
SAID = ("id", "item", "claim", "where", "direction", "kind", "rows", "attack", "beyond", "repeats")
"""Fields of a published value that ``tables.toml`` says by row."""


@dataclass(frozen=True)
class Published:
    """One number or claim of a paper, and what would count as reproducing it.

    ``kind`` says how `published` is read: ``"value"`` (a number), ``"at least"``, ``"at most"``, ``"between"`` (two
    numbers), ``"above"`` or ``"below"`` (without the bound itself); the band is that with `tolerance` on every side.
    ``attack`` marks a value of the paper's own attack, which may be better than printed; a baseline's or a defence's
    may not. ``table`` and ``cell`` are the table or figure with the paper's settings, and those of this value;
    ``beyond`` marks what no paper prints (our extensions, derived bounds, predictions). ``rows`` says which rows of
    ours existed when the entry was written down: ``"none"``, ``"earlier"`` (of the same experiment, recorded anew
    since) or ``"used"`` (those that measure it).
    """

    id: str
    item: str
    anchor: str
    claim: str
    where: str
    metric: str
    direction: str
    published: float | tuple[float, float]
    tolerance: float
    why: str
    kind: str = "value"
    attack: bool = False
    beyond: bool = False
    table: str = ""
    column: str = ""
    cell: Row = field(default_factory=dict)
    rows: str = "none"
    since: str = ""
    """Of a prediction, the commit in which it was first written with this bound, sometimes in other words."""
    repeats: str = ""
    """Id of the value whose measurement this one repeats: shown, and not counted."""
    printed: float | None = None
    """Of a prediction about a number that another paper prints, this number."""

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if (given := getattr(self, name)) not in allowed:
                raise ValueError(f"{self.id}: {name} is one of {', '.join(allowed)}, not {given!r}")
        if isinstance(self.published, tuple) != (self.kind == "between"):
            raise ValueError(f"{self.id}: kind {self.kind!r} does not go with published = {self.published!r}")
        if not self.tolerance >= 0:
            raise ValueError(f"{self.id}: the tolerance is not negative, got {self.tolerance}")

    @property
    def _ends(self) -> tuple[float, float]:
        low, high = self.published if isinstance(self.published, tuple) else (self.published, self.published)
        return (
            -math.inf if self.kind in ("at most", "below") else low,
            math.inf if self.kind in ("at least", "above") else high,
        )

    @property
    def band(self) -> tuple[float, float]:
        """The values that count as reproducing this one; 0.98 - 0.97 is more than 0.01 in binary."""
        (low, high), strict = self._ends, self.kind in ("above", "below")
        slack = self.tolerance + (-1e-9 if strict else 1e-9)
        return low - slack, high + slack

    def prints(self, low: float, high: float) -> bool:
        """Return whether an interval holds a value that the paper prints, or that its bound or range allows."""
        bottom, top = self._ends
        return low <= top + 1e-9 and high >= bottom - 1e-9

    def misses(self, low: float, high: float) -> bool:
        """Return whether an interval lies wholly beside the band; NaN does not."""
        bottom, top = self.band
        return high < bottom or low > top

    def text(self) -> str:
        """Return the published value as the tables print it."""
        if isinstance(self.published, tuple):
            return f"{self.published[0]:g} to {self.published[1]:g}"
        signs = {"at least": "≥ ", "at most": "≤ ", "above": "> ", "below": "< "}
        return signs.get(self.kind, "") + f"{self.published:g}"

    @property
    def of(self) -> str:
        """Who says it: ``printed`` by its paper, or ``repeated`` there; ``beyond`` it, by us; our ``prediction``."""
        return "prediction" if self.since else "beyond" if self.beyond else "repeated" if self.repeats else "printed"


def number(text: str) -> Any:
    """Read a cell of a CSV: a number where it is one; None where it is blank."""
    with suppress(ValueError):
        return float(text) if text else None
    return text


@dataclass(frozen=True)
class Table:
    """A printed table or figure: its rows of settings (and values), and the rest of what ``tables.toml`` says of it.

    ``fixed`` holds for every row. A figure without printed values has ``axes`` in place of a CSV: their product is its
    rows.
    """

    paper: str
    name: str
    head: Row
    names: Mapping[str, Mapping[str, str]]
    rules: Mapping[str, Any] = field(default_factory=dict)
    """Rules for every table of the paper, by what they say: those of ``choices.toml``, and ``unnamed``."""

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Every row: what holds of all of them, and its own."""
        path = paths.published(self.paper) / f"{self.name}.csv"
        if path.exists():
            with open(path, encoding="utf-8", newline="") as file:
                rows = [{k: number(v) for k, v in row.items()} for row in csv.DictReader(file)]
        else:
            axes = self.head.get("axes", {})
            rows = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
        return [{**self.head.get("fixed", {}), **row} for row in rows]

    @property
    def keys(self) -> list[str]:
        """The columns that identify a row; the others are values, and settings that are compared."""
        return self.head["keys"]

    @property
    def values(self) -> Mapping[str, str]:
        """The columns of printed values, each with its metric."""
        return self.head.get("values", {})

    def settings(self, row: Row) -> dict[str, Any]:
        """Return what of a row is neither a key nor a value."""
        return {k: v for k, v in row.items() if k not in self.keys and k not in self.values}

    def rules_of(self, what: str, row: Row, setting: str | None = None) -> list[Row]:
        """Return the rules (about a setting) that a row fits: the first of them holds."""
        rules = [*self.head.get(what, ()), *self.rules.get(what, ())]
        ours = [rule for rule in rules if self.name in rule.get("tables", [self.name]) and fits(rule.get("when"), row)]
        return ours if setting is None else [rule for rule in ours if rule["setting"] == setting]

    def choices(self, setting: str, row: Row) -> Sequence[Any]:
        """Return the plausible values of a setting in a row; none where none are declared."""
        return next((rule["is"] for rule in self.rules_of("choice", row, setting)), ())

    def unnamed(self, row: Row) -> dict[str, Any]:
        """Return the settings that earlier records do not name, with the value that they have; None: does not apply."""
        return {rule["setting"]: rule.get("is") for rule in reversed(self.rules_of("unnamed", row))}

    def says(self, what: str, row: Row, value: str = "") -> Any:
        """Return what ``tables.toml`` says of a row's value: for all rows, or the first rule that fits."""
        entry, row = self.head.get(what), {**row, "value": value}
        if isinstance(entry, dict):  # a mark for all values of the table, or for those that fit
            return fits(entry, row)
        if isinstance(entry, list):
            entry = next((rule["is"] for rule in self.rules_of(what, row)), None)
        if isinstance(entry, str):
            texts = self.named_cells(row)
            return entry.format(**({k: _slug(v) for k, v in texts.items()} if what in ("id", "repeats") else texts))
        return entry

    def named_cells(self, row: Row) -> dict[str, str]:
        """Return a row's cells as sentences name them."""
        texts = {k: f"{v:g}" if isinstance(v, float) else str(v) for k, v in row.items()}
        return {k: self.names.get(k, {}).get(text, text) for k, text in texts.items()}

    def items(self) -> Iterator[Published]:
        """Yield every printed value."""
        for row in self.rows:
            for value, metric in self.values.items():
                if row.get(value) is None:
                    continue
                rule = self.rules_of("tolerance", {**row, "value": value})[0]
                texts = {name: self.says(name, row, value) for name in SAID}
                yield Published(
                    **{name: text for name, text in texts.items() if text is not None},
                    anchor=self.head["anchor"],
                    metric=metric.format(**self.named_cells(row)),
                    published=row[value],
                    tolerance=rule["is"],
                    why=rule["why"],
                    table=self.name,
                    column=value,
                    cell=row,
                )


def _slug(text: str) -> str:
    return text.lower().replace("-", "").replace("+", "plus").replace("*", "star").replace(" ", "")


@dataclass(frozen=True)
class Paper:
    """All that is printed in one paper."""

    name: str
    title: str
    key: str
    tables: Mapping[str, Table]
    items: Mapping[str, Published]
    rules: Mapping[str, Any] = field(default_factory=dict)
    """What ``choices.toml`` says."""


def load(paper: str) -> Paper:
    """Read what a paper prints.

    Two values of one id, a field that is missing, unknown or of a wrong value, or a claim that names neither a table
    with the paper's settings nor says that it has none (``table = ""``), are a `ValueError`.
    """
    head, claims, rules = (_read(paths.published(paper) / f"{name}.toml") for name in ("tables", "claims", "choices"))
    title, bibkey, names = head.pop("title", ""), head.pop("key", ""), head.pop("names", {})
    everywhere = {"unnamed": head.pop("unnamed", ()), **rules}
    tables = {name: Table(paper, name, entry, names, everywhere) for name, entry in head.items()}
    every = [_claim(paper, {**claims.get("default", {}), **fields}, tables) for fields in claims.get("claim", [])]
    every += [item for table in tables.values() for item in table.items()]
    items = {item.id: item for item in every}
    if twice := [item.id for item in every if items[item.id] is not item]:
        raise ValueError(f"{paper} has two values {twice[0]!r}")
    return Paper(paper, title, bibkey, tables, items, rules)


def _read(path: Path) -> dict[str, Any]:
    """Read a file; a chapter without a paper has predictions, and no tables."""
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _claim(paper: str, fields: dict[str, Any], tables: Mapping[str, Table]) -> Published:
    place = f"{paper}/claims.toml, claim {fields.get('id')!r}"
    if fields.get("table") not in (*tables, ""):
        raise ValueError(f"{place}: table names one of {', '.join(tables)}, or is empty")
    if isinstance(fields.get("published"), list):
        fields["published"] = tuple(fields["published"])
    cell = fields.pop("when", {})
    if fields["table"] and (rows := [row for row in tables[fields["table"]].rows if fits(cell, row)]):
        cell = {k: v for k, v in rows[0].items() if all(row.get(k) == v for row in rows) and v != LOST} | cell
    try:
        return Published(**fields, cell=cell)
    except TypeError as error:
        raise ValueError(f"{place}: {error}") from None
