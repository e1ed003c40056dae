"""Run an experiment: seeded, resumable, here or on a Dask cluster; and record what comes out."""

import importlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
from tqdm import tqdm

from fedleak import paths
from fedleak.experiments import records
from fedleak.experiments.context import Context
from fedleak.experiments.experiment import Experiment, seeds_of
from fedleak.experiments.units import OtherCode, Units, code_of, merged, stamp, writable

CHUNK = 25
"""Seeds that a vectorised trial gets at once, at most."""


def module(paper: str, part: str) -> ModuleType:
    """Import a part of a chapter from the checkout's ``notebooks/<paper>/``, such as ``experiments``."""
    return importlib.import_module(f"notebooks.{paper}.{part}")


def declared(paper: str) -> dict[str, Experiment]:
    """Return a chapter's experiments by name, in the order of its module; nothing runs."""
    found = [one for one in vars(module(paper, "experiments")).values() if isinstance(one, Experiment)]
    if len({one.name for one in found}) < len(found):
        raise ValueError(f"{paper} declares two experiments of one name")
    return {one.name: one for one in found}


def run(
    paper: str,
    experiment: Experiment,
    context: Context,
    settings: Sequence[Mapping[str, Any]],
    *,
    seed: int = 0,
    scheduler: str = "",
    others: str = "again",
    folder: Path | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Run some settings of an experiment and return the trial rows.

    Parameters
    ----------
    settings
        As `Experiment.settings` returns them, each with its number of ``trials``.
    seed
        Trial i has the same seed in every setting.
    scheduler
        Address of the Dask scheduler whose workers run the trials; "" runs them here.
    others
        What becomes of finished units that other code has computed: ``"again"`` (computed again), ``"refuse"``
        (`OtherCode`), ``"use"`` (the change cannot change what comes out).
    folder
        Of the finished units; by default the experiment's own. If it cannot be written, nothing is computed.

    Returns
    -------
    pandas.DataFrame
        One row a trial, or as many as it yields: the setting, ``trial``, ``seed`` and the trial's own columns, which
        have to be those of the declaration. ``attrs`` has the ``seconds`` that the trials took, their ``stamps``, and
        the data sets that they ``used``.
    """
    folder, code = writable(folder or paths.units() / paper / experiment.name), code_of(paper)
    plan: list[tuple[Units, list[int]]] = []
    calls: dict[tuple[int, int], tuple[dict[str, Any], list[int]]] = {}
    old, step = 0, CHUNK if experiment.vectorised else 1
    for number, setting in enumerate(settings):
        wanted = seeds_of(seed, setting["trials"])
        own = {name: value for name, value in setting.items() if name != "trials"}
        units = Units(folder, experiment.name, experiment.version, own, "" if others == "use" else code)
        plan.append((units, wanted))
        missing = [one for one in wanted if one not in units.units]
        old += sum(one in units.others for one in missing)
        calls |= {(number, at): (own, missing[at : at + step]) for at in range(0, len(missing), step)}
    if others == "refuse" and old:
        raise OtherCode(
            f"{paper}/{experiment.name}: {old} finished units of version {experiment.version} are of other code. "
            "If results can have changed, raise the experiment's version; if they cannot, "
            f"`fedleak record {paper} {experiment.name} --same`"
        )
    total, left = sum(len(wanted) for _, wanted in plan), sum(len(seeds) for _, seeds in calls.values())
    work = partial(unit, experiment.call, experiment.vectorised, context, code)
    if scheduler and calls:
        from fedleak.experiments import cluster  # takes a second to import, and most runs need none

        computed = cluster.compute(work, calls, scheduler)
    else:
        computed = ((name, work(*call)) for name, call in calls.items())
    with tqdm(total=total, initial=total - left, desc=experiment.name, disable=not progress) as bar:
        for (number, _), (found, facts) in computed:
            for one in found:
                plan[number][0].add(one, facts)
                bar.update()
    rows = _joined(plan)
    wrong = sorted((set(rows) - {*experiment.axes, "trial", "seed"}) ^ experiment.columns)
    if wrong and len(rows):
        raise ValueError(f"{experiment.name}: the trial and its declaration do not have the same columns: {wrong}")
    return rows


def unit(
    trial: Callable[..., Any], many: bool, context: Context, code: str, setting: Mapping[str, Any], seeds: list[int]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Compute one call of a trial: its units, and their stamp. This is what a worker is sent."""
    context.used = {"data": {}, "device": {}}
    start = time.perf_counter()
    result = trial(context, list(seeds) if many else seeds[0], **setting)
    rows = [result] if isinstance(result, Mapping) else list(result)
    seconds = (time.perf_counter() - start) / len(seeds)
    rows = json.loads(json.dumps(rows, default=_plain))
    if clash := sorted({*setting, "trial"} & {column for row in rows for column in row}):
        raise ValueError(f"the trial's columns {clash} are names of settings")
    each: dict[int, list[dict[str, Any]]] = {one: [] for one in seeds}
    for row in rows:
        if (own := row.pop("seed", None if many else seeds[0])) not in each:
            raise ValueError(f"a trial of many seeds names the seed in each of its rows; setting {setting}")
        each[own].append(row)
    units = [dict(seed=one, rows=own, seconds=seconds, used=context.used["data"]) for one, own in each.items()]
    return units, {**stamp(context.used["device"]), "code": code}


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a trial's row holds a {type(value).__name__}; use numbers, strings and booleans")


def _joined(plan: list[tuple[Units, list[int]]]) -> pd.DataFrame:
    rows, seconds, stamps, used = list[dict[str, Any]](), 0.0, dict[str, Any](), dict[str, Any]()
    for units, wanted in plan:
        for trial, seed in enumerate(wanted):
            one = units.units[seed]
            seconds += one["seconds"]
            stamps[one["stamp"]] = units.stamps[one["stamp"]]
            used |= one["used"]
            rows += [{**units.setting, "trial": trial, "seed": seed, **row} for row in one["rows"]]
    table = pd.DataFrame(rows)
    table.attrs = {"seconds": seconds, "stamps": list(stamps.values()), "used": used}
    return table


def record(paper: str, experiment: Experiment, rows: pd.DataFrame, **options: Any) -> None:
    """Write the trial rows of a run, and where they come from, to ``data/results/``; options say how it was run."""
    facts = {
        **merged(rows.attrs["stamps"]),
        **options,
        "seconds": float(f"{rows.attrs['seconds']:.3g}"),
        "datasets": list(rows.attrs["used"].values()),
        "declared": experiment.declared,
    }
    records.record(paper, experiment.name, rows.drop(columns="seed"), facts)
