"""Check one's own solution, in a notebook or a script."""

import contextlib
import importlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from fedleak.errors import whole_number
from fedleak_book.coursework import NAMES, named, wire
from fedleak_book.coursework.assignment import Assignment, Check, Outcome, Result, Student, run_check
from fedleak_book.coursework.worker import Submission, value_of

ASSIGNMENTS: dict[str, Assignment] = {
    name: importlib.import_module(f"fedleak_book.coursework.checks.{name}").ASSIGNMENT for name in NAMES
}
"""By name, in the book's order."""


def assignment(name: str) -> Assignment:
    """Return an assignment by its name; if there is none, a `ValueError` says which there are."""
    return ASSIGNMENTS[named(name)]


def local(functions: Mapping[str, Any]) -> Student:
    """Return a student with these functions, which run in this process on copies of the arguments."""
    return _student(Submission(Path(functions.get("__file__") or "submission.py"), functions=functions))


def _student(submission: Submission) -> Student:
    file = submission.path.name
    return lambda name, *arguments: value_of(submission.answer(name, list(wire.plain(arguments))), name, file)


class _OutOfTime(BaseException):
    """Not an `Exception`, which a submission may catch."""


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise `_OutOfTime` in a block that takes longer, which only a main thread of Linux or macOS can."""

    def end(*_: Any) -> None:
        raise _OutOfTime

    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


_CHECKING: ContextVar[bool] = ContextVar("_CHECKING", default=False)


def check(
    name: str,
    solution: ModuleType | Mapping[str, Any] | Callable[..., Any] | str | Path,
    *,
    seed: int = 0,
    limit: float = 60.0,
    show: bool = True,
) -> Result:
    """Check a solution, print a line of feedback for every check, and return the result.

    Where a file that is being checked calls this function itself, nothing is checked again: the result is empty.
    Raises `ValueError` for an unknown assignment or function, or anything else that is none of the values below;
    `FileNotFoundError` if the file does not exist.

    Parameters
    ----------
    name
        The assignment, one of `ASSIGNMENTS`.
    solution
        A module, a Python file, a notebook (``.ipynb``: its code cells run), a dictionary of functions (``globals()``
        in a notebook), or a single function, of which only its own checks are run.
    seed
        Seed of the random inputs.
    limit
        Seconds for each check, above 0, where it runs in the main thread of Linux or macOS.
    show
        Print the feedback.
    """
    chosen = assignment(name)
    checks = chosen.checks
    whole_number("seed", seed, None)
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < 1e9:
        raise ValueError(f"limit is a number of seconds above 0; got {limit!r}")
    submission: Submission | None = None
    if _CHECKING.get():
        return Result(name, ())
    if isinstance(solution, str | Path):
        if not Path(solution).is_file():
            raise FileNotFoundError(f"no file {str(solution)!r}")
        submission = Submission(Path(solution), Path(solution).read_bytes())
    elif isinstance(solution, ModuleType):
        solution = vars(solution)
    elif not isinstance(solution, Mapping):
        if not hasattr(solution, "__name__"):
            raise ValueError(
                "a solution is a file's path, a module, globals(), a dictionary of functions by name, or one function "
                f"that was defined with `def`; got {solution!r}"
            )
        checks = [c for c in checks if c.function == solution.__name__]
        if not checks:
            raise ValueError(f"{name} has no function {solution.__name__!r}; it has: {', '.join(chosen.functions)}")
        solution = {solution.__name__: solution}
    token = _CHECKING.set(True)
    try:
        result = Result(name, _outcomes(checks, submission, solution, seed, limit))
    finally:
        _CHECKING.reset(token)
    if show:
        print(result)
    return result


def _outcomes(
    checks: list[Check], submission: Submission | None, functions: Any, seed: int, limit: float
) -> tuple[Outcome, ...]:
    """Run the checks, each with the time limit, and a file before them, with a limit of its own."""
    student, hint = local(functions) if submission is None else _student(submission), "is there a loop without end?"
    if submission:
        try:
            with contextlib.suppress(Exception, SystemExit), _time_limit(limit):
                submission.run()
        except _OutOfTime:
            message = f"the file was stopped after {limit:g} s: it runs as a whole before its functions do"
            return tuple(Outcome(check, "stopped", message, hint) for check in checks)
    outcomes = []
    for check in checks:
        try:
            with _time_limit(limit):
                outcomes.append(run_check(check, student, seed))
        except _OutOfTime:
            outcomes.append(Outcome(check, "stopped", f"no answer after {limit:g} s", hint))
    return tuple(outcomes)
