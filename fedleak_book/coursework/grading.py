"""Grade a folder of submissions.

A grader's process draws the inputs, compares and writes the points; a submission's functions run in a process that gets
the inputs and returns values, see `fedleak_book.coursework.sandbox`. The process that starts the graders' imports no
PyTorch, which takes seconds.
"""

import contextlib
import csv
import hashlib
import io
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fedleak import files
from fedleak_book.coursework import NAMES, named
from fedleak_book.coursework.gradebook import UNGRADED
from fedleak_book.coursework.outcomes import Outcome, Result
from fedleak_book.coursework.sandbox import Remote, Way, isolation

LARGEST = 2**20
"""Bytes of a submission; a notebook, with pictures in it, may have 20 times as many."""
FIXED = ("student", "assignment", "points", "max", "seconds", "error", "isolation", "file")
"""Columns of the grade book before those of the checks."""


class Submission(NamedTuple):
    """One student's file for one assignment."""

    student: str
    assignment: str
    path: Path
    """Where it should be; it may be missing."""


class Settings(NamedTuple):
    """How submissions are graded."""

    timeout: float = 120.0
    """Seconds that a submission may take, for all checks together."""
    seed: int = 0
    hidden: tuple[Path, ...] = ()
    """Folders that a submission's process need not see."""
    way: Way | None = None
    """How submissions run: by default in the strongest way that works here."""


def handed_in(folder: Path, name: str) -> Path:
    """Return the file of an assignment: ``name.ipynb`` where there is no ``name.py``."""
    file, notebook = folder / f"{name}.py", folder / f"{name}.ipynb"
    return notebook if notebook.is_file() and not os.path.lexists(file) else file


def submissions(folder: Path, only: Sequence[str] = ()) -> list[Submission]:
    """Find the submissions in a folder: ``student/assignment.py``, or ``student.py`` for a single assignment.

    A notebook, ``.ipynb``, does in place of the Python file.
    A student who lacks an assignment that is asked for, or that somebody else has handed in, gets an entry for it.
    Raises `FileNotFoundError` if there is no such folder; `ValueError` if it holds no submission, for an unknown
    assignment, or for ``student.py`` without exactly one assignment.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {str(folder)!r}")
    wanted = list(dict.fromkeys(map(named, only)))
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "_")))
    students = [entry for entry in entries if entry.is_dir()]
    stems = dict.fromkeys(entry.stem for entry in entries if entry.suffix in (".py", ".ipynb"))
    single = [handed_in(folder, stem) for stem in stems]
    if single and len(wanted) != 1:
        raise ValueError(f"{single[0].name} is a single file: say which assignment it is for, with --assignment NAME")
    wanted = wanted or [name for name in NAMES if any(handed_in(student, name).is_file() for student in students)]
    if not wanted or not (students or single):
        expected = ", ".join(f"{name}.py" for name in NAMES)
        raise ValueError(f"no submissions in {str(folder)!r}: expected a folder for each student with {expected}")
    submissions_found = [Submission(file.stem, wanted[0], file) for file in single]
    return submissions_found + [
        Submission(student.name, name, handed_in(student, name)) for student in students for name in wanted
    ]


def read(path: Path) -> bytes:
    """Read a submission; raise `ValueError` with the reason if there is none. Links and pipes do not count."""
    if path.is_symlink():
        raise ValueError(f"{path.name} is a link")
    if not path.is_file():
        raise ValueError(f"{path.name} is missing")
    largest = LARGEST * (20 if path.suffix == ".ipynb" else 1)
    try:
        if path.stat().st_size > largest:
            raise ValueError(f"{path.name} has more than {largest // 2**20} MiB")
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from error


def grade_one(submission: Submission, settings: Settings) -> tuple[Result, float]:
    """Run all checks on a submission; return the result and the seconds that the submission took.

    The inputs follow from the seed and the student: what one student's process sees is of no use to another. The
    outcomes hold our own words alone, since feedback goes to the student.
    """
    from fedleak_book.coursework.assignment import run_check
    from fedleak_book.coursework.checking import assignment

    student, name, path = submission
    text = f"{settings.seed}/{student}/{name}".encode()
    seed = int.from_bytes(hashlib.sha256(text).digest()[:7], "big")
    outcomes = []
    try:
        student_file = Remote(name + path.suffix, read(path), settings.timeout, settings.hidden, settings.way)
        with contextlib.closing(student_file) as remote:
            for check in assignment(name).checks:
                remote.next_check()
                outcomes.append(replace(run_check(check, remote, seed), detail=""))
    except (ValueError, ChildProcessError) as error:
        return _all_alike(name, "missing" if isinstance(error, ValueError) else UNGRADED, str(error)), 0.0
    return Result(name, tuple(outcomes)), remote.limit - remote.seconds_left


def _all_alike(name: str, status: str, message: str) -> Result:
    from fedleak_book.coursework.checking import assignment

    return Result(name, tuple(Outcome(check, status, message) for check in assignment(name).checks))


def row_of(submission: Submission, result: Result, seconds: float) -> dict[str, Any]:
    """Return a submission's row of the grade book, without the columns that compare the files' texts."""
    failed = {o.check.name: o.message for o in result.outcomes if o.status != "passed"}
    errors = set(failed.values())
    text = "; ".join(errors if len(errors) == 1 else [f"{check}: {message}" for check, message in failed.items()])
    ungraded = any(o.status == UNGRADED for o in result.outcomes)
    return {
        "student": submission.student,
        "assignment": result.assignment,
        "points": result.points,
        "max": result.maximum,
        "seconds": round(seconds, 1),
        "error": f"{UNGRADED}: {text}" if ungraded else text,
        **{f"{result.assignment}.{o.check.name}": o.points for o in result.outcomes},
    }


def _graded(submission: Submission, settings: Settings) -> tuple[dict[str, Any], str]:
    result, seconds = grade_one(submission, settings)
    return row_of(submission, result, seconds), f"{result}\n"


def _stopped(submission: Submission) -> tuple[dict[str, Any], str]:
    result = _all_alike(submission.assignment, "stopped", "the grader's process was ended from outside")
    return row_of(submission, result, 0.0), f"{result}\n"


def _processes(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _single_thread)


def _single_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _all(
    submissions: list[Submission], settings: Settings, jobs: int
) -> Iterator[tuple[Submission, dict[str, Any], str]]:
    """Grade in processes of their own; one that is ended from outside costs the submission that it was at."""
    again = []
    with _processes(jobs) as pool:
        waiting = {pool.submit(_graded, submission, settings): submission for submission in submissions}
        for future in as_completed(waiting):
            try:
                yield waiting[future], *future.result()
            except BrokenProcessPool:
                again.append(waiting[future])
    for submission in again:
        if len(submissions) > 1:
            yield from _all([submission], settings, 1)
        else:
            with _processes(1) as pool:
                yield submission, *pool.submit(_stopped, submission).result()


def _digest(submission: Submission) -> str:
    with contextlib.suppress(ValueError):
        return hashlib.sha256(read(submission.path)).hexdigest()[:12]
    return ""


def grade(
    folder: Path,
    out: Path,
    settings: Settings,
    only: Sequence[str] = (),
    feedback: Path | None = None,
    jobs: int = 1,
    resume: bool = False,
) -> Iterator[dict[str, Any]]:
    """Grade the `submissions` in a folder, `jobs` at a time; write and yield the row of each as soon as it is known.

    The CSV file `out` has the columns `FIXED`, `file` being a digest, and the points of every check. With `resume` its
    rows stay but for those whose file has changed. The folder `feedback` gets the checks' feedback, a text file each.
    Raises `ValueError` or `FileNotFoundError` as `submissions`, and for a time limit or jobs that are not positive, or
    a file to resume that is no grade book.
    """
    if not (settings.timeout > 0 and jobs > 0):
        raise ValueError(f"the time limit and the jobs are positive, got {settings.timeout:g} s and {jobs}")
    expected = submissions(folder, only)
    way = settings.way or isolation()
    written = [out.resolve().parent, *([feedback] if feedback else ())]
    for place in written:
        place.mkdir(parents=True, exist_ok=True)
    hidden = (place for place in written if place != Path(place.anchor))
    settings = settings._replace(hidden=(folder, *hidden, *settings.hidden), way=way)
    files_of = {submission: _digest(submission) for submission in expected}
    rows = dict[Submission, dict[str, Any]]()
    before = _earlier(out) if resume and out.is_file() else {}
    for submission, digest in files_of.items():
        row = before.pop(submission[:2], {})
        whole = {*FIXED} <= {*row} and None not in row.values()
        if whole and row["file"] == digest != "" and not row["error"].startswith(UNGRADED):
            rows[submission] = row
    others = [*before.values()]  # of assignments that are not graded now, and of students whose folders are elsewhere
    _write(out, [*others, *rows.values()])
    for submission, row, text in _all([s for s in expected if s not in rows], settings, jobs):
        rows[submission] = row | {"isolation": way.name, "file": files_of[submission]}
        _write(out, [*others, *(rows[s] for s in expected if s in rows)])
        if feedback:
            files.write_text(feedback / f"{submission.student}_{submission.assignment}.txt", text)
        yield rows[submission]


def _earlier(out: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Read a grade book: its rows by student and assignment."""
    try:
        with out.open(newline="", encoding="utf-8") as file:
            return {(row["student"], row["assignment"]): row for row in csv.DictReader(file)}
    except (KeyError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{out.name} is no grade book that --resume can go on with: name another --out") from error


def _write(out: Path, rows: Sequence[dict[str, Any]]) -> None:
    text = io.StringIO()
    columns = dict.fromkeys([*FIXED, *(name for row in rows for name in row)])
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files.write_text(out, text.getvalue())
