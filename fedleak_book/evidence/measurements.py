"""What was measured for a published value, and in which settings ours are not the paper's; `verdicts` judges it."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from fedleak import data, models
from fedleak.intervals import MIN_VALUES
from fedleak_book.evidence import effects
from fedleak_book.evidence.effects import Effect
from fedleak_book.evidence.published import LOST, Published, Table
from fedleak_book.evidence.spread import Groups
from fedleak_book.experiments import records
from fedleak_book.experiments.experiment import Row, fits
from fedleak_book.experiments.records import RECORDED

FREE = (-math.inf, math.inf)
IMMATERIAL = ("trials", "seed", "device", "threads")
"""Settings in which ours may always differ from the paper's: the interval covers trials and a seed, and
devices and threads give the same numbers to rounding (times are compared on their own device only). `sample_of` is the
one other rule; what a paper's ``tables.toml`` lists as immaterial names its evidence: an equation's label, or a
recorded artefact."""
TITLES: Mapping[str, Callable[[Any], Any]] = {"net": models.title, "data": data.title}
"""Settings whose values have a name in words."""
STAND_INS: Mapping[str, Mapping[str, Any]] = {
    "vgg16-quarter": {"net": "vgg16", "width": 0.25},
    "resnet20-1": {"net": "resnet20-4", "width": 0.25},
    "resnet20-2": {"net": "resnet20-4", "width": 0.5},
    "resnet32-4": {"net": "resnet32", "width": 4.0},
    "resnet50-imagenet": {"net": "resnet50"},
    "fcn3": {"widths": "512-512"},
    "fcn3-256": {"net": "fcn3", "widths": "256-128"},
    "fcn3-1024": {"net": "fcn3", "widths": "1024-1024"},
}
"""What a network is called in a paper, and what it has of its own: a stand-in its width beside the other's, FCN-3 the
widths of its layers. (No paper says how a ResNet-50 begins.)"""
HOUSE_BY_HOUSE = {"svhn": ", whose files come house by house"}
"""Data sets whose files are not in random order, so that a part of them is a sample with a remark."""


@dataclass(frozen=True)
class Difference:
    """A setting in which ours is another than the paper's; one with a reason, `why`, does not count."""

    setting: str
    ours: Any
    paper: Any
    why: str = ""

    @property
    def counts(self) -> bool:
        """Whether it is another than what the paper prints."""
        return not self.why and self.paper != LOST

    def __str__(self) -> str:
        if self.why:
            return self.why
        named = TITLES.get(self.setting, lambda value: value)
        theirs = "not known" if self.paper == LOST else _text(named(self.paper))
        ours = "" if self.ours is None and self.paper == LOST else f" {_text(named(self.ours))}"
        return f"{self.setting.replace('_', ' ')}{ours}, paper {theirs}"


def _text(value: Any) -> str:
    if value is None:
        return "not recorded"
    return f"{value:,g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Measured:
    """What we measured for one value: with its 95 % interval over n independent trials, and the settings it has.

    ``exact`` is for what is computed and has no randomness. ``differences`` are those of the settings; ``samples`` the
    remarks on parts of data sets that count as the whole; ``reading`` names one of several ways to read the paper.
    """

    id: str
    ours: float | None
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    exact: bool = False
    source: str = RECORDED
    differences: tuple[Difference, ...] = ()
    reading: str = ""
    note: str = ""
    effects: tuple[Effect, ...] = ()
    """Effects of some of the settings that differ, as far as they were measured."""
    ends: tuple[float, float] = FREE
    """The least and the largest value that is possible."""
    looks: int = 1
    """How often the trials were looked at before there were as many; see `looks`."""
    covered: tuple[str, ...] = ()
    """Settings whose effect the interval was widened by."""
    groups: Groups | tuple[()] = ()
    """What `spread.two_kinds` says of the trials' own values."""


def sample_of(ours: Row, images: float) -> str:
    """Say that our images are a sample of all of the data set's, or "" where they do not count as one.

    They do where no network was trained on them (``trained``, or ``stage``, is 0) and no round has to repeat an image:
    each client holds (``held``) at least as many as it needs, the batch times the local steps. The files of a data set
    are in random order, or `HOUSE_BY_HOUSE` says otherwise.
    """
    need = (ours.get("batch_size") or 1) * (ours.get("steps") or 1)
    per_client = ours.get("held", images)
    if ours.get("trained") or ours.get("stage") or not per_client >= need:
        return ""
    return f"sample of {images:,.0f} images{HOUSE_BY_HOUSE.get(str(ours.get('data')), '')}"


def canonical(row: Row) -> dict[str, Any]:
    """Return our settings with a stand-in network under the name of the one it stands for, and what it lacks of it."""
    plain = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
    return {"width": 1.0, **plain, **STAND_INS.get(str(plain.get("net")), {})}


def _immaterial(table: Table, setting: str, row: Row) -> str:
    """Say that a setting does not matter in a row, and by what evidence; "" where it may."""
    found = table.rules_of("immaterial", row, setting)
    return f"{setting.replace('_', ' ')} does not matter here ({found[0]['evidence']})" if found else ""


def unprinted(table: Table, item: Published) -> tuple[Difference, ...]:
    """Return the settings that the paper leaves open in a value's cells: they stay open where nothing was measured."""
    cells = [item.cell] if item.column else [row for row in table.rows if fits(item.cell, row)]
    lost = {k: None for cell in cells for k, v in table.settings(cell).items() if v == LOST}
    return tuple(Difference(k, None, LOST) for k in lost if not all(_immaterial(table, k, c) for c in cells))


def differences(table: Table, ours: Row, paper: Row) -> tuple[Difference, ...]:
    """Compare every setting that the paper has and that is neither key nor value; blank ones do not apply."""
    ours, listed = table.unnamed(ours) | canonical(ours), []
    for setting, theirs in table.settings(paper).items():
        mine = ours.get(setting)
        if theirs is None or setting in IMMATERIAL or mine == theirs or (mine is None and setting in ours):
            continue
        why = _immaterial(table, setting, ours)
        if setting == "images" and isinstance(mine, int | float) and isinstance(theirs, float) and mine < theirs:
            why = why or sample_of(ours, mine)
        listed.append(Difference(setting, mine, theirs, why))
    return tuple(listed)


def candidates(table: Table, rows: Iterable[Row], cell: Row) -> list[tuple[Row, tuple[Difference, ...]]]:
    """Return our rows of one of the paper's cells, by its keys, with their differences: the best first.

    The fewest differences win, then the largest n; a row with fewer than three trials never displaces one that decides.
    """
    same = [(row, differences(table, row, cell)) for row in rows if of_cell(cell, table.keys, row)]
    return sorted(same, key=lambda pair: (pair[0]["n"] < MIN_VALUES, sum(not d.why for d in pair[1]), -pair[0]["n"]))


def of_cell(cell: Row, keys: Iterable[str], row: Row) -> bool:
    """Say whether a row of ours belongs to one of the paper's cells, by its keys."""
    ours = canonical(row)
    return all(ours.get(key) == cell.get(key) for key in keys)


def from_table(table: Table, rows: Sequence[Row]) -> dict[str, list[Measured]]:
    """Measure every printed value of a table, by id: one measurement for each of our cells, the best first.

    Cells are ``column, column low, column high, n``, settings, and ``ends``, by column the ends of what is possible.
    """
    by_id = {}
    for item in table.items():
        value, values = item.column, list[Measured]()
        for row, differ in candidates(table, rows, item.cell):
            if finite(row.get(value)):
                low, high = (row.get(f"{value} {side}", math.nan) for side in ("low", "high"))
                applying = effects.of_cell(table, row, item.cell, value) if any(not d.why for d in differ) else ()
                measured = Measured(
                    item.id,
                    row[value],
                    low,
                    high,
                    int(row["n"]),
                    exact=bool(row.get(records.EXACT, False)),
                    differences=differ,
                    effects=applying,
                    ends=row.get("ends", {}).get(value, FREE),
                    looks=row.get("looks", 1),
                    groups=row.get("groups", {}).get(value, ()),
                )
                values.append(measured)
        why = "" if values else table.says("missing", item.cell, value) or "not run here"
        by_id[item.id] = values or [Measured(item.id, None, source="—", note=why)]
    return by_id


def finite(value: Any) -> TypeGuard[float]:
    """Say whether a value is a number that can be judged."""
    return isinstance(value, int | float) and math.isfinite(value)


def of_cells(table: Table, rows: Sequence[Row], when: Row, used: Sequence[Row] | None = None) -> tuple[Difference, ...]:
    """Return the differences of a claim about some of a table's cells: the union of theirs, and how many are missing.

    Rows of ours that belong to a cell by its keys other than ``rule`` count, every one of them that the claim depends
    on (`used`, by default all): it may take rules that only we have, and is no closer to the paper than the farthest.
    """
    keys = [key for key in table.keys if key != "rule"]
    wanted = list({tuple(cell.get(k) for k in keys): cell for cell in table.rows if fits(when, cell)}.values())
    union, missing = dict[str, Difference](), 0
    for cell in wanted:
        missing += not any(of_cell(cell, keys, row) for row in rows)
        same = [row for row in (rows if used is None else used) if of_cell(cell, keys, row)]
        union |= {str(d): d for row in same for d in differences(table, row, cell)}
    if missing:
        union["cells"] = Difference("cells", f"{len(wanted) - missing} of {len(wanted)}", len(wanted))
    return tuple(union.values())
