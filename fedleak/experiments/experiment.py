"""A declared experiment: its trial, its settings, and what its columns mean. Running and recording it follow."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from fedleak.experiments import records
from fedleak.experiments.stamps import merged
from fedleak.experiments.sweep import Trial, settings_of, sweep
from fedleak.intervals import Kind

NOW, RECORDED = "this run", "recorded"


class Run(Protocol):
    """What an experiment asks of its chapter."""

    paper: str
    profile: str
    seed: int
    trials: int
    record: bool
    scheduler: str

    @property
    def full(self) -> bool:
        """Whether this is the paper profile."""

    @property
    def cache(self) -> Path:
        """Folder of the finished units."""


@dataclass(eq=False)
class Experiment:
    """One experiment of a chapter; made by `Chapter.experiment`, where the parameters are explained.

    It runs when its rows are first asked for.
    """

    chapter: Run
    artefact: str
    trial: Trial
    quick: Sequence[Mapping[str, Any]]
    paper: Sequence[Mapping[str, Any]]
    trials: tuple[int, int]
    by: tuple[str, ...] = ()
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    facts: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    times: tuple[str, ...] = ()
    rounding: tuple[str, ...] = ()
    version: int = 1
    exact: bool = False
    tables: tuple[str, ...] = ()
    newcomers: tuple[str, ...] = ()

    def settings(self, profile: str | None = None) -> list[dict[str, Any]]:
        """Return the settings of a profile, each with its number of trials."""
        full = (profile or self.chapter.profile) == "paper"
        default = self.trials[full]
        found = [{"trials": default, **setting} for setting in settings_of(self.paper if full else self.quick)]
        return [{**s, "trials": self.chapter.trials or s["trials"]} for s in found]

    @property
    def values(self) -> tuple[str, ...]:
        """The columns that are averaged; the first is the one that figures show."""
        return tuple(self.kinds)

    @property
    def axes(self) -> list[str]:
        """The names of the settings, in the order of the declaration, of both profiles."""
        return list(dict.fromkeys(k for s in [*self.quick, *self.paper] for k in s if k != "trials"))

    @property
    def declared(self) -> dict[str, Any]:
        """What is recorded of the declaration: all that the comparison with the paper needs."""
        return {
            "trial": self.trial.__name__,
            "version": self.version,
            "axes": self.axes,
            "by": list(self.by),
            "values": list(self.values),
            "kinds": {name: kind.written for name, kind in self.kinds.items()},
            "facts": list(self.facts),
            "fixed": dict(self.fixed),
            "times": list(self.times),
            "rounding": list(self.rounding),
            "exact": self.exact,
            "tables": list(self.tables or (self.artefact,)),
        }

    @property
    def call(self) -> Trial:
        """The trial with those of the fixed settings that are its parameters."""
        known = inspect.signature(self.trial).parameters
        return partial(self.trial, **{name: value for name, value in self.fixed.items() if name in known})

    def run(self, settings: Iterable[Mapping[str, Any]] | None = None, progress: bool = True) -> pd.DataFrame:
        """Run some settings (by default the profile's) and return the trial rows."""
        rows = sweep(
            self.call,
            [dict(s) for s in (self.settings() if settings is None else settings)],
            1,
            self.chapter.seed,
            self.chapter.cache / self.artefact,
            self.chapter.scheduler,
            name=self.artefact,
            version=self.version,
            timed=bool(self.times),
            progress=progress,
        )
        columns = {*self.axes, *self.by, *self.values, *self.facts, "trial", "seed"}
        if unknown := sorted(set(rows) - columns):
            raise ValueError(
                f"{self.artefact}: the trial yields {', '.join(unknown)}, which the declaration does not name: "
                f"say by=, values= or facts="
            )
        if missing := sorted({*self.by, *self.values, *self.facts} - set(rows)):
            raise ValueError(f"{self.artefact}: the declaration names {', '.join(missing)}, which no trial yields")
        return rows

    @cached_property
    def rows(self) -> pd.DataFrame:
        """The trial rows of this run; recorded, where the chapter records."""
        rows = self.run()
        if self.chapter.record:
            self.record(rows)
        return rows

    def record(self, rows: pd.DataFrame | None = None) -> None:
        """Write the trial rows of this run, and where they come from, to ``data/results/``."""
        rows = self.run() if rows is None else rows
        facts = merged(rows.attrs["stamps"]) | {
            "profile": self.chapter.profile,
            "seed": self.chapter.seed,
            "trials": self.chapter.trials,
            "seconds": float(f"{rows.attrs['seconds']:.3g}"),
            "datasets": list(rows.attrs["notes"].get("data", {}).values()),
            "declared": self.declared,
        }
        if self.chapter.scheduler:
            facts["scheduler"] = "dask"
        records.record(self.chapter.paper, self.artefact, rows.drop(columns="seed"), facts)
        self.__dict__.pop("recorded_rows", None)

    @cached_property
    def recorded_rows(self) -> tuple[pd.DataFrame, dict[str, Any]] | None:
        """The recorded table as it is in its file, with its provenance; None where there is none to be shown."""
        if self.chapter.record and self.chapter.full:
            return None
        return records.recorded(self.chapter.paper, self.artefact)

    def summary(self, rows: pd.DataFrame, declared: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Reduce rows to one a cell."""
        return records.settled(rows, {"declared": {**self.declared, **(declared or {})}})

    @cached_property
    def recorded(self) -> pd.DataFrame | None:
        """The recorded cells, or None."""
        if self.recorded_rows is None:
            return None
        rows, facts = self.recorded_rows
        then = facts.get("declared", self.declared)
        return self.summary(rows, {"fixed": then["fixed"], "filled": then.get("filled", {})})

    @cached_property
    def now(self) -> pd.DataFrame:
        """The cells of this run."""
        return self.summary(self.rows)

    @property
    def counted(self) -> list[dict[str, Any]]:
        """The cells that are compared with the paper: the recorded ones, or a paper run's own; one mapping a cell."""
        cells = self.recorded if self.recorded is not None else self.now if self.chapter.full else None
        return [] if cells is None else cells.to_dict("records")

    @property
    def table(self) -> pd.DataFrame:
        """The cells of this run and the recorded ones (column ``source``)."""
        pieces = [self.now.assign(source=NOW)]
        if self.recorded is not None:
            pieces.append(self.recorded.assign(source=RECORDED))
        return pd.concat(pieces, ignore_index=True)

    @property
    def best(self) -> pd.DataFrame:
        """The recorded cells where there are any, and this run's of newcomers; else this run's."""
        return self._joined(self.recorded, lambda: self.now)

    @property
    def best_rows(self) -> pd.DataFrame:
        """The rows behind `best`, one a trial (and what the trial yields); cells, where no trials were recorded."""
        return self._joined(self.recorded_trials, lambda: self.rows)

    @property
    def recorded_trials(self) -> pd.DataFrame | None:
        """The recorded rows, one a trial, or the recorded cells where no trials were kept; None without a record."""
        if self.recorded_rows is None:
            return None
        return self.recorded_rows[0] if "trial" in self.recorded_rows[0] else self.recorded

    def _joined(self, then: pd.DataFrame | None, now: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """Join what is recorded and this run's newcomers; without `newcomers`, a recorded experiment does not run."""
        if then is None:
            return now().assign(source=NOW)
        named = [column for column in self.newcomers if column in then]
        pieces = [then.assign(source=RECORDED)]
        if named:
            rows = now()
            pieces.append(rows[~rows[named].isin(then[named].to_dict("list")).all(axis=1)].assign(source=NOW))
        return pd.concat([piece for piece in pieces if len(piece)], ignore_index=True)
