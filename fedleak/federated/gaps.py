"""Note contributions that could not be recorded in a run's folder; see `fedleak.federated.recording`."""

import re
from collections.abc import Collection, Iterator
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
    reason = str(error)
    if isinstance(error, ValidationError):
        reason = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
    elif isinstance(error, Exception) and not isinstance(error, ValueError):
        reason = f"{type(error).__name__}: {error}"
    write_text(gap(folder, round, seen_by, file_name(node)), reason)


def list_gaps(folder: Path, recorded: Collection[tuple[int, str]], total: str) -> Iterator[str]:
    """Yield a description of each contribution that is not recorded, with the reason.

    Parameters
    ----------
    folder
        The run's folder.
    recorded
        Round and node of all recorded contributions.
    total
        Node of a sum, which includes all contributions of its round.
    """
    for path in sorted(folder.glob("missing/round-*-*.txt")):
        number, _, node = path.stem.removeprefix("round-").split("-", 2)
        if (int(number), node) not in recorded and (int(number), total) not in recorded:
            why = path.read_text(encoding="utf-8", errors="replace")
            yield f"round {int(number)}, node {node} is not recorded: {why}"
