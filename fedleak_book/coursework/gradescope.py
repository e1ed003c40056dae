"""The assignments for Gradescope: an autograder's zip each, and the results that it reads.

The zip follows Gradescope's autograder specification: ``setup.sh`` prepares the container once; ``run_autograder`` is
called for every submission, and writes ``results/results.json``. Grading itself is `fedleak_book.coursework.grading`'s.
"""

import json
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedleak import files
from fedleak_book import paths
from fedleak_book.coursework import NAMES, named
from fedleak_book.coursework.grading import Settings, Submission, grade_one, handed_in

SETUP = """#!/usr/bin/env bash
set -e
chmod 700 /autograder/source
apt-get update
apt-get install -y python3.11-venv
python3.11 -m venv /autograder/venv
cd /autograder/source
pip="/autograder/venv/bin/python -m pip install --constraint requirements.lock"
$pip --index-url https://download.pytorch.org/whl/cpu torch torchvision
$pip '.[coursework]'
cp -r fedleak_book "$(/autograder/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
"""
RUN = """#!/usr/bin/env bash
set -e
cd "${{AUTOGRADER:-/autograder}}"
mkdir -p results
chmod 700 source submission results
exec venv/bin/python -m fedleak_book.coursework.gradescope {name}
"""
CARRIED = ("pyproject.toml", "setup.py", "requirements.lock", "README.md", "LICENSE")
"""What an installation needs beside the package."""


def results(name: str, folder: Path, settings: Settings, student: str = "") -> dict[str, Any]:
    """Grade ``folder/name.py`` and return Gradescope's format: one test per check, with its feedback."""
    result, seconds = grade_one(Submission(student, name, handed_in(folder, name)), settings)
    tests = [
        {
            "name": f"{outcome.check.name}: {outcome.check.says}",
            "score": outcome.points,
            "max_score": outcome.check.points,
            "status": "passed" if outcome.status == "passed" else "failed",
            "output": "\n".join(filter(None, (outcome.message, outcome.hint and f"hint: {outcome.hint}"))),
        }
        for outcome in result.outcomes
    ]
    return {"score": result.points, "execution_time": round(seconds, 1), "tests": tests}


def student(metadata: Path) -> str:
    """Return the numbers that Gradescope gives the students of a submission; "" where it gives none."""
    try:
        submission = json.loads(metadata.read_text(encoding="utf-8")) if metadata.is_file() else {}
    except ValueError as error:
        raise ValueError(f"{metadata.name}, which Gradescope writes beside a submission, is no JSON") from error
    return " ".join(sorted(str(user["id"]) for user in submission.get("users", [])))


def export(folder: Path, only: Sequence[str], seed: int) -> Iterator[Path]:
    """Write ``folder/NAME.zip`` for every assignment, or for these; yield the paths.

    The seed, in the zip, is of the checks' random inputs; every student's own follow from it. Raises
    `FileNotFoundError` outside a checkout, which the zip takes the package's sources and the locked versions from;
    `ValueError` for an unknown assignment.
    """
    top = paths.root()
    sources = [*(top / name for name in CARRIED), *sorted(top.glob("fedleak*/**/*.py"))]
    for name in [named(chosen) for chosen in only] or NAMES:
        target = folder / f"{name}.zip"
        temporary = files.reserve(target)
        scripts = {"setup.sh": SETUP, "run_autograder": RUN.format(name=name), "seed": str(seed)}
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            for script, text in scripts.items():
                entry = zipfile.ZipInfo(script)
                entry.external_attr = (0o600 if script == "seed" else 0o755) << 16
                archive.writestr(entry, text)
            for source in sources:
                archive.write(source, source.relative_to(top).as_posix())
        yield temporary.replace(target)


if __name__ == "__main__":
    drawn = Settings(seed=int(Path("source", "seed").read_text(encoding="utf-8")), hidden=(Path.cwd(),))
    graded = results(sys.argv[1], Path("submission"), drawn, student(Path("submission_metadata.json")))
    files.write_text(Path("results", "results.json"), json.dumps(graded, indent=1))
