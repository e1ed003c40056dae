"""Grade a folder of submissions: every one in a process of its own, with a time limit.

The submission's process answers calls, no more. Inputs, comparisons and points stay in the grader's process, so that a
submission can only change its answers. What this does not protect against: the processes run as the same user, so that
a malicious submission can read and write that user's files, use the network, or leave processes behind. For
submissions from strangers run the grader in a container without network.
"""

import contextlib
import csv
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fedleak
from fedleak.coursework import wire
from fedleak.coursework.assignment import Assignment, Outcome, Result, Trouble, run_check
from fedleak.coursework.checking import assignment, value_of
from fedleak.coursework.checks import ASSIGNMENTS

TIMEOUT = 120.0
"""Seconds that a submission may take, for all checks together."""
SHARE = 1 / 2
"""What one check may take of it: a function that never returns does not cost the points of the others."""
START = 300.0
"""Seconds for the interpreter and PyTorch to start; they do not count."""
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "FEDLEAK_DATA")
FIXED = ("student", "assignment", "points", "max", "seconds", "error")


class Remote:
    """A submission in a process of its own, in an empty folder; a `Student`.

    Parameters
    ----------
    path
        The file.
    limit
        Seconds, from the moment at which the file is imported.
    """

    def __init__(self, path: Path, limit: float):
        self.path, self.limit = path, limit
        self.left, self.share = limit, limit * SHARE
        self.broken = ""
        self.process: subprocess.Popen[bytes] | None = None

    def next_check(self) -> None:
        """Begin a check: it has its own share of the time."""
        self.share = self.limit * SHARE

    def __call__(self, function: str, *arguments: Any) -> Any:
        """Run a function of the submission, or raise `Trouble`; after a crash the process is started anew."""
        if self.process is None:
            self.start()
        if self.broken:
            raise Trouble(self.broken, status="error")
        wanted = {"function": function, "arguments": wire.plain(arguments)}
        reply = self.timed(lambda deadline: self.exchange(wanted, deadline), f"`{function}`")
        return value_of(reply if isinstance(reply, dict) else {})

    def exchange(self, message: Any, deadline: float) -> Any:
        """Send a message and receive the answer."""
        wire.send(self.link, message, deadline)
        return wire.receive(self.link, deadline)

    def timed(self, action: Callable[[float], Any], what: str) -> Any:
        """Do something with the process on the submission's time; stop the process if that fails."""
        begun, allowed = time.monotonic(), min(self.left, self.share)
        try:
            try:
                return action(begun + allowed)
            finally:
                spent = time.monotonic() - begun
                self.left, self.share = self.left - spent, self.share - spent
        except TimeoutError:
            self.stop()
            raise Trouble(
                f"{what} was stopped after {allowed:.3g} s", "is there a loop without end?", "stopped"
            ) from None
        except wire.Closed as closed:
            code = self.stop()
            raise Trouble(f"{what} ended the process ({closed}, exit code {code})", status="stopped") from None

    def start(self) -> None:
        """Start the process and import the submission; what goes wrong here goes wrong in every check."""
        if self.broken:
            return
        ours, theirs = socket.socketpair()
        self.link = ours
        self.folder = Path(tempfile.mkdtemp(prefix="fedleak-"))
        shutil.copyfile(self.path, self.folder / self.path.name)
        home = {"HOME": str(self.folder), "TMPDIR": str(self.folder), "MPLCONFIGDIR": str(self.folder)}
        package = {"PYTHONPATH": str(Path(fedleak.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
        package["OMP_NUM_THREADS"] = "1"
        command = [sys.executable, "-P", "-m", "fedleak.coursework.worker", str(theirs.fileno()), self.path.name]
        self.process = subprocess.Popen(
            command,
            cwd=self.folder,
            env={name: os.environ[name] for name in _PASSED_ON if name in os.environ} | home | package,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        try:
            wire.receive(self.link, time.monotonic() + START)
        except (TimeoutError, wire.Closed):
            self.stop()
            raise RuntimeError(
                "the process for submissions does not start; try `python -m fedleak.coursework.worker`"
            ) from None
        try:
            reply = self.timed(lambda deadline: wire.receive(self.link, deadline), "importing the file")
        except Trouble as trouble:
            self.broken = trouble.message
            raise
        if not isinstance(reply, dict) or reply.get("status") != "ready":
            self.broken = str(reply.get("message", ""))[:300] if isinstance(reply, dict) else "no answer"
            self.stop()

    def stop(self) -> int | None:
        """Kill the process and what it has started, and remove its folder; return the exit code."""
        if self.process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.link.close()
            self.process.wait(0.2)  # a process that has ended keeps its own exit code
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.process = None
        return code


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
    """Run all checks on a submission in a process of its own; return the result and the seconds that it took."""
    name, checks = submission.assignment.name, submission.assignment.checks
    if not submission.path.is_file():
        message = f"{submission.path.name} is missing"
        return Result(name, tuple(Outcome(check, "missing", message) for check in checks)), 0.0
    student, outcomes = Remote(submission.path, timeout), []
    try:
        for check in checks:
            student.next_check()
            if student.left <= 0:
                outcomes.append(Outcome(check, "stopped", f"the time limit of {timeout:g} s is used up"))
            else:
                outcomes.append(run_check(check, student, seed))
    finally:
        student.stop()
    return Result(name, tuple(outcomes)), timeout - student.left


def row_of(submission: Submission, result: Result, seconds: float) -> dict[str, Any]:
    """Return a submission's row of the grade book."""
    failed = [o for o in result.outcomes if o.status != "passed"]
    messages = dict.fromkeys(" ".join(o.message.split()) for o in failed)
    several = len(messages) > 1
    texts = [f"{o.check.name}: {' '.join(o.message.split())}" if several else next(iter(messages)) for o in failed]
    return {
        "student": submission.student,
        "assignment": submission.assignment.name,
        "points": result.points,
        "max": result.maximum,
        "seconds": round(seconds, 1),
        "error": "; ".join(dict.fromkeys(texts)),
        **{f"{submission.assignment.name}.{o.check.name}": o.points for o in result.outcomes},
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
        See `submissions`; for a time limit that is not positive.
    """
    if not timeout > 0:
        raise ValueError(f"the time limit is a positive number of seconds, got {timeout:g}")
    found = submissions(folder, only)
    graded = dict.fromkeys(s.assignment.name for s in found)
    columns = [*FIXED, *(f"{name}.{check.name}" for name in graded for check in ASSIGNMENTS[name].checks)]
    if feedback:
        feedback.mkdir(parents=True, exist_ok=True)
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
                text.write_text(f"{result}\n", encoding="utf-8")
            yield row
