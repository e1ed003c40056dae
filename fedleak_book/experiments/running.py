"""Run an experiment, seeded and resumable, here or on a Dask cluster, and record its rows."""

import importlib
import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
from tqdm import tqdm

from fedleak import files
from fedleak_book import paths
from fedleak_book.experiments.context import Context
from fedleak_book.experiments.experiment import Experiment
from fedleak_book.experiments.records import Record
from fedleak_book.experiments.units import Units, code_of, stamp

CHUNK = 25
"""Seeds that a vectorised trial gets at once, at most."""
OF_RECORD = ("datasets", "declared", "profile", "scheduler", "seconds", "seed", "sha256", "trials")
"""What a record says of itself; the rest says where and by which code its trials ran."""


def module(paper: str, part: str) -> ModuleType:
    """Import a part of a chapter from the checkout's ``notebooks/<paper>/``, such as ``experiments``.

    Raises `ValueError` if there is no such chapter, or it has no such part.
    """
    name = f"notebooks.{paper}.{part}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise  # something that the module imports
        raise ValueError(f"{paper!r} is no chapter with {part}: no notebooks/{paper}/{part}.py") from None


def declared(paper: str) -> dict[str, Experiment]:
    """Return a chapter's experiments by name, in the order of its modules; nothing runs.

    They stand in ``experiments.py``, or in the modules of a package ``experiments``, which are taken by their names.
    """
    module(paper, "experiments")  # a chapter without experiments is an error
    parts = [importlib.import_module(name) for name in paths.modules(paper, "experiments")]
    experiments = {e: e.name for part in parts for e in vars(part).values() if isinstance(e, Experiment)}
    if len({*experiments.values()}) < len(experiments):
        raise ValueError(f"{paper} declares two experiments of one name")
    return {name: experiment for experiment, name in experiments.items()}


def named(paper: str, name: str) -> Experiment:
    """Return a chapter's experiment of this name; raise `ValueError` if it declares none, or none any more."""
    experiments = declared(paper)
    paths.require_experiment(paper, name, experiments)
    return experiments[name]


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
    recorded: Record | None = None,
) -> pd.DataFrame:
    """Run some settings of an experiment, as `Experiment.settings` returns them, and return the trial rows.

    Trial i has the same seed in every setting. With a `scheduler`, the address of Dask's, its workers run the trials.
    Finished units are in `folder`, by default the experiment's own; if it cannot be written, nothing is computed. Those
    that other code has computed are, by `others`, computed ``"again"``, refused (``"refuse"``: a `ValueError`) or
    taken (``"use"``: the change cannot change what comes out), and so are then the trials of what is `recorded`.

    There is a row a trial, or as many as it yields: the setting, ``trial``, ``seed`` and the columns of the
    declaration; a trial that serves several may have more. ``attrs`` are their provenance: what their stamps say, the
    ``seconds`` that the trials took, and the ``datasets`` that they used.
    """
    folder, code = folder or paths.units() / paper / experiment.name, code_of(paper)
    files.reserve(folder / "probe").unlink(missing_ok=True)
    plan = [Units(folder, experiment, setting, seed, "" if others == "use" else code) for setting in settings]
    if others == "refuse" and (old := sum(missing in units.others for units in plan for missing in units.missing)):
        raise ValueError(
            f"{paper}/{experiment.name}: {old} finished units of version {experiment.version} are of other code. "
            "If results can have changed, raise the experiment's version; if they cannot, "
            f"`fedleak record {paper} {experiment.name} --reuse-cache`"
        )
    if recorded and others == "use":
        _restore(experiment, plan, seed, recorded)
    calls, step = dict[tuple[int, int], tuple[dict[str, Any], list[int]]](), CHUNK if experiment.vectorised else 1
    for number, units in enumerate(plan):
        seeds = units.missing
        calls |= {(number, at): (units.setting, seeds[at : at + step]) for at in range(0, len(seeds), step)}
    work = partial(unit, experiment, context, code)
    if scheduler and calls:
        from fedleak_book.experiments import cluster  # takes a second to import, and most runs need none

        computed = cluster.compute(work, calls, scheduler)
    else:
        computed = ((name, work(*call)) for name, call in calls.items())
    total, remaining = sum(len(units.seeds) for units in plan), sum(len(seeds) for _, seeds in calls.values())
    with tqdm(total=total, initial=total - remaining, desc=experiment.name) as bar:
        for (number, _), (finished, facts) in computed:
            for seed_rows in finished:
                plan[number].add(seed_rows, facts)
                bar.update()
    rows = _joined(plan)
    missing = sorted({*experiment.by, *experiment.values, *experiment.facts} - set(rows))
    if missing and len(rows):
        raise ValueError(f"{experiment.name}: the trial lacks columns of its declaration: {missing}")
    return rows


def unit(
    experiment: Experiment, context: Context, code: str, setting: Mapping[str, Any], seeds: list[int]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Compute one call of a trial: its units, and their stamp. Workers receive this function."""
    many, context.used = experiment.vectorised, {"data": {}, "device": {}}
    start = time.perf_counter()
    result = experiment.call(context, list(seeds) if many else seeds[0], **setting)
    rows = [result] if isinstance(result, Mapping) else list(result)
    seconds = (time.perf_counter() - start) / len(seeds)
    columns = {"seed", *experiment.by, *experiment.values, *experiment.facts}
    rows = [{column: value for column, value in row.items() if column in columns} for row in rows]
    rows = json.loads(json.dumps(rows, default=_plain))
    facts = {"seconds": seconds, "used": context.used["data"]}
    units: dict[int, dict[str, Any]] = {each_seed: {"seed": each_seed, "rows": [], **facts} for each_seed in seeds}
    for row in rows:
        if (seed := row.pop("seed", None if many else seeds[0])) not in units:
            raise ValueError(f"a trial of many seeds names the seed in each of its rows; setting {setting}")
        units[seed]["rows"].append(row)
    return list(units.values()), {**stamp(context.used["device"]), "code": code}


def _restore(experiment: Experiment, plan: Sequence[Units], seed: int, record: Record) -> None:
    """Make finished units of the recorded trials that are missing: what was recorded need not be in the cache too.

    A record rounds to seven digits, and tells neither which trial took how long nor which machine of several ran it.
    """
    table, facts = record.rows, record.facts
    columns = [c for c in table if c in {*experiment.by, *experiment.values, *experiment.facts}]
    declared = {"version": experiment.version, "fixed": json.loads(json.dumps(experiment.declared["fixed"]))}
    same = all(facts["declared"][name] == value for name, value in declared.items())
    needed = {*experiment.axes, "trial", *experiment.by, *experiment.values, *experiment.facts}
    if facts["seed"] != seed or not same or set(table) != needed:
        return
    shared = {name: value for name, value in facts.items() if name not in OF_RECORD}
    trials = table.groupby([*experiment.axes, "trial"], dropna=False).ngroups
    used = {entry["name"]: entry for entry in facts["datasets"]}
    for units in plan:
        rows = table
        for axis in experiment.axes:
            value = units.setting.get(axis)
            rows = rows[rows[axis].isna() if value is None else rows[axis] == value]
        for trial, of_trial in rows.groupby("trial"):
            if int(trial) < len(units.seeds) and (name := units.seeds[int(trial)]) in units.missing:
                entry = {"seed": name, "rows": of_trial[columns].to_dict("records"), "used": used}
                units.add(entry | {"seconds": facts["seconds"] / trials}, shared)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a trial's row holds a {type(value).__name__}; use numbers, strings and booleans")


def _joined(plan: Sequence[Units]) -> pd.DataFrame:
    """Return the rows of all planned units, with their provenance, which lists the stamps that differ."""
    computed = [(units, trial, units.units[seed]) for units in plan for trial, seed in enumerate(units.seeds)]
    table = pd.DataFrame(
        {**units.setting, "trial": trial, "seed": entry["seed"], **row}
        for units, trial, entry in computed
        for row in entry["rows"]
    )
    stamps = pd.DataFrame(
        {entry["stamp"]: units.stamps[entry["stamp"]] for units, _, entry in computed}.values(), dtype=object
    )
    facts = {name: sorted({*stamps[name].dropna().explode()}, key=str) for name in stamps}
    used = {name: loaded for *_, entry in computed for name, loaded in entry["used"].items()}
    seconds = float(f"{sum(entry['seconds'] for *_, entry in computed):.3g}")
    table.attrs = {name: values[0] if len(values) == 1 else values for name, values in facts.items()}
    table.attrs |= {"seconds": seconds, "datasets": list(used.values())}
    return table
