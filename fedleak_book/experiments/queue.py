"""Which declared experiments decide most values per minute on a lent machine, and running them in that order."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedleak_book import paths
from fedleak_book.experiments import choices, published, records, running, scoreboard, verdicts
from fedleak_book.experiments.context import Context
from fedleak_book.experiments.experiment import Experiment
from fedleak_book.experiments.results import Results
from fedleak_book.experiments.status import canonical
from fedleak_book.experiments.units import Units


@dataclass(frozen=True)
class Waiting:
    """An experiment that is declared and not recorded."""

    chapter: str
    experiment: Experiment
    values: int
    """Undecided values of the paper about cells that it measures, or about cells whose fewer images it measures the
    effect of: no more than these can be decided by it."""
    units: int
    """Units of computation that are not finished."""
    seconds: float
    """What they take, as `_seconds` estimates it from records; NaN: the chapter has none."""

    @property
    def rate(self) -> float:
        """Values per minute; 0 where the time is not known."""
        return 0.0 if math.isnan(self.seconds) else self.values / max(self.seconds / 60, 1e-9)

    def __str__(self) -> str:
        minutes = "? min" if math.isnan(self.seconds) else f"{self.seconds / 60:.1f} min"
        name = f"{self.chapter}/{self.experiment.name}"
        return f"{name:<36} {self.values:>3} values, {self.units:>4} units, {minutes:>9}, {self.rate:5.2f} values/min"


def waiting(chapters: Sequence[str], device: str = "cpu") -> list[Waiting]:
    """Return what is declared and not recorded, by values per minute on a device; what no value needs is left out."""
    on_gpu = Context(device).device.startswith("cuda")
    entries = [entry for chapter in chapters for entry in _of_chapter(chapter, on_gpu) if entry.values and entry.units]
    return sorted(entries, key=lambda entry: -entry.rate)


def _of_chapter(chapter: str, on_gpu: bool) -> Iterator[Waiting]:
    rows = [row for row in scoreboard.rows(chapter) if scoreboard.is_counted(row) and not _is_decided(row)]
    times, printed = list(_recorded_times(chapter)), published.load(chapter)
    for name, experiment in running.declared(chapter).items():
        if records.recorded(chapter, name) is not None:
            continue
        folder, settings = paths.units() / chapter / name, experiment.settings("paper")
        missing = [len(Units(folder, experiment, setting, 0, running.code_of(chapter)).missing) for setting in settings]
        values = sum(_measures(experiment, settings, printed, row) for row in rows)
        seconds = sum(
            _seconds(experiment, setting, times, on_gpu) * count
            for setting, count in zip(settings, missing, strict=True)
        )
        yield Waiting(chapter, experiment, values, sum(missing), float(seconds))


def _is_decided(row: Mapping[str, Any]) -> bool:
    return row["verdict"] in verdicts.DECIDED and row["grade"] in ("A", "B", "C")


def _measures(experiment: Experiment, settings: Sequence[Any], paper: published.Paper, row: Mapping[str, Any]) -> bool:
    """Say whether an experiment measures a value's cell, or the effect of fewer images on it."""
    table, cell = row["table"], row["cell"]
    moved = [t for t in choices.load(paper.name).transports if t.record == experiment.name]
    if any(table in (t.tables or (table,)) and published.fits(t.when, cell) for t in moved):
        return True
    if table not in (experiment.tables or (experiment.name,)):
        return False
    keys = [key for key in paper.tables[table].keys if key in cell]
    named = (canonical({**experiment.fixed, **setting}) for setting in settings)
    return any(all(setting.get(key, cell[key]) == cell[key] for key in keys) for setting in named)


@dataclass(frozen=True)
class _Recorded:
    """A recorded setting, by which trial and where it ran, and the seconds of a unit, the mean over its record."""

    trial: str
    on_gpu: bool
    setting: Mapping[str, Any]
    seconds: float


def _recorded_times(chapter: str) -> Iterator[_Recorded]:
    for path in sorted(paths.recorded(chapter).glob("*.json")):
        record = records.recorded(chapter, path.stem) if path.stem != "claims" else None
        if record is None or "trial" not in record[0] or not record[1].get("seconds"):
            continue
        rows, facts = record
        axes = [axis for axis in facts["declared"]["axes"] if axis in rows]
        units = rows[[*axes, "trial"]].drop_duplicates()
        for setting in units[axes].drop_duplicates().to_dict("records") if axes else [{}]:
            same = facts["declared"]["fixed"] | setting, facts["seconds"] / len(units)
            yield _Recorded(facts["declared"]["trial"], "cpu" not in facts["device"], *same)


def _seconds(experiment: Experiment, setting: Mapping[str, Any], times: Sequence[_Recorded], on_gpu: bool) -> float:
    """Return the recorded seconds of the chapter's most similar unit.

    First of the same trial, then on the same kind of device, then with the most values of settings in common.
    """
    named = {**experiment.fixed, **setting}

    def likeness(other: _Recorded) -> tuple[bool, bool, int]:
        equal = sum(named.get(name) == value for name, value in other.setting.items())
        return other.trial == experiment.trial.__name__, other.on_gpu == on_gpu, equal

    return max(times, key=likeness).seconds if times else math.nan


def run(entries: Sequence[Waiting], seconds: float, device: str, say: Callable[[str], None]) -> list[str]:
    """Run experiments in this order until the time is over, and record those that are done; return their chapters.

    No unit begins after the time is over. Finished units are kept, and the next run continues with them.
    """
    deadline, chapters = time.monotonic() + seconds, dict[str, None]()
    for entry in entries:
        results = Results(entry.chapter, "paper", device, record=True, others="refuse", deadline=deadline)
        try:
            results.rows(entry.experiment)
        except TimeoutError as over:
            say(f"{over}")
            break
        chapters[entry.chapter] = None
        say(f"recorded {entry.chapter}/{entry.experiment.name}")
    return list(chapters)
