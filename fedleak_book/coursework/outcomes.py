"""How checks of an assignment go; written without PyTorch, which takes seconds to import."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Generator


@dataclass(eq=False)
class Trouble(Exception):
    """Why a check fails; for the student."""

    message: str
    """What is wrong, in our own words: nothing that the submission or the inputs choose."""
    hint: str = ""
    status: str = "wrong"
    """Or ``"not written"``, ``"error"`` (the submission raised), ``"stopped"`` (crash or time limit)."""
    detail: str = ""
    """What was expected and what came; shown where the student's own process checks, never by the grader."""


Student = Callable[..., Any]
"""Somebody's functions: ``student(function, *arguments)`` runs one on copies of the arguments, or raises `Trouble`."""


@dataclass(frozen=True)
class Check:
    """One thing that is checked."""

    name: str
    says: str
    """What a correct submission does, in one line."""
    points: int
    """All or none."""
    function: str
    """What it calls."""
    run: Callable[[Student, "Generator"], None]
    """It raises `Trouble`."""


@dataclass(frozen=True)
class Outcome:
    """How one check went."""

    check: Check
    status: str
    message: str = ""
    hint: str = ""
    detail: str = ""

    @property
    def points(self) -> int:
        """All points of the check, or none."""
        return self.check.points if self.status == "passed" else 0

    def __str__(self) -> str:
        mark = "✓" if self.status == "passed" else "✗"
        lines = [f"{mark} {self.points}/{self.check.points}  {self.check.name}: {self.check.says}"]
        text = f"{self.message}: {self.detail}" if self.detail else self.message
        lines += [f"        {self.status}: {text}"] if text else []
        lines += [f"        hint: {self.hint}"] if self.hint else []
        return "\n".join(lines)


@dataclass(frozen=True)
class Result:
    """Result of a submission: an outcome for every check of its assignment that was run."""

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
        lines: list[str] = []
        message = ""
        for outcome in self.outcomes:
            again = message == outcome.message != ""  # a file that cannot be run says so once
            lines.append(str(replace(outcome, message="as above", detail="", hint="") if again else outcome))
            message = outcome.message
        return "\n".join([*lines, f"{self.assignment}: {self.points} of {self.maximum} points"])
