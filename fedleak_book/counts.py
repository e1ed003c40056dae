"""Counts of the papers' values by verdict and grade, cached under a digest of everything that they depend on.

Only a chapter whose digest is new imports the modules that judge values, which takes seconds.
"""

import hashlib
import json
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedleak.files import write_text
from fedleak_book import paths

LIBRARIES = ("numpy", "pandas", "scipy", "torch")


def overview() -> dict[str, dict[str, Any]]:
    """Count the values of every chapter, and of ``all``: by grade and verdict, and the values without a grade.

    ``depends`` and ``not_attempted`` are in none of the counts by grade; ``total`` is the sum of all; ``beyond`` counts
    values that no paper prints, which are in none of the other counts. A value that repeats another is in no count.
    """
    counts = {paper: chapter_counts(paper) for paper in paths.papers()}
    return {**counts, "all": _total(list(counts.values()))}


def chapter_counts(paper: str) -> dict[str, Any]:
    """Return a chapter's counts, from the cache if nothing that they depend on has changed since.

    The cache is in the folder of finished units (`paths.units`). A file there that cannot be read is replaced.
    """
    key, path = digest(paper), paths.units() / "counts" / f"{paper}.json"
    try:
        cached = json.loads(path.read_text(encoding="utf-8"))
        if cached["digest"] == key:
            return dict(cached["counts"])
    except (OSError, ValueError, LookupError, TypeError):
        pass
    from fedleak_book.experiments import scoreboard

    counts = scoreboard.count(scoreboard.rows(paper))
    if digest(paper) == key:  # otherwise a file changed meanwhile, and the counts may be of either version
        write_text(path, json.dumps({"digest": key, "counts": counts}, indent=1) + "\n")
    return counts


def digest(paper: str) -> str:
    """Return the SHA-256 of a chapter's published values, choices, records and claims, of the code, and of versions."""
    return _sha256(_files(paths.published(paper)) + _files(paths.recorded(paper)), [_CODE])


def _files(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(path for path in folder.rglob(pattern) if path.is_file())


def _sha256(files: Iterable[Path], texts: Sequence[str]) -> str:
    """Return the digest of some texts, and of the names and contents of some files."""
    parts = [*texts, *(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _total(counts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the sum of nested counts with the same keys."""
    first = counts[0] if counts else {}
    return {
        key: _total([chapter[key] for chapter in counts])
        if isinstance(value, dict)
        else sum(chapter[key] for chapter in counts)
        for key, value in first.items()
    }


_PACKAGES = (Path(__file__).parent, Path(__file__).parents[1] / "fedleak")
_CODE = _sha256(
    [path for package in _PACKAGES for path in _files(package, "*.py")],
    [platform.python_version(), *map(version, LIBRARIES)],
)
"""Digest of the code as it is imported: an edit while the process runs does not change the results of the process."""
