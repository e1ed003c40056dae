"""The declaration of an experiment: its trial, settings, and the meaning of its columns. Declaring runs nothing."""

import hashlib
import inspect
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from fedleak_book.experiments.kinds import Kind

Names = str | Sequence[str]
Row = Mapping[str, Any]


def fits(when: Row | None, row: Row) -> bool:
    """Say whether a row has the values that a condition names (a list: one of them)."""
    return all(row.get(k) in (v if isinstance(v, list) else [v]) for k, v in (when or {}).items())


def grid(**axes: Any) -> list[dict[str, Any]]:
    """Return the settings of a grid: the product of the axes. A list is an axis of values, anything else one value.

    Grids are lists, so that they add up: ``grid(net="lenet", steps=[1, 10]) + grid(net="vgg16", steps=1, trials=3)``.
    An axis called ``trials`` is no axis of the trial: it is the number of trials of these settings.
    """
    values = [value if isinstance(value, list) else [value] for value in axes.values()]
    return [dict(zip(axes, chosen, strict=True)) for chosen in itertools.product(*values)]


def seeds_of(seed: int, trials: int) -> list[int]:
    """Return the seeds of the trials 0 … trials - 1: the first k are the same however many are asked for.

    They do not depend on the setting, so that settings are compared on the same models and batches.
    """
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(max(trials, 1), np.uint64) >> 1][:trials]


def key(*parts: Any) -> str:
    """Return a file name that identifies these parts."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:24]


def spawned(seed: int, role: str) -> int:
    """Return a separate seed for one role in a trial, such as ``"weights"`` or ``"batch"``.

    Given one integer, two generators read the same raw numbers. Experiments that were recorded with one seed for all
    (`OneSeed`) keep it until they are recorded anew.
    """
    words = np.random.SeedSequence([seed, *role.encode()]).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))


class OneSeed:
    """The seed of a trial for all of its roles, and one generator, which goes on where the last role has left it."""

    def __init__(self, seed: int):
        self.seed = seed
        self._generator = torch.Generator().manual_seed(seed)

    def of(self, role: str) -> int:
        """Return the seed of a role."""
        return self.seed

    def generator(self, role: str) -> torch.Generator:
        """Return the generator of a role."""
        return self._generator


class SeedByRole(OneSeed):
    """A separate seed for each role of a trial, as `spawned` has it, and at each call a generator that begins anew."""

    def of(self, role: str) -> int:
        """Return the seed of a role."""
        return spawned(self.seed, role)

    def generator(self, role: str) -> torch.Generator:
        """Return a new generator of a role."""
        return torch.Generator().manual_seed(self.of(role))


@dataclass(frozen=True, eq=False)
class Experiment:
    """A table of ours: the trial and settings that make it, and its columns."""

    name: str
    """Of the recorded table, and of the paper's table or figure that it reproduces."""
    trial: Callable[..., Any]
    """``trial(context, seed, **setting)`` yields the rows of one trial, which depend on these alone; a vectorised one
    calls its second parameter ``seeds``, takes many at once, and names the ``seed`` in each row."""
    quick: Sequence[Mapping[str, Any]]
    """The settings of the quick profile, as `grid` makes them; a setting may name its own ``trials``."""
    paper: Sequence[Mapping[str, Any]]
    values: Mapping[str, Kind]
    """Columns that are averaged over the trials; what each is decides its interval. Figures show the first."""
    trials: int | tuple[int, int] = 1
    """Trials a setting, in both profiles or in the quick and the paper one."""
    by: Names = ()
    """Columns beside the settings that make a cell, such as the attack's name."""
    facts: Names = ()
    """Columns of what the trial found itself working with, such as the images that a client holds: compared with the
    paper's settings like the settings themselves. The smallest counts."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are the same everywhere; those that are parameters of the trial are passed to it."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of the trial, beside its settings, such as how it draws. They are no settings of the paper and not recorded."""
    times: Names = ()
    """Columns of seconds, which do not come out the same again."""
    rounding: Names = ()
    """Columns of rounding errors, which do not either."""
    version: int = 1
    """To be raised with every edit that can change what comes out, of the trial or of what it calls."""
    exact: bool = False
    """Whether nothing in it is random."""
    tables: Names = ()
    """The paper's tables that the cells belong to, where their names are not the experiment's."""

    def __post_init__(self) -> None:
        for column in ("by", "facts", "times", "rounding", "tables"):
            given = getattr(self, column)
            object.__setattr__(self, column, (given,) if isinstance(given, str) else tuple(given))
        if taken := {"trial", "seed"} & {*self.axes, *self.by, *self.values, *self.facts}:
            raise ValueError(f"{self.name}: {sorted(taken)} are columns of every table, no setting's or value's name")
        if not self.quick or not self.paper:
            raise ValueError(f"{self.name}: a grid is empty: an axis without values leaves nothing to run")

    def settings(self, profile: str, trials: int = 0) -> list[dict[str, Any]]:
        """Return the settings of a profile, each with its number of trials; `trials` other than 0 is that of all."""
        full = profile == "paper"
        default = self.trials if isinstance(self.trials, int) else self.trials[full]
        override = {"trials": trials} if trials else {}
        return [{"trials": default, **setting, **override} for setting in (self.paper if full else self.quick)]

    @property
    def axes(self) -> list[str]:
        """The names of the settings, in the order of the declaration, of both profiles."""
        return list(dict.fromkeys(k for s in [*self.quick, *self.paper] for k in s if k != "trials"))

    @property
    def vectorised(self) -> bool:
        """Whether the trial takes many seeds at once."""
        return list(inspect.signature(self.trial).parameters)[1] == "seeds"

    @property
    def call(self) -> Callable[..., Any]:
        """The trial with its arguments, and those of the fixed settings that are its parameters."""
        parameters = inspect.signature(self.trial).parameters
        fixed = {name: value for name, value in self.fixed.items() if name in parameters}
        return partial(self.trial, **fixed, **self.arguments)

    @property
    def declared(self) -> dict[str, Any]:
        """The recorded part of the declaration: all that the comparison with the paper needs."""
        columns = {name: list(getattr(self, name)) for name in ("axes", "by", "values", "facts", "times", "rounding")}
        kinds = {name: kind.written for name, kind in self.values.items()}
        basics = {"trial": self.trial.__name__, "version": self.version, "fixed": dict(self.fixed), "exact": self.exact}
        return {**basics, **columns, "kinds": kinds, "tables": list(self.tables or (self.name,))}
