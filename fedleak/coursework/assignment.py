"""What an assignment is made of: functions to write, checks with points, and feedback that says what went wrong.

A check calls the submitted functions through a `Student`, which may be in this process (a notebook) or in another one
(the grader). It compares what comes back with autograd, a closed form or the package's own attack on random inputs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Generator, Tensor


class Trouble(Exception):
    """Why a check fails; the message is for the student.

    Parameters
    ----------
    message
        What was expected and what came.
    hint
        Where to look.
    status
        ``"wrong"``, ``"not written"``, ``"error"`` (the submission raised) or ``"stopped"`` (crash or time limit).
    """

    def __init__(self, message: str, hint: str = "", status: str = "wrong"):
        super().__init__(message)
        self.message, self.hint, self.status = message, hint, status


class Student(Protocol):
    """Somebody's functions: calling it runs the named one on copies of the arguments, or raises `Trouble`."""

    def __call__(self, function: str, *arguments: Any) -> Any:
        """Run the named function."""
        ...


@dataclass(frozen=True)
class Check:
    """One thing that is checked.

    Parameters
    ----------
    name
        Short name, the column of the grade book.
    says
        What a correct submission does, in one line.
    points
        Points for it, all or none.
    needs
        Functions that it calls.
    run
        The check; it raises `Trouble`.
    """

    name: str
    says: str
    points: int
    needs: tuple[str, ...]
    run: Callable[[Student, Generator], None]


@dataclass(frozen=True)
class Outcome:
    """How one check went."""

    check: Check
    status: str
    message: str = ""
    hint: str = ""

    @property
    def points(self) -> int:
        """All points of the check, or none."""
        return self.check.points if self.status == "passed" else 0

    def __str__(self) -> str:
        mark = "✓" if self.status == "passed" else "✗"
        lines = [f"{mark} {self.points}/{self.check.points}  {self.check.name}: {self.check.says}"]
        lines += [f"        {self.status}: {self.message}"] if self.message else []
        lines += [f"        hint: {self.hint}"] if self.hint else []
        return "\n".join(lines)


@dataclass(frozen=True)
class Result:
    """How a submission did.

    Parameters
    ----------
    assignment
        Its name.
    outcomes
        One for every check that was run.
    """

    assignment: str
    outcomes: tuple[Outcome, ...]

    @property
    def points(self) -> int:
        """Points reached."""
        return sum(outcome.points for outcome in self.outcomes)

    @property
    def maximum(self) -> int:
        """Points of all checks that were run."""
        return sum(outcome.check.points for outcome in self.outcomes)

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return self.points == self.maximum

    def __str__(self) -> str:
        return "\n".join([*map(str, self.outcomes), f"{self.assignment}: {self.points} of {self.maximum} points"])


@dataclass
class Assignment:
    """An assignment and its checks, which register themselves with `check`."""

    name: str
    title: str
    checks: list[Check] = field(default_factory=list)

    @property
    def functions(self) -> list[str]:
        """Names of the functions that a submission defines."""
        return list(dict.fromkeys(name for check in self.checks for name in check.needs))

    @property
    def maximum(self) -> int:
        """Points of all checks."""
        return sum(check.points for check in self.checks)

    def check(self, points: int, *needs: str) -> Callable[[Callable[[Student, Generator], None]], Check]:
        """Make a check of a function ``(student, generator) -> None``; name and docstring become its label."""

        def register(run: Callable[[Student, Generator], None]) -> Check:
            says = (run.__doc__ or "").strip().splitlines()[0].rstrip(".")
            made = Check(run.__name__, says, points, needs, run)
            self.checks.append(made)
            return made

        return register


def run_check(check: Check, student: Student, seed: int) -> Outcome:
    """Run one check on random inputs of this seed."""
    try:
        with torch.random.fork_rng(devices=[]):
            check.run(student, torch.Generator().manual_seed(seed))
    except Trouble as trouble:
        return Outcome(check, trouble.status, trouble.message, trouble.hint)
    except Exception as error:  # an answer of a kind that no check foresees must not stop a grader
        return Outcome(check, "error", f"the answer cannot be checked ({type(error).__name__})")
    return Outcome(check, "passed")


def seed_of(generator: Generator) -> int:
    """Return a seed for something that is drawn elsewhere."""
    return int(torch.randint(10_000, (), generator=generator))


def shown(value: Any) -> str:
    """Return a value as feedback shows it: short, and the same for a number and a tensor with one entry."""
    if isinstance(value, Tensor):
        if value.numel() > 8:
            return f"{shown(value.flatten()[:6])[:-1]}, …] (shape {list(value.shape)})"
        value = value.tolist()
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(shown, value)) + "]"
    return repr(value)[:80]


def as_tensor(got: Any, what: str) -> Tensor:
    """Return what a student's function gave as a tensor of float64.

    Raises
    ------
    Trouble
        If it is no number, list of numbers or tensor.
    """
    try:
        return torch.as_tensor(got).detach().cpu().double()
    except (TypeError, ValueError, RuntimeError):
        kind = "None" if got is None else f"a {type(got).__name__}"
        hint = "is there a `return`?" if got is None else ""
        raise Trouble(f"{what}: expected a tensor or a number, got {kind}", hint) from None


def same(
    got: Any,
    expected: Tensor | float,
    what: str,
    *,
    hint: str = "",
    mistakes: Sequence[tuple[str, Tensor | float]] = (),
    tolerance: float = 1e-6,
) -> None:
    """Compare a student's value with the right one.

    Parameters
    ----------
    got
        What came.
    expected
        What is right.
    what
        What the value is, for the message.
    hint
        General advice.
    mistakes
        Wrong values that are often computed, each behind its own hint; the first that equals `got` gives the hint.
    tolerance
        Largest error allowed, as a share of the largest entry.

    Raises
    ------
    Trouble
        If the value is not right.
    """
    value, right = as_tensor(got, what), torch.as_tensor(expected).double()
    if value.shape != right.shape and not value.numel() == right.numel() == 1:
        for clue, wrong in mistakes:
            if _close(value, torch.as_tensor(wrong).double(), tolerance):
                hint = clue
                break
        raise Trouble(f"{what}: expected shape {list(right.shape)}, got {list(value.shape)}", hint)
    if _close(value.reshape(right.shape), right, tolerance):
        return
    if not torch.isfinite(value).all():
        raise Trouble(f"{what}: NaN or infinite entries", hint)
    for clue, wrong in mistakes:
        if _close(value, torch.as_tensor(wrong).double(), tolerance):
            hint = clue
            break
    raise Trouble(f"{what}: expected {shown(right)}, got {shown(value)}", hint)


def _close(value: Tensor, right: Tensor, tolerance: float) -> bool:
    if value.shape != right.shape and not value.numel() == right.numel() == 1:
        return False
    size = right.abs().max().item() if right.numel() else 0.0
    return bool(((value - right.reshape(value.shape)).abs() <= tolerance * max(size, 1e-12)).all())


def whole_numbers(got: Any, what: str) -> None:
    """Require integers: a tensor of whole numbers of an integer type.

    Raises
    ------
    Trouble
        If they are not.
    """
    value = as_tensor(got, what)
    if not torch.equal(value, value.round()) or (isinstance(got, Tensor) and got.is_floating_point()):
        raise Trouble(f"{what}: expected whole numbers of type torch.long, got {shown(value)}", "round, then `.long()`")


def table(got: Any, columns: Sequence[str], what: str = "the table") -> list[dict[str, Any]]:
    """Read the rows of a measurement: a list of dictionaries with these keys and finite numbers.

    Raises
    ------
    Trouble
        If it is something else.
    """
    if not isinstance(got, list) or not got or not all(isinstance(row, dict) for row in got):
        raise Trouble(f"{what}: expected a list of rows, each a dictionary with the keys {', '.join(columns)}")
    for row in got:
        if set(row) != set(columns):
            raise Trouble(f"{what}: expected the keys {', '.join(columns)}, got {', '.join(map(str, row))[:120]}")
        for name, value in row.items():
            if isinstance(value, Tensor) or not isinstance(value, str | int | float):
                raise Trouble(f"{what}: {name!r} is a plain number or text; use `.item()`")
            if isinstance(value, float) and math.isnan(value):
                raise Trouble(f"{what}: {name!r} is NaN")
    return got


def near(value: float, right: float, within: float, what: str, hint: str = "") -> None:
    """Compare a measured value with our own measurement of the same thing.

    Raises
    ------
    Trouble
        If they are further apart than `within`.
    """
    if not abs(value - right) <= within:
        raise Trouble(f"{what}: expected {right:.3g} ± {within:.2g}, got {value:.3g}", hint)
