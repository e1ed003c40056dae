"""The assignments for Gradescope: an autograder's zip each, and the results that it reads.

The zip follows Gradescope's autograder specification: ``setup.sh`` prepares the container once; ``run_autograder`` is
called for every submission, and writes ``results/results.json``. Grading itself is `fedleak.coursework.grading`'s.
"""

import json
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedleak import files, paths
from fedleak.coursework.checking import ASSIGNMENTS, assignment
from fedleak.coursework.grading import TIMEOUT, Submission, grade_one

SETUP = """#!/usr/bin/env bash
set -e
apt-get update
apt-get install -y python3.11-venv
python3.11 -m venv /autograder/venv
cd /autograder/source
/autograder/venv/bin/python -m pip install --constraint requirements.lock '.[coursework]'
"""
RUN = """#!/usr/bin/env bash
set -e
cd "${{AUTOGRADER:-/autograder}}"
mkdir -p results
exec venv/bin/python -m fedleak.coursework.gradescope {name} submission results/results.json {seed}
"""
CARRIED = ("pyproject.toml", "requirements.lock", "README.md", "LICENSE")
"""What an installation needs beside the package."""


def results(name: str, folder: Path, timeout: float = TIMEOUT, seed: int = 0) -> dict[str, Any]:
    """Grade ``folder/name.py`` and return what Gradescope reads: a test for each check, with its feedback."""
    result, seconds = grade_one(Submission("", assignment(name), folder / f"{name}.py"), timeout, seed)
    tests = [
        {
            "name": f"{one.check.name}: {one.check.says}",
            "score": one.points,
            "max_score": one.check.points,
            "status": "passed" if one.status == "passed" else "failed",
            "output": "\n".join(filter(None, (one.message, one.hint and f"hint: {one.hint}"))),
        }
        for one in result.outcomes
    ]
    return {"score": result.points, "execution_time": round(seconds, 1), "tests": tests}


def export(folder: Path, only: Sequence[str] = (), seed: int = 0) -> list[Path]:
    """Write ``folder/NAME.zip`` for every assignment, or for these; return the paths.

    Parameters
    ----------
    folder
        Made if it is not there.
    only
        Names of assignments.
    seed
        Of the checks' random inputs.

    Raises
    ------
    FileNotFoundError
        Outside a checkout, which the zip takes the package's sources and the locked versions from.
    ValueError
        For an unknown assignment.
    """
    top, written = paths.root(), []
    sources = [*(top / name for name in CARRIED), *sorted((top / "fedleak").rglob("*.py"))]
    for name in [assignment(one).name for one in only] or ASSIGNMENTS:
        target = folder / f"{name}.zip"
        temporary = files.reserve(target)
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            for script, text in {"setup.sh": SETUP, "run_autograder": RUN.format(name=name, seed=seed)}.items():
                entry = zipfile.ZipInfo(script)
                entry.external_attr = 0o755 << 16  # executable
                archive.writestr(entry, text)
            for source in sources:
                archive.write(source, source.relative_to(top).as_posix())
        written.append(temporary.replace(target))
    return written


if __name__ == "__main__":
    asked, submitted, out, drawn = sys.argv[1:]
    files.write_text(Path(out), json.dumps(results(asked, Path(submitted), seed=int(drawn)), indent=1))
