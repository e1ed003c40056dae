"""Grade a folder of submissions.

A grader's process draws the inputs, compares and writes the points; a submission's functions run in a process that gets
the inputs and returns values, see `fedleak.coursework.sandbox`.
"""

import contextlib
import csv
import hashlib
import io
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedleak import files, paths
from fedleak.coursework import similarity
from fedleak.coursework.assignment import Check, Outcome, Result, run_check
from fedleak.coursework.checking import ASSIGNMENTS, assignment
from fedleak.coursework.sandbox import Remote

TIMEOUT = 120.0
"""Seconds that a submission may take, for all checks together."""
LARGEST = 2**20
"""Bytes of a submission."""
FIXED = ("student", "assignment", "points", "max", "seconds", "error", "similar", "imports", "file")
"""Columns of the grade book before those of the checks."""


class Submission(NamedTuple):
    """One student's file for one assignment."""

    student: str
    assignment: str
    path: Path
    """Where it should be; it may be missing."""


class Settings(NamedTuple):
    """How submissions are graded."""

    timeout: float = TIMEOUT
    seed: int = 0
    hidden: tuple[Path, ...] = ()
    """Folders that a submission's process need not see."""


USUAL = Settings()


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
    found = [Submission(file.stem, wanted[0], file) for file in files]
    return found + [Submission(one.name, name, one / f"{name}.py") for one in students for name in wanted]


def read(path: Path) -> bytes:
    """Return a submission; `ValueError` says for its row why there is none. Links and pipes are none."""
    if path.is_symlink() or not path.is_file():
        notebook = path.with_suffix(".ipynb")
        there = f"; a notebook {notebook.name} is there: export it as Python" if notebook.is_file() else ""
        raise ValueError(f"{path.name} is missing{there}" if not path.is_symlink() else f"{path.name} is a link")
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"{path.name} has more than 1 MiB")
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from error


def grade_one(submission: Submission, settings: Settings = USUAL) -> tuple[Result, float]:
    """Run all checks on a submission; return the result and the seconds that the submission took.

    The inputs follow from the seed and the student: what one student's process sees is of no use to another. The
    outcomes hold our own words alone, since feedback goes to the student.
    """
    student, name, path = submission
    checks = assignment(name).checks
    text = f"{settings.seed}/{student}/{name}".encode()
    seed = int.from_bytes(hashlib.sha256(text).digest()[:7], "big")
    try:
        remote = Remote(f"{name}.py", read(path), settings.timeout, settings.hidden)
        with contextlib.closing(remote):
            outcomes = [_run(check, remote, seed) for check in checks]
    except (ValueError, ChildProcessError) as error:
        status = "missing" if isinstance(error, ValueError) else UNGRADED
        return Result(name, tuple(Outcome(check, status, str(error)) for check in checks)), 0.0
    return Result(name, tuple(outcomes)), remote.limit - remote.left


def _run(check: Check, remote: Remote, seed: int) -> Outcome:
    remote.next_check()
    return replace(run_check(check, remote, seed), detail="")


UNGRADED = "not graded"
"""Status of checks that the machine's fault kept from running; `grade` tries them again when it resumes."""


def row_of(submission: Submission, result: Result, seconds: float) -> dict[str, Any]:
    """Return a submission's row of the grade book, but for what comes from the files' texts."""
    failed = {o.check.name: o.message for o in result.outcomes if o.status != "passed"}
    alike = len(set(failed.values())) == 1
    errors = set(failed.values()) if alike else [f"{check}: {message}" for check, message in failed.items()]
    ungraded = any(o.status == UNGRADED for o in result.outcomes)
    return {
        "student": submission.student,
        "assignment": result.assignment,
        "points": result.points,
        "max": result.maximum,
        "seconds": round(seconds, 1),
        "error": (f"{UNGRADED}: " if ungraded else "") + "; ".join(errors),
        **{f"{result.assignment}.{o.check.name}": o.points for o in result.outcomes},
    }


def _graded(submission: Submission, settings: Settings) -> tuple[dict[str, Any], str]:
    torch.set_num_threads(1)
    result, seconds = grade_one(submission, settings)
    return row_of(submission, result, seconds), f"{result}\n"


def _all(found: list[Submission], settings: Settings, jobs: int) -> Iterator[tuple[Submission, dict[str, Any], str]]:
    """Grade in processes of their own; one that is ended from outside costs the submission that it was at."""
    again = []
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(_graded, submission, settings): submission for submission in found}
        for future in as_completed(waiting):
            try:
                yield waiting[future], *future.result()
            except BrokenProcessPool:
                again.append(waiting[future])
    for submission in again:
        if len(found) > 1:
            yield from _all([submission], settings, 1)
        else:
            message = "the grader's process was ended from outside"
            outcomes = tuple(Outcome(c, "stopped", message) for c in assignment(submission.assignment).checks)
            result = Result(submission.assignment, outcomes)
            yield submission, row_of(submission, result, 0.0), f"{result}\n"


def _texts(found: list[Submission]) -> dict[Submission, dict[str, Any]]:
    """Return the columns that come from the submissions' texts."""
    sources: dict[Submission, bytes] = {}
    for submission in found:
        with contextlib.suppress(ValueError):
            sources[submission] = read(submission.path)
    made = {
        s: {"similar": "", "imports": " ".join(similarity.imports(b)), "file": _digest(b)} for s, b in sources.items()
    }
    for name in dict.fromkeys(s.assignment for s in sources):
        own = {s.student: source for s, source in sources.items() if s.assignment == name}
        stub = b""
        with contextlib.suppress(OSError):  # no checkout, no solutions to compare with
            folder = paths.root() / "book" / "coursework"
            stub = (folder / "stubs" / f"{name}.py").read_bytes()
            own["(solution)"] = (folder / "solutions" / f"{name}.py").read_bytes()
        for whose, (share, other) in similarity.nearest(own, stub).items():
            for submission in [s for s in sources if (s.student, s.assignment) == (whose, name)]:
                made[submission]["similar"] = f"{share:.2f} {other}"
    return made


def _digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()[:12]


def grade(
    folder: Path,
    out: Path,
    only: Sequence[str] = (),
    settings: Settings = USUAL,
    feedback: Path | None = None,
    jobs: int = 1,
    resume: bool = False,
) -> Iterator[dict[str, Any]]:
    """Grade all submissions in a folder, and write a row for each as soon as it is known; sort them at the end.

    Parameters
    ----------
    folder, only
        See `submissions`.
    out
        The CSV file: the columns `FIXED`, and the points of every check. `similar` is the share that a file has in
        common with the one most like it, `imports` what `similarity.imports` finds, `file` a digest.
    feedback
        Folder for the checks' feedback, ``student_assignment.txt``.
    jobs
        Submissions graded at the same time.
    resume
        Keep the rows of `out` whose file is the same.

    Yields
    ------
    dict
        The row.

    Raises
    ------
    ValueError, FileNotFoundError
        See `submissions`; for a time limit or a number of jobs that is not positive.
    """
    if not (settings.timeout > 0 and jobs > 0):
        raise ValueError(f"the time limit and the jobs are positive, got {settings.timeout:g} s and {jobs}")
    found = submissions(folder, only)
    settings = settings._replace(hidden=(folder, *settings.hidden))
    columns = [
        *FIXED,
        *(f"{n}.{c.name}" for n in dict.fromkeys(s.assignment for s in found) for c in ASSIGNMENTS[n].checks),
    ]
    texts, rows = _texts(found), {}
    if resume and out.is_file():
        with out.open(newline="", encoding="utf-8") as file:
            before = {(row.get("student"), row.get("assignment")): row for row in csv.DictReader(file)}
        for submission in found:
            row, own = before.get(submission[:2], {}), texts.get(submission, {})
            whole = all(row.get(name) is not None for name in columns)
            if own and whole and row["file"] == own["file"] and not row["error"].startswith(UNGRADED):
                rows[submission] = {name: row[name] for name in columns} | own
    _write(out, columns, [*rows.values()])
    for submission, row, text in _all([s for s in found if s not in rows], settings, jobs):
        rows[submission] = {**row, **texts.get(submission, {})}
        with out.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, columns).writerow(rows[submission])
        if feedback:
            files.write_text(feedback / f"{submission.student}_{submission.assignment}.txt", text)
        yield rows[submission]
    _write(out, columns, [rows[submission] for submission in found])


def _write(out: Path, columns: list[str], rows: list[dict[str, Any]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(rows)
    files.write_text(out, text.getvalue())
