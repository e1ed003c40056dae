"""What a paper does not print, as plausible choices that are declared before the rows, and the effect of fewer images.

``data/published/<paper>/choices.toml`` has them. A **choice** lists values of a setting, each with its source. A
**transport** names the recorded experiment that measured, trial by trial, the effect of a setting on other data that
have both levels, ``whole`` and that of ours.
"""

import tomllib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedleak_book import paths
from fedleak_book.experiments import records
from fedleak_book.experiments.experiment import Row, fits

WHOLE = "whole"


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
