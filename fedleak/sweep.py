"""A trial function over a grid: seeded, cached, resumable, with progress, on one machine or a Dask cluster.

The unit of work is a chunk of trials of one setting. Each unit is written once it is done, atomically and with a
checksum, so a killed sweep loses what was in flight and nothing else, and more trials later cost only the new ones.
"""

import dis
import hashlib
import inspect
import itertools
import json
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

Trial = Callable[..., Any]
"""``trial(seeds, **setting)``: rows (a list of dicts or a DataFrame) for the trials with these seeds, each row
naming its seed in the column ``seed``; a function that is vectorised over trials takes them all at once."""


def seeds_of(seed: int, trials: int) -> list[int]:
    """Return the seeds of the trials 0 … trials - 1: the first k are the same however many are asked for.

    They do not depend on the setting, so that settings are compared on the same models and batches.
    """
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(max(trials, 1), np.uint64) >> 1][:trials]


def sweep(
    trial: Trial,
    grid: Mapping[str, Sequence[Any]] | Iterable[Mapping[str, Any]],
    trials: int,
    seed: int,
    out: Path | str,
    scheduler: str | None = None,
    *,
    chunk: int | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Run `trials` trials of every setting of a grid and return them as one tidy table.

    Parameters
    ----------
    trial
        See `Trial`. Its source, and that of the functions and the values of the module that it uses, are part of the
        cache key.
    grid
        Axis name to values (their product is run), or the settings themselves.
    trials
        Trials per setting.
    seed
        Seed of the sweep; trial i has the same seed in every setting.
    out
        Folder of the cache.
    scheduler
        Address of a Dask scheduler; by default the trials run in this process.
    chunk
        Trials per unit of work, by default all of a setting.
    progress
        Show a progress bar, with what is taken from the cache counted as done.

    Returns
    -------
    pandas.DataFrame
        One row per trial (or as many as the trial function returns for it) with the columns of the setting,
        ``trial``, ``seed`` and the trial's own. ``attrs["seconds"]`` is the time that the trials took when they were
        computed, whether now or in an earlier, interrupted run.

    Raises
    ------
    ValueError
        For counts below 1, an empty grid, an axis named ``trial`` or ``seed``, or a trial function whose rows do not
        name their seeds.
    PermissionError
        If `out` cannot be written; nothing has been computed then.
    """
    if trials < 1 or (chunk is not None and chunk < 1):
        raise ValueError(f"trials and chunk are at least 1, got {trials} and {chunk}")
    settings = list(_settings(grid))
    if not settings:
        raise ValueError("the grid is empty: an axis without values leaves nothing to run")
    if taken := {"trial", "seed"} & {axis for setting in settings for axis in setting}:
        raise ValueError(f"{sorted(taken)} are columns of the result and cannot be axes of the grid")
    folder = _writable(Path(out))
    seeds = seeds_of(seed, trials)
    chunk = chunk or trials
    source = fingerprint(trial)
    units = []
    for setting in settings:
        for first in range(0, trials, chunk):
            part = seeds[first : first + chunk]
            units.append((setting, first, part, folder / f"{_key(source, setting, part)}.json"))
    found: dict[Path, Any] = {path: _read(path) for *_, path in units}
    missing = [unit for unit in units if found[unit[-1]] is None]
    label = getattr(trial, "__name__", "sweep")
    with tqdm(total=len(units), initial=len(units) - len(missing), desc=label, disable=not progress) as bar:
        for path, unit in _compute(trial, missing, scheduler):
            _write(path, unit)
            found[path] = unit
            bar.update()
    tables, seconds = [], 0.0
    for setting, first, part, path in units:
        unit = found[path]
        seconds += unit["seconds"]
        table = pd.DataFrame(unit["rows"])
        number = {s: first + i for i, s in enumerate(part)}
        table.insert(0, "trial", table["seed"].map(number))
        for position, (name, value) in enumerate(setting.items()):
            table.insert(position, name, [value] * len(table))
        tables.append(table)
    table = pd.concat(tables, ignore_index=True)
    table.attrs["seconds"] = round(seconds, 1)
    return table


def _settings(grid: Mapping[str, Sequence[Any]] | Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    if isinstance(grid, Mapping):
        yield from (dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))
    else:
        yield from (dict(setting) for setting in grid)


def _compute(trial: Trial, units: list[tuple], scheduler: str | None) -> Iterator[tuple[Path, dict]]:
    """Yield each unit's rows, and the seconds they took, as soon as they are there."""
    if scheduler is None:
        for setting, _, part, path in units:
            yield path, _run_unit(trial, setting, part)
        return
    import cloudpickle
    from dask.distributed import Client, as_completed

    # Pickled here, because a worker that cannot import the trial's module would otherwise drop its connection and the
    # sweep would wait for ever; like this it is the unit's error.
    work = cloudpickle.dumps(trial)
    with Client(scheduler, set_as_default=False) as client:
        futures = {
            client.submit(_run_pickled, work, setting, part, pure=False): path for setting, _, part, path in units
        }
        for future in as_completed(futures, loop=client.loop):
            yield futures[future], future.result()


def _run_pickled(trial: bytes, setting: dict[str, Any], seeds: list[int]) -> dict:
    return _run_unit(pickle.loads(trial), setting, seeds)


def _run_unit(trial: Trial, setting: dict[str, Any], seeds: list[int]) -> dict:
    start = time.perf_counter()
    result = trial(list(seeds), **setting)
    table = result if isinstance(result, pd.DataFrame) else pd.DataFrame(result)
    if "seed" not in table or set(table["seed"]) != set(seeds):
        raise ValueError(
            f"the trial function must return rows for every one of its seeds, each with its 'seed'; setting {setting}"
        )
    if clash := sorted((set(setting) | {"trial"}) & set(table)):
        raise ValueError(f"the trial function's columns {clash} are names of the grid's axes")
    rows = json.loads(json.dumps(table.to_dict("records"), default=_plain))
    return {"seconds": time.perf_counter() - start, "rows": rows}


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a trial's row holds a {type(value).__name__}; use numbers, strings and booleans")


# --- the cache ---------------------------------------------------------------------------------------------------


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise PermissionError(f"cannot write results to {folder}: {error.strerror or error}") from error
    return folder


def _write(path: Path, unit: dict) -> None:
    body = json.dumps(unit)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    with os.fdopen(handle, "w") as file:
        file.write(hashlib.sha256(body.encode()).hexdigest() + "\n" + body)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _read(path: Path) -> dict | None:
    """Read a unit; one that is not what was written is set aside, with a warning, and computed again."""
    if not path.exists():
        return None
    checksum, _, body = path.read_bytes().partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() == checksum:
        return json.loads(body)
    aside = path.with_suffix(".corrupt")
    os.replace(path, aside)
    tqdm.write(f"{path.name} in {path.parent.name} is corrupt: set aside as {aside.name}, computed again")
    return None


def _key(source: str, setting: dict[str, Any], seeds: list[int]) -> str:
    text = json.dumps([source, setting, seeds], sort_keys=True, default=described)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def fingerprint(trial: Trial) -> str:
    """Hash what a trial's result depends on besides its arguments.

    Its source, the sources of the functions and classes of its own module that it uses (however far down), the
    values of that module that they read, and the package's version and computing code.
    """
    pieces: dict[str, str] = {}
    _collect(trial, pieces)
    text = json.dumps([sorted(pieces.items()), version("fedleak"), _package_digest()])
    return hashlib.sha256(text.encode()).hexdigest()


def _collect(function: Any, pieces: dict[str, str]) -> None:
    while isinstance(function, partial):
        pieces[f"partial {len(pieces)}"] = described([function.args, function.keywords])
        function = function.func
    function = inspect.unwrap(function)
    name = f"{function.__module__}.{function.__qualname__}"
    if name in pieces:
        return
    pieces[name] = inspect.getsource(function) + described([function.__defaults__, function.__kwdefaults__])
    for key, value in _read_by(function).items():
        used = inspect.unwrap(value) if callable(value) else value
        local = getattr(used, "__module__", None) == function.__module__
        if isinstance(used, partial):
            _collect(used, pieces)
        elif isinstance(used, type):
            for method in vars(used).values() if local else ():
                if isinstance(inspect.unwrap(method), FunctionType):
                    _collect(method, pieces)
        elif isinstance(used, FunctionType):
            if local:
                _collect(used, pieces)
        elif not inspect.ismodule(used) and not inspect.isbuiltin(used):
            pieces[f"{name}:{key}"] = described(used)


def _read_by(function: FunctionType) -> dict[str, Any]:
    """Return what a function reads of its module and of the functions around it, in its comprehensions too."""
    names: set[str] = set()
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        names.update(i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
        codes.extend(constant for constant in code.co_consts if isinstance(constant, CodeType))
    found = {name: function.__globals__[name] for name in sorted(names) if name in function.__globals__}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return found | {name: cell.cell_contents for name, cell in cells}


def described(value: Any) -> str:
    """Describe a value in full, for a cache key: `repr` leaves out the middle of a large tensor or table."""
    if isinstance(value, torch.nn.Module):
        return f"{value!r} {described(value.state_dict())}"
    if isinstance(value, Mapping):
        return repr([(key, described(item)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return repr([described(item) for item in value])
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, pd.DataFrame | pd.Series):
        return f"{type(value).__name__} {value.to_json()}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    return repr(value)


@cache
def _package_digest() -> str:
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for folder in ("data", "models", "federated", "attacks"):
        for file in sorted((package / folder).rglob("*.py")):
            digest.update(file.read_bytes())
    digest.update((package / "metrics.py").read_bytes())
    return digest.hexdigest()
