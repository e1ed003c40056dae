"""A trial function over a grid: seeded, cached, resumable, with progress, on one machine or a Dask cluster."""

import inspect
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from fedleak.experiments.cache import Units, noting, writable
from fedleak.experiments.calls import elsewhere, fingerprints, traced
from fedleak.experiments.stamps import stamp

Trial = Callable[..., Any]
"""``trial(seed, **setting)``: the rows of one trial, if it has any (dicts, yielded or in a list, or one dict). A
function that is vectorised over trials calls its first parameter ``seeds``, takes many at once, and names the ``seed``
in each row."""
Setting = Mapping[str, Any]
Grid = Mapping[str, Sequence[Any]] | Iterable[Setting]
"""Axis name to values, of which the product is run; or the settings themselves."""


def grid(**axes: Any) -> list[dict[str, Any]]:
    """Return the settings of a grid: the product of the axes. A list is an axis of values, anything else one value.

    Grids are lists, so that they add up: ``grid(net="lenet", steps=[1, 10]) + grid(net="vgg16", steps=1, trials=3)``.
    An axis called ``trials`` is no axis of the trial: it is the number of trials of these settings.
    """
    values = [value if isinstance(value, list) else [value] for value in axes.values()]
    return [dict(zip(axes, chosen, strict=True)) for chosen in itertools.product(*values)]


def settings_of(grid: Grid) -> Iterator[dict[str, Any]]:
    """Yield the settings of a grid: of axes, their product."""
    if isinstance(grid, Mapping):
        yield from (dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))
    else:
        yield from (dict(setting) for setting in grid)


def seeds_of(seed: int, trials: int) -> list[int]:
    """Return the seeds of the trials 0 … trials - 1: the first k are the same however many are asked for.

    They do not depend on the setting, so that settings are compared on the same models and batches.
    """
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(max(trials, 1), np.uint64) >> 1][:trials]


def sweep(
    trial: Trial,
    grid: Grid,
    trials: int,
    seed: int,
    out: Path | str,
    scheduler: str | None = None,
    *,
    name: str | None = None,
    version: int = 1,
    timed: bool = False,
    chunk: int = 25,
    progress: bool = True,
) -> pd.DataFrame:
    """Run `trials` trials of every setting of a grid and return them as one tidy table.

    Parameters
    ----------
    trial
        See `Trial`.
    grid
        Axis name to values (their product is run), or the settings themselves. A setting may name its own ``trials``.
    trials
        Trials per setting.
    seed
        Seed of the sweep; trial i has the same seed in every setting.
    out
        Folder of the cache, which keeps each trial when it is done; see `fedleak.experiments.cache`.
    scheduler
        Address of a Dask scheduler; by default (None or "") the trials run in this process. What happens when
        workers or the scheduler go away is said in `fedleak.experiments.cluster`.
    name, version
        What the cache knows the trials by; the name is the function's own by default.
    timed
        Whether the rows hold times: the first trial of a setting, slowed down by noting what it calls, is run twice.
    chunk
        Trials that a vectorised function gets at once, at most.
    progress
        Show a progress bar, with what is taken from the cache counted as done.

    Returns
    -------
    pandas.DataFrame
        One row per trial (or as many as the trial function returns for it) with the columns of the setting,
        ``trial``, ``seed`` and the trial's own. ``attrs`` has ``seconds`` (the time that the trials took when they
        were computed, whether now or earlier), ``stamps`` (when, where and by which commit) and ``notes`` (what the
        trials used).

    Raises
    ------
    ValueError
        For counts below 1, an empty grid, an axis named ``trial`` or ``seed``, or a vectorised trial function whose
        rows do not name their seeds.
    Changed
        If the cache holds units of this version that other code has computed.
    PermissionError
        If `out` cannot be written; nothing has been computed then.
    """
    if trials < 1 or chunk < 1:
        raise ValueError(f"trials and chunk are at least 1, got {trials} and {chunk}")
    settings = list(settings_of(grid))
    if not settings:
        raise ValueError("the grid is empty: an axis without values leaves nothing to run")
    if taken := {"trial", "seed"} & {axis for setting in settings for axis in setting}:
        raise ValueError(f"{sorted(taken)} are columns of the result and cannot be axes of the grid")
    folder, home = writable(Path(out)), home_of(trial)
    name = name or trial.__name__
    plan: list[tuple[Units, list[int]]] = []
    for setting in settings:
        wanted = seeds_of(seed, setting.pop("trials", trials))
        units = Units(folder, name, version, setting)
        units.check(home)
        plan.append((units, wanted))
    calls = {}
    for number, (units, wanted) in enumerate(plan):
        missing = [s for s in wanted if s not in units.units]
        size = chunk if vectorised(trial) else 1
        for first in range(0, len(missing), size):
            trace = first == 0 and not units.calls
            calls[number, first] = (trace, units.setting, missing[first : first + size])
    total = sum(len(wanted) for _, wanted in plan)
    left = sum(len(part) for *_, part in calls.values())
    with tqdm(total=total, initial=total - left, desc=name, disable=not progress) as bar:
        for (number, _), found in _compute(trial, timed, calls, scheduler):
            for unit in found:
                plan[number][0].add(unit)
                bar.update()
    return _joined(plan)


def home_of(trial: Trial) -> Mapping[str, Any]:
    """Return the globals of a trial function, behind what is wrapped around it."""
    while isinstance(trial, partial):
        trial = trial.func
    return inspect.unwrap(trial).__globals__


def vectorised(trial: Trial) -> bool:
    """Say whether a trial function takes many seeds at once."""
    return next(iter(inspect.signature(trial).parameters)) == "seeds"


def _compute(
    trial: Trial, timed: bool, calls: dict[Any, tuple], scheduler: str | None
) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    """Yield the units of each call as soon as they are there."""
    run = partial(run_unit, trial, timed)
    if scheduler and calls:
        from fedleak.experiments import cluster  # takes a second to import, and most sweeps need none

        yield from cluster.compute(partial(elsewhere, fingerprints(home_of(trial)), run), calls, scheduler)
        return
    for number, call in calls.items():
        yield number, run(*call)


def run_unit(trial: Trial, timed: bool, trace: bool, setting: Setting, seeds: list[int]) -> list[dict[str, Any]]:
    """Run the trials of some seeds and return their units, for the cache."""
    many, home = vectorised(trial), home_of(trial)

    def once() -> pd.DataFrame:
        result = trial(list(seeds) if many else seeds[0], **setting)
        rows = [result] if isinstance(result, Mapping) else result
        return rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))

    with noting() as notes:
        calls: dict[str, str] = {}
        start = time.perf_counter()
        if trace:
            table, calls = traced(once, home)
        if timed and trace:
            start = time.perf_counter()
        if timed or not trace:
            table = once()
    seconds = (time.perf_counter() - start) / len(seeds)
    if not many:
        table["seed"] = seeds[0]
    if many and ("seed" not in table or set(table["seed"]) != set(seeds)):
        raise ValueError(
            f"the trial function must return rows for every one of its seeds, each with its 'seed'; setting {setting}"
        )
    if clash := sorted((set(setting) | {"trial"}) & set(table)):
        raise ValueError(f"the trial function's columns {clash} are names of the grid's axes")
    facts = stamp(devices=notes.pop("device", {}))
    units = []
    for seed in seeds:
        rows = table[table["seed"] == seed].drop(columns="seed")
        plain = json.loads(json.dumps(rows.to_dict("records"), default=_plain))
        units.append(dict(seed=int(seed), rows=plain, seconds=seconds, notes=notes, stamp=facts, calls=calls))
    return units


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a trial's row holds a {type(value).__name__}; use numbers, strings and booleans")


def _joined(plan: list[tuple[Units, list[int]]]) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    seconds, stamps, notes = 0.0, {}, {}  # type: ignore[var-annotated]
    for units, wanted in plan:
        for trial, seed in enumerate(wanted):
            unit = units.units[seed]
            seconds += unit["seconds"]
            stamps[unit["stamp"]] = units.stamps[unit["stamp"]]
            for kind, found in unit["notes"].items():
                notes.setdefault(kind, {}).update(found)
            rows += [{**units.setting, "trial": trial, "seed": seed, **row} for row in unit["rows"]]
    table = pd.DataFrame(rows)
    table.attrs = {"seconds": seconds, "stamps": list(stamps.values()), "notes": notes}
    return table
