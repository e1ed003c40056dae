"""Check one's own solution, in a notebook or a script."""

import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from fedleak_book.coursework import wire
from fedleak_book.coursework.assignment import Assignment, Check, Outcome, Result, Student, run_check
from fedleak_book.coursework.checks import agic, defences, gdbr, lia_sa, llg, rlu
from fedleak_book.coursework.worker import answer, load, value_of

ASSIGNMENTS = {module.ASSIGNMENT.name: module.ASSIGNMENT for module in (llg, lia_sa, rlu, gdbr, agic, defences)}
"""By name, in the book's order."""


def assignment(name: str) -> Assignment:
    """Return an assignment by its name; if there is none, a `ValueError` says which there are."""
    if name not in ASSIGNMENTS:
        raise ValueError(f"unknown assignment {name!r}; there are: {', '.join(ASSIGNMENTS)}")
    return ASSIGNMENTS[name]


def local(functions: Mapping[str, Any]) -> Student:
    """Return a student with these functions, which run in this process on copies of the arguments."""
    path = Path(functions.get("__file__") or "submission.py")
    return lambda name, *arguments: value_of(answer(lambda: functions, path, name, list(wire.plain(arguments))), name)


class _OutOfTime(BaseException):
    """Not an `Exception`, which a submission may catch."""


def _in_time(limit: float, check: Check, student: Student, seed: int) -> Outcome:
    """Run one check, and end it at the limit, which only a main thread of Linux or macOS can."""

    def end(*_: Any) -> None:
        raise _OutOfTime

    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return run_check(check, student, seed)
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        return run_check(check, student, seed)
    except _OutOfTime:
        return Outcome(check, "stopped", f"no answer after {limit:g} s", "is there a loop without end?")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check(
    name: str,
    solution: ModuleType | Mapping[str, Any] | Callable[..., Any] | str | Path,
    *,
    seed: int = 0,
    limit: float = 60.0,
    show: bool = True,
) -> Result:
    """Check a solution, print a line of feedback for every check, and return the result.

    Raises `ValueError` for an unknown assignment or function; `FileNotFoundError` if the file does not exist.

    Parameters
    ----------
    name
        The assignment, one of `ASSIGNMENTS`.
    solution
        A module, a file, a dictionary of functions (``globals()`` in a notebook), or a single function, of which
        only its own checks are run.
    seed
        Seed of the random inputs.
    limit
        Seconds for each check, where it runs in the main thread of Linux or macOS.
    show
        Print the feedback.
    """
    chosen = assignment(name)
    checks = chosen.checks
    if isinstance(solution, str | Path):
        if not Path(solution).is_file():
            raise FileNotFoundError(f"no file {str(solution)!r}")
        solution = load(Path(solution))
    if isinstance(solution, ModuleType):
        solution = vars(solution)
    if not isinstance(solution, Mapping):
        checks = [c for c in checks if c.function == solution.__name__]
        if not checks:
            raise ValueError(f"{name} has no function {solution.__name__!r}; it has: {', '.join(chosen.functions)}")
        solution = {solution.__name__: solution}
    result = Result(name, tuple(_in_time(limit, c, local(solution), seed) for c in checks))
    if show:
        print(result)
    return result
