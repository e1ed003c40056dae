"""Finished units on disk, and by which code, when and where each was made.

A unit is an experiment with its version, one setting and one seed. The units of a setting share a file, one line each,
appended when the unit is done: a killed run loses what was in flight and nothing else. A unit's key names all that its
rows depend on. By which code it was made is noted beside it, so that a run does not take units of other code unawares.
"""

import hashlib
import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from fedleak_book import paths
from fedleak_book.experiments.experiment import Experiment, key, seeds_of
from fedleak_book.imports import imported_files

WRITTEN = ("results", "looks.csv", "verdicts.*", "published/*/effects.csv", "published/*/backtests.csv")
"""What a recording writes, in ``data/``."""
PACKAGES = ("fedleak", "torch", "torchvision", "numpy", "scipy", "pandas")


@cache
def code_of(paper: str) -> str:
    """Hash the code that a chapter's trials run: all that its experiments and their context import of the project."""
    digest = hashlib.sha256()
    for path in imported_files([*paths.modules(paper, "experiments"), "fedleak_book.experiments.context"]):
        digest.update(path.relative_to(paths.root()).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


class Units:
    """The finished units of an experiment in one setting, by seed: those of a code, and those of other code.

    The setting has its number of ``trials``, whose seeds are wanted. The code is today's, as `code_of` hashes it; ""
    takes units of any.
    """

    def __init__(self, folder: Path, experiment: Experiment, setting: Mapping[str, Any], seed: int, code: str = ""):
        self.setting, self.code = {name: value for name, value in setting.items() if name != "trials"}, code
        self.seeds = seeds_of(seed, setting["trials"])
        self.path = folder / f"{key(experiment.name, experiment.version, self.setting)}.jsonl"
        self.units: dict[int, dict[str, Any]] = {}
        self.others: dict[int, dict[str, Any]] = {}
        self.stamps: dict[str, dict[str, Any]] = {}
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        good = [line for line in lines if self._take(line)]
        if lost := len(lines) - len(good):
            aside = self.path.replace(self.path.with_suffix(".corrupt"))
            self.path.write_text("".join(f"{line}\n" for line in good), encoding="utf-8")
            tqdm.write(f"{experiment.name}: {lost} broken lines set aside in {aside.name}, computed again")

    @property
    def missing(self) -> list[int]:
        """The seeds that are wanted and not finished."""
        return [seed for seed in self.seeds if seed not in self.units]

    def add(self, unit: Mapping[str, Any], stamp: Mapping[str, Any]) -> None:
        """Append a finished unit, ``seed, rows, seconds, used``, and when, where and by which code it was made."""
        name = key(stamp)
        if name not in self.stamps:  # units of one run share a stamp, which is written once
            self._append({"stamp": name, "facts": stamp})
        self._append({**unit, "stamp": name})

    def _take(self, line: str) -> bool:
        checksum, _, body = line.partition(" ")  # tells a line that a killed run broke off from a finished one
        if hashlib.sha256(body.encode()).hexdigest()[:16] != checksum:
            return False
        entry = json.loads(body)
        if "facts" in entry:
            self.stamps[entry["stamp"]] = entry["facts"]
        elif entry["stamp"] not in self.stamps:  # it is in a line that is broken
            return False
        else:
            current = not self.code or self.stamps[entry["stamp"]].get("code") == self.code
            (self.units if current else self.others)[entry["seed"]] = entry
        return True

    def _append(self, content: Mapping[str, Any]) -> None:
        body = json.dumps(content)
        line = f"{hashlib.sha256(body.encode()).hexdigest()[:16]} {body}"
        self._take(line)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())  # on the disk before the next unit starts, whatever ends the run


def stamp(devices: Iterable[str] = ()) -> dict[str, Any]:
    """Return the facts of a computation that ends now: date, commit, machine, versions, and where its tensors were."""
    cuda = torch.cuda.is_available()
    names = {torch.cuda.get_device_name(d) if cuda and d.startswith("cuda") else d for d in devices}
    today = datetime.now(UTC).date().isoformat()
    return {"date": today, "device": ", ".join(sorted(names)) or "cpu", "threads": torch.get_num_threads(), **machine()}


@cache
def machine() -> dict[str, Any]:
    """Return the constants of a process: commit, versions, processor and memory."""
    sizes = [os.sysconf(name) for name in ("SC_PAGE_SIZE", "SC_PHYS_PAGES")] if hasattr(os, "sysconf") else []
    return {
        "commit": commit(),
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
        "processor": f"{processor()}, {os.cpu_count()} cores",
        "memory": f"{math.prod(sizes) / 2**30:.0f} GiB" if sizes else "unknown",
    }


def processor() -> str:
    """Return the processor's model as the system names it."""
    cpuinfo = Path("/proc/cpuinfo")
    match = re.search(r"^model name\s*: (.*)$", cpuinfo.read_text() if cpuinfo.exists() else "", re.M)
    return match[1].strip() if match else platform.processor() or platform.machine()


def commit() -> str:
    """Return the checkout's commit, with ``+changes`` where something but what recordings write differs from it."""
    git = partial(subprocess.check_output, cwd=paths.root(), stderr=subprocess.DEVNULL, text=True)
    try:
        changes = git(["git", "status", "--porcelain", "--", ".", *(f":!data/{name}" for name in WRITTEN)])
        return git(["git", "rev-parse", "--short=12", "HEAD"]).strip() + ("+changes" if changes else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
