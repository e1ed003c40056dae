"""Check one's own solution, in a notebook or a script."""

import importlib
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from fedleak.errors import whole_number
from fedleak_book.coursework import named, wire
from fedleak_book.coursework.assignment import Assignment, run_check
from fedleak_book.coursework.outcomes import Result, Student
from fedleak_book.coursework.worker import Submission, value_of


def assignment(name: str) -> Assignment:
    """Return an assignment by its name; if there is none, a `ValueError` says which there are."""
    return importlib.import_module(f"fedleak_book.coursework.checks.{named(name)}").ASSIGNMENT


def local(functions: Mapping[str, Any]) -> Student:
    """Return a student with these functions, which run in this process on copies of the arguments."""
    return _student(Submission(Path(functions.get("__file__") or "submission.py"), functions=functions))


def _student(submission: Submission) -> Student:
    file = submission.path.name
    return lambda name, *arguments: value_of(submission.answer(name, list(wire.plain(arguments))), name, file)


_CHECKING: ContextVar[bool] = ContextVar("_CHECKING", default=False)


def check(
    name: str,
    solution: ModuleType | Mapping[str, Any] | Callable[..., Any] | str | Path,
    *,
    seed: int = 0,
    show: bool = True,
) -> Result:
    """Check a solution, print a line of feedback for every check, and return the result.

    Where a file that is being checked calls this function itself, nothing is checked again: the result is empty.
    Raises `ValueError` for an unknown assignment or function, or anything else that is none of the values below;
    `FileNotFoundError` if the file does not exist.

    Parameters
    ----------
    name
        The assignment, one of `fedleak_book.coursework.NAMES`.
    solution
        A module, a Python file, a notebook (``.ipynb``: its code cells run), a dictionary of functions (``globals()``
        in a notebook), or a single function, of which only its own checks are run.
    seed
        Seed of the random inputs.
    show
        Print the feedback.
    """
    chosen = assignment(name)
    checks = chosen.checks
    whole_number("seed", seed, None)
    if _CHECKING.get():
        return Result(name, ())
    if isinstance(solution, str | Path):
        if not Path(solution).is_file():
            raise FileNotFoundError(f"no file {str(solution)!r}")
        student = _student(Submission(Path(solution), Path(solution).read_bytes()))
    elif isinstance(solution, ModuleType):
        student = local(vars(solution))
    elif isinstance(solution, Mapping):
        student = local(solution)
    else:
        if not hasattr(solution, "__name__"):
            raise ValueError(
                "a solution is a file's path, a module, globals(), a dictionary of functions by name, or one function "
                f"that was defined with `def`; got {solution!r}"
            )
        checks = [c for c in checks if c.function == solution.__name__]
        if not checks:
            raise ValueError(f"{name} has no function {solution.__name__!r}; it has: {', '.join(chosen.functions)}")
        student = local({solution.__name__: solution})
    token = _CHECKING.set(True)
    try:
        result = Result(name, tuple(run_check(task, student, seed) for task in checks))
    finally:
        _CHECKING.reset(token)
    if show:
        print(result)
    return result
