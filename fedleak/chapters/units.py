"""Finished units on disk: a unit is an experiment with its version, one setting and one seed.

The units of a setting share a file, one line each, appended when the unit is done: a killed run loses what was in
flight and nothing else. What a unit's rows hang on is said by its key. By which code it was made is noted beside it, so
that a run does not take units of other code for its own unawares.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fedleak import paths

WITHOUT = ("audit", "chapters", "commands", "coursework", "experiments")
"""Rooms of the package that have no part in what a trial computes."""


def key(*parts: Any) -> str:
    """Return the name of a file for what these parts describe."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:24]


def writable(folder: Path) -> Path:
    """Make a folder for results.

    Raises
    ------
    PermissionError
        If it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".probe").write_text("")
        (folder / ".probe").unlink(missing_ok=True)  # another worker may have been here
    except OSError as error:
        raise PermissionError(f"cannot write results to {folder}: {error.strerror or error}") from error
    return folder


class OtherCode(RuntimeError):
    """Finished units were computed by other code than today's."""


@cache
def code_of(paper: str) -> str:
    """Hash the code that a chapter's trials run: its experiments, and the package's science."""
    top = paths.root()
    found = [p for p in (top / "fedleak").rglob("*.py") if p.relative_to(top).parts[1] not in WITHOUT]
    digest = hashlib.sha256()
    for path in sorted([*found, *(top / "notebooks" / paper).glob("experiments*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class Units:
    """The finished units of one experiment in one setting.

    Parameters
    ----------
    folder
        Folder of the experiment's units.
    name, version, setting
        What the units are of.
    code
        Hash of the code that runs today; "" takes units of any code.
    """

    def __init__(self, folder: Path, name: str, version: int, setting: Mapping[str, Any], code: str = ""):
        self.setting, self.path = dict(setting), folder / f"{key(name, version, dict(setting))}.jsonl"
        self.code = code
        self.units: dict[int, dict[str, Any]] = {}
        self.others: dict[int, dict[str, Any]] = {}
        """Units of other code, by seed."""
        self.stamps: dict[str, dict[str, Any]] = {}
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        good = [line for line in lines if self._take(line)]
        if len(good) < len(lines):
            os.replace(self.path, self.path.with_suffix(".corrupt"))
            self.path.write_text("".join(f"{line}\n" for line in good), encoding="utf-8")
            lost = f"{len(lines) - len(good)} broken line{'s' * (len(lines) - len(good) > 1)}"
            tqdm.write(f"{name}: {lost} set aside in {self.path.stem}.corrupt, computed again")

    def add(self, unit: Mapping[str, Any], stamp: Mapping[str, Any]) -> None:
        """Append a finished unit, ``seed, rows, seconds, used``, and when, where and by which code it was made."""
        name = key(stamp)
        if name not in self.stamps:
            self._append({"stamp": name, "facts": stamp})
        self._append({**unit, "stamp": name})

    def missing(self, seeds: Iterable[int]) -> list[int]:
        """Return those of some seeds that have no unit of today's code."""
        return [seed for seed in seeds if seed not in self.units]

    def _take(self, line: str) -> bool:
        checksum, _, body = line.partition(" ")
        if hashlib.sha256(body.encode()).hexdigest()[:16] != checksum:
            return False
        found = json.loads(body)
        if "facts" in found:
            self.stamps[found["stamp"]] = found["facts"]
        else:
            own = not self.code or self.stamps[found["stamp"]].get("code") == self.code
            (self.units if own else self.others)[found["seed"]] = found
        return True

    def _append(self, content: Mapping[str, Any]) -> None:
        body = json.dumps(content)
        line = f"{hashlib.sha256(body.encode()).hexdigest()[:16]} {body}"
        self._take(line)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
