"""Grade a folder of submissions: pytest runs the checks on each, in a process with a time limit.

Inputs, comparisons and points stay in pytest's process. The submission's functions run in others, a new one for every
call, so that a submission can only change its answers. What this does not protect against: the processes run as the
same user, so that a malicious submission can read and write that user's files, use the network, or leave processes
behind. For submissions from strangers run the grader in a container without network.
"""

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import fedleak
from fedleak import files
from fedleak.coursework.assignment import Assignment, Outcome, Result
from fedleak.coursework.checking import ASSIGNMENTS, assignment

TIMEOUT = 120.0
"""Seconds that a submission may take, for all checks together."""
OURS = 300.0
"""Seconds for what is not the submission's time: PyTorch's start, and what the checks themselves compute."""
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "FEDLEAK_DATA")
FIXED = ("student", "assignment", "points", "max", "seconds", "error")


class Submission(NamedTuple):
    """One student's file for one assignment."""

    student: str
    assignment: Assignment
    path: Path
    """Where it should be; it may be missing."""


def submissions(folder: Path, only: Sequence[str] = ()) -> list[Submission]:
    """Find the submissions in a folder: ``student/assignment.py``, or ``student.py`` for a single assignment.

    A student who lacks an assignment that is asked for, or that somebody else has handed in, gets an entry for it.

    Raises
    ------
    FileNotFoundError
        If there is no such folder.
    ValueError
        If it holds no submission, for an unknown assignment, or for ``student.py`` without exactly one assignment.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {str(folder)!r}")
    wanted = [assignment(name).name for name in only]
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "_")))
    students = [entry for entry in entries if entry.is_dir()]
    files = [entry for entry in entries if entry.suffix == ".py"]
    if files and len(wanted) != 1:
        raise ValueError(f"{files[0].name} is a single file: say which assignment it is for, with --assignment NAME")
    if not wanted:
        wanted = [name for name in ASSIGNMENTS if any((student / f"{name}.py").is_file() for student in students)]
    if not wanted or not (students or files):
        expected = ", ".join(f"{name}.py" for name in ASSIGNMENTS)
        raise ValueError(f"no submissions in {str(folder)!r}: expected a folder for each student with {expected}")
    found = [Submission(file.stem, ASSIGNMENTS[wanted[0]], file) for file in files]
    for student in students:
        found += [Submission(student.name, ASSIGNMENTS[name], student / f"{name}.py") for name in wanted]
    return found


def grade_one(submission: Submission, timeout: float = TIMEOUT, seed: int = 0) -> tuple[Result, float]:
    """Run all checks on a submission with pytest; return the result and the seconds that the submission took."""
    made, path = submission.assignment, submission.path

    def all_alike(status: str, message: str) -> Result:
        return Result(made.name, tuple(Outcome(check, status, message) for check in made.checks))

    if not path.is_file():
        notebook = path.with_suffix(".ipynb")
        there = f"; a notebook {notebook.name} is there: export it as Python" if notebook.is_file() else ""
        return all_alike("missing", f"{path.name} is missing{there}"), 0.0
    with tempfile.TemporaryDirectory(prefix="fedleak-", ignore_cleanup_errors=True) as folder:
        own, package, report = Path(folder, "own"), Path(folder, "package"), Path(folder, "report.xml")
        own.mkdir()
        try:
            shutil.copyfile(path, own / path.name)
        except OSError as error:
            return all_alike("error", f"{path.name} cannot be read: {error.strerror}"), 0.0
        # A submission that deletes the checks deletes its own copy.
        shutil.copytree(Path(fedleak.__file__).parent, package / "fedleak")
        asked = {"assignment": made.name, "file": str(own / path.name), "timeout": timeout, "seed": seed}
        if ended := _pytest(asked, own, package, report):
            return all_alike("stopped", ended), timeout
        cases = {
            case.get("name"): {entry.get("name"): entry.get("value", "") for entry in case.iter("property")}
            for case in ElementTree.parse(report).iter("testcase")
        }
    found = [cases.get(f"test_check[{check.name}]", {}) for check in made.checks]
    outcomes = [
        Outcome(check, entry.get("status", "stopped"), entry.get("message", ""), entry.get("hint", ""))
        for check, entry in zip(made.checks, found, strict=True)
    ]
    return Result(made.name, tuple(outcomes)), sum(float(entry.get("seconds", 0)) for entry in found)


def _pytest(asked: dict[str, Any], folder: Path, package: Path, report: Path) -> str:
    """Run the checks in a process, kill it and what it has started, and return why there is no report, if so."""
    command = [sys.executable, "-m", "pytest", "--pyargs", "fedleak.coursework.suite", f"--junit-xml={report}"]
    command += ["-o", "junit_family=xunit1", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder)]
    environment = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    environment |= dict.fromkeys(("HOME", "TMPDIR", "MPLCONFIGDIR"), str(report.parent))
    environment |= {"PYTHONPATH": str(package), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1", "FEDLEAK_GRADE": json.dumps(asked)}
    limit, none = asked["timeout"] + OURS, subprocess.DEVNULL
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=none, stdout=none, stderr=none, start_new_session=True
    )
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        return f"the checks were stopped after {limit:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return "" if code in (0, 1) and report.is_file() else f"the checks were ended from outside (exit code {code})"


def row_of(submission: Submission, result: Result, seconds: float) -> dict[str, Any]:
    """Return a submission's row of the grade book."""
    name = submission.assignment.name
    failed = {o.check.name: " ".join(o.message.split()) for o in result.outcomes if o.status != "passed"}
    alike = len(set(failed.values())) == 1
    errors = set(failed.values()) if alike else [f"{check}: {message}" for check, message in failed.items()]
    return {
        "student": submission.student,
        "assignment": name,
        "points": result.points,
        "max": result.maximum,
        "seconds": round(seconds, 1),
        "error": "; ".join(errors),
        **{f"{name}.{o.check.name}": o.points for o in result.outcomes},
    }


def grade(
    folder: Path,
    out: Path,
    only: Sequence[str] = (),
    timeout: float = TIMEOUT,
    seed: int = 0,
    feedback: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """Grade all submissions in a folder, one after the other, and write a row for each as soon as it is known.

    Parameters
    ----------
    folder, only
        See `submissions`.
    out
        The CSV file: student, assignment, points, max, seconds, error, and the points of every check.
    timeout
        Seconds that a submission may take.
    seed
        Seed of the checks' random inputs.
    feedback
        Folder for the checks' feedback, ``student_assignment.txt``.

    Yields
    ------
    dict
        The row.

    Raises
    ------
    ValueError, FileNotFoundError
        See `submissions`; for a time limit that is not positive, and without pytest.
    """
    if find_spec("pytest") is None:
        raise ValueError("grading needs pytest: pip install 'fedleak[coursework]'")
    if not timeout > 0:
        raise ValueError(f"the time limit is a positive number of seconds, got {timeout:g}")
    found = submissions(folder, only)
    graded = dict.fromkeys(s.assignment.name for s in found)
    columns = [*FIXED, *(f"{name}.{check.name}" for name in graded for check in ASSIGNMENTS[name].checks)]
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for submission in found:
            result, seconds = grade_one(submission, timeout, seed)
            row = row_of(submission, result, seconds)
            writer.writerow(row)
            file.flush()
            if feedback:
                text = feedback / f"{submission.student}_{submission.assignment.name}.txt"
                files.write_text(text, f"{result}\n")
            yield row
