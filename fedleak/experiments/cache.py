"""Finished units of work on disk: what was computed, for which setting and seed, when, where and by which code.

A *unit* is a declared experiment with its version, one setting and one seed. The units of a setting share a file, one
line each, appended when the unit is done: a killed run loses what was in flight and nothing else, and a folder of such
files can be copied to another checkout. The first line names the functions that computing the setting called, with a
hash of each: where one of them is another today, the units are neither used nor thrown away, and `Changed` asks for a
new version of the experiment.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fedleak.experiments.calls import changed, fingerprint


class Changed(RuntimeError):
    """Units were computed by other code than today's: the message names the functions and what to do."""


# --- what a unit used ---------------------------------------------------------------------------------------------

_notes: ContextVar[dict[str, Any] | None] = ContextVar("notes", default=None)


def note(kind: str, key: str, value: Any) -> None:
    """Remember something that the unit under way uses, such as a data set, for its provenance."""
    notes = _notes.get()
    if notes is not None:
        notes.setdefault(kind, {})[key] = value


@contextlib.contextmanager
def noting() -> Iterator[dict[str, Any]]:
    """Collect what is noted inside; it also counts for the unit around."""
    outer, inner = _notes.get(), {}  # type: ignore[var-annotated]
    token = _notes.set(inner)
    try:
        yield inner
    finally:
        _notes.reset(token)
        for kind, found in inner.items():
            if outer is not None:
                outer.setdefault(kind, {}).update(found)


# --- the files ----------------------------------------------------------------------------------------------------


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


class Units:
    """The finished units of one experiment in one setting.

    Parameters
    ----------
    folder
        Folder of the experiment's units.
    name, version, setting
        What the units are of.
    """

    def __init__(self, folder: Path, name: str, version: int, setting: Mapping[str, Any]):
        self.name, self.version, self.setting = name, version, dict(setting)
        self.path = folder / f"{key(name, version, self.setting)}.jsonl"
        self.calls: dict[str, str] = {}
        self.units: dict[int, dict[str, Any]] = {}
        self.stamps: dict[str, Any] = {}
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        good = [line for line in lines if self._take(line)]
        if len(good) < len(lines):
            aside = self.path.with_suffix(".corrupt")
            os.replace(self.path, aside)
            self.path.write_text("".join(f"{line}\n" for line in good), encoding="utf-8")
            lost = len(lines) - len(good)
            tqdm.write(f"{name}: {lost} broken line{'s' * (lost > 1)} set aside as {aside.name}, computed again")

    def _take(self, line: str) -> bool:
        checksum, _, body = line.partition(" ")
        if hashlib.sha256(body.encode()).hexdigest()[:16] != checksum:
            return False
        found = json.loads(body)
        if "calls" in found:
            self.calls.update(found["calls"])
        elif "facts" in found:
            self.stamps[found["stamp"]] = found["facts"]
        else:
            self.units[found["seed"]] = found
        return True

    def check(self, home: Mapping[str, Any]) -> None:
        """Compare the functions that made these units with today's.

        Raises
        ------
        Changed
            If one of them has changed since.
        """
        others = changed(self.calls, home)
        if others and self.units:
            shown = ", ".join(name.replace(":", ".").lstrip(".") for name in others[:5])
            more = f" and {len(others) - 5} more" * (len(others) > 5)
            raise Changed(
                f"{self.name}: {len(self.units)} finished units of version {self.version} were computed before a "
                f"change of {shown}{more}. If results can change, declare version={self.version + 1}; "
                f"if they cannot, say `fedleak cache accept {self.path.parent.parent.name} {self.name}`; "
                f"to forget the units, `fedleak cache drop`"
            )

    def accept(self, home: Mapping[str, Any]) -> None:
        """Take today's functions for those that made the units."""
        self._append({"calls": {name: fingerprint(name, home) for name in self.calls}})

    def add(self, unit: Mapping[str, Any]) -> None:
        """Append a finished unit: ``seed, rows, seconds, notes``, and the ``stamp`` and ``calls`` of its computing."""
        unit = dict(unit)
        facts, calls = unit.pop("stamp"), unit.pop("calls", None)
        unit["stamp"] = key(facts)
        if calls and not calls.items() <= self.calls.items():
            self._append({"name": self.name, "version": self.version, "setting": self.setting, "calls": calls})
        if unit["stamp"] not in self.stamps:
            self._append({"stamp": unit["stamp"], "facts": facts})
        self._append(unit)

    def _append(self, content: Mapping[str, Any]) -> None:
        body = json.dumps(content)
        line = f"{hashlib.sha256(body.encode()).hexdigest()[:16]} {body}"
        self._take(line)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())


def listed(folder: Path) -> Iterator[tuple[str, Units]]:
    """Yield the notebook's name and the units of every file below a folder of caches."""
    for path in sorted(folder.glob("*/*/*.jsonl")):
        with open(path, encoding="utf-8") as file:
            for line in file:
                head = json.loads(line.partition(" ")[2] or "{}")
                if "setting" in head:
                    yield path.parent.parent.name, Units(path.parent, head["name"], head["version"], head["setting"])
                    break
