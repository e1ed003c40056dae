"""Note contributions that could not be recorded in a run's folder; see `fedleak.recording.folder`."""

import re
from collections.abc import Iterator, Set
from pathlib import Path

from fedleak.errors import extra
from fedleak.files import write_text

with extra("recordings"):
    from pydantic import ValidationError


def file_name(node: str) -> str:
    """Return a node's name with only the characters that file names allow."""
    return re.sub("[^A-Za-z0-9_.-]", "_", node)[:100]


def gap(folder: Path | str, round: int, seen_by: str, node: str) -> Path:
    """Return the file with the reason why a contribution could not be recorded."""
    return Path(folder) / "missing" / f"round-{round:04d}-{seen_by}-{node}.txt"


def note_gap(folder: Path | str, round: int, seen_by: str, node: str, error: Exception | str) -> None:
    """Write the reason why a contribution could not be recorded to a run's folder."""
    write_text(gap(folder, round, seen_by, file_name(node)), describe(error))


def describe(error: Exception | str) -> str:
    """Return an error as text: the fields of `Contribution` that are wrong, or its type where it is unforeseen."""
    if isinstance(error, ValidationError):
        faults = ((".".join(map(str, f["loc"])), f["msg"].removeprefix("Value error, ")) for f in error.errors())
        return "; ".join(": ".join(filter(None, fault)) for fault in faults)
    return str(error) if isinstance(error, ValueError | str) else f"{type(error).__name__}: {error}"


def list_unrecorded(folder: Path, recorded: Set[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    """Yield round, node and reason of each note on a contribution that has no record."""
    for number, _, node, why in _read_gaps(folder):
        if (number, node) not in recorded:
            yield number, node, why


def list_refusals(folder: Path, recorded: Set[tuple[int, str]]) -> Iterator[str]:
    """Yield a description of each client whose own record was refused, in rounds that the server has recorded."""
    for number, seen_by, node, why in _read_gaps(folder):
        if (number, node) in recorded and seen_by == "client":
            yield f"round {number}, node {node}: its own record was refused, and with it its labels: {why}"


def _read_gaps(folder: Path) -> Iterator[tuple[int, str, str, str]]:
    for path in sorted(folder.glob("missing/round-*-*.txt")):
        if (named := re.fullmatch(r"round-(\d+)-(client|server)-(.+)", path.stem)) is None:
            raise ValueError(f"{path}: notes are named as round-0002-client-7.txt")
        yield int(named[1]), named[2], named[3], path.read_text(encoding="utf-8", errors="replace")
