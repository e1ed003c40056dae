"""Check one's own solution, in a notebook or a script."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from fedleak.coursework import wire
from fedleak.coursework.assignment import Assignment, Result, run_check
from fedleak.coursework.checks import agic, defences, gdbr, lia_sa, llg, rlu
from fedleak.coursework.worker import answer, load, value_of

ASSIGNMENTS = {module.ASSIGNMENT.name: module.ASSIGNMENT for module in (llg, lia_sa, rlu, gdbr, agic, defences)}
"""By name, in the book's order."""


def assignment(name: str) -> Assignment:
    """Return an assignment by its name; if there is none, a `ValueError` says which there are."""
    if name not in ASSIGNMENTS:
        raise ValueError(f"unknown assignment {name!r}; there are: {', '.join(ASSIGNMENTS)}")
    return ASSIGNMENTS[name]


@dataclass(frozen=True)
class Local:
    """A student's functions in this process; they get copies of the arguments."""

    functions: Mapping[str, Any]
    path: Path = Path("submission.py")

    def __call__(self, function: str, *arguments: Any) -> Any:
        """Run a function, or raise `Trouble`."""
        return value_of(answer(self.functions, self.path, function, wire.plain(arguments)))


def check(
    name: str,
    solution: ModuleType | Mapping[str, Any] | Callable[..., Any] | str | Path,
    *,
    seed: int = 0,
    show: bool = True,
) -> Result:
    """Check a solution, print a line of feedback for every check, and return the result.

    Parameters
    ----------
    name
        The assignment: ``"llg"``, ``"lia_sa"``, ``"rlu"``, ``"gdbr"``, ``"agic"`` or ``"defences"``.
    solution
        A module, a file, a dictionary of functions (``globals()`` in a notebook), or a single function, of which
        only its own checks are run.
    seed
        Seed of the random inputs.
    show
        Print the feedback.

    Raises
    ------
    ValueError
        For an unknown assignment, or a function that is none of its functions.
    FileNotFoundError
        If the file does not exist.
    """
    found = assignment(name)
    checks = found.checks
    if isinstance(solution, str | Path):
        path = Path(solution)
        if not path.is_file():
            raise FileNotFoundError(f"no file {str(path)!r}")
        student = Local(load(path), path)
    elif isinstance(solution, Mapping | ModuleType):
        functions = vars(solution) if isinstance(solution, ModuleType) else solution
        student = Local(functions, Path(functions.get("__file__") or Local.path))
    else:
        student = Local({solution.__name__: solution})
        checks = [c for c in checks if set(c.needs) == {solution.__name__}]
        if not checks:
            raise ValueError(f"{name} has no function {solution.__name__!r}; it has: {', '.join(found.functions)}")
    result = Result(name, tuple(run_check(c, student, seed) for c in checks))
    if show:
        print(result)
    return result
