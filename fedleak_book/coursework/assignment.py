"""Parts of an assignment: functions to write, checks with points, and feedback on mistakes.

A check calls the submitted functions through a `Student`, in this process (a notebook) or in others (the grader). It
compares what comes back with autograd, a closed form or the package's own attack on random inputs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from fedleak_book.coursework.outcomes import Check, Outcome, Student, Trouble


@dataclass
class Assignment:
    """An assignment and its checks, which register themselves with `check`."""

    name: str
    checks: list[Check] = field(default_factory=list)

    @property
    def functions(self) -> list[str]:
        """Names of the functions that a submission defines."""
        return list(dict.fromkeys(check.function for check in self.checks))

    def check(self, points: int, function: str = "") -> Callable[[Callable[[Student, Generator], None]], None]:
        """Make a check of ``(student, generator) -> None``; its docstring says what, its name which `function` of."""

        def register(run: Callable[[Student, Generator], None]) -> None:
            name, says = run.__name__, (run.__doc__ or "").rstrip(".")
            self.checks.append(Check(name, says, points, function or name, run))

        return register

    def measurement(self, points: int, keys: int, right: Mapping[str, Any], hint: str) -> Callable:
        """Make a check of ``measure(seed)`` of a table: what somebody's functions give on the inputs of a seed.

        The table is made here, of the student's functions (their values as tensors), and of right ones, which it must
        come near. A row's first `keys` entries say which it is.
        """

        def register(table: Callable[[Student, int], list[dict]]) -> None:
            def measure(student: Student, generator: Generator) -> None:
                seed, first = seed_of(generator), "correct the functions first"
                students_own: Any = None
                trouble: Trouble | None = None
                try:
                    students_own = student("measure", seed)
                except Trouble as error:
                    if error.status == "not written":
                        raise
                    trouble = error  # the functions may be why
                ours = table(lambda name, *inputs: as_tensor(right[name](*inputs), name), seed)
                try:
                    students_table = table(lambda name, *inputs: as_tensor(student(name, *inputs), name), seed)
                except (Trouble, ChildProcessError):
                    raise
                except Exception as error:  # shapes that nothing can be measured with
                    problem = "measure: nothing can be measured with what your functions give"
                    raise Trouble(problem, first, detail=type(error).__name__) from None
                _same_table(
                    students_table, ours, keys, WIDE, "what your functions give is far from what right ones give", first
                )
                if trouble:
                    raise trouble
                what = "this is not what your functions give on the inputs of this seed"
                _same_table(students_own, students_table, keys, NEAR, what, hint)

            measure.__doc__ = table.__doc__
            self.check(points)(measure)

        return register


def run_check(check: Check, student: Student, seed: int) -> Outcome:
    """Run one check on random inputs of this seed."""
    try:
        with torch.random.fork_rng(devices=[]):
            check.run(student, torch.Generator().manual_seed(seed))
    except Trouble as trouble:
        return Outcome(check, **vars(trouble))
    except ChildProcessError:  # the machine's fault
        raise
    except Exception as error:  # an answer of a kind that no check foresees must not stop a grader
        return Outcome(check, "error", "the answer cannot be checked", detail=type(error).__name__)
    return Outcome(check, "passed")


def normal(generator: Generator, *shape: int) -> Tensor:
    """Draw normal numbers, float64."""
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def uniform(generator: Generator, *shape: int) -> Tensor:
    """Draw numbers in [0, 1), float64."""
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def seed_of(generator: Generator) -> int:
    """Return a seed for something that is drawn elsewhere."""
    return int(torch.randint(2**31, (), generator=generator))


def short_text(value: Any) -> str:
    """Return a number, text or tensor as feedback shows it: short, and the same for one entry and for a number."""
    if isinstance(value, Tensor) and value.numel() > 8:
        return f"{short_text(value.flatten()[:6])[:-1]}, …] (shape {list(value.shape)})"
    text = np.array2string(np.asarray(value), separator=", ", formatter={"float": "{:.5g}".format})
    return text.replace("\n", "")[:80]


def as_tensor(got: Any, what: str) -> Tensor:
    """Return a student's value as a tensor of float64; raise `Trouble` if it is neither a tensor nor numbers."""
    try:
        return torch.as_tensor(got).detach().cpu().double()
    except (TypeError, ValueError, RuntimeError):
        kind = "None" if got is None else f"a {type(got).__name__}"
        hint = "is there a `return`?" if got is None else ""
        raise Trouble(f"{what}: expected a tensor or a number", hint, detail=f"got {kind}") from None


def same(
    got: Any,
    expected: Tensor | float,
    what: str,
    mistakes: Mapping[str, Any] = {},
    *,
    hint: str = "",
    tolerance: float = 1e-6,
    whole: bool = False,
) -> None:
    """Compare a student's value of `what` with the right one; raise `Trouble` if they differ.

    `mistakes` are values that are often computed, or lists of some, by the hint that they deserve; for any other there
    is `hint`. The largest error allowed is `tolerance`, as a share of the largest entry. `whole` asks for a tensor of
    an integer type.
    """
    value, right = as_tensor(got, what), as_tensor(expected, what)
    if _close(value, right, tolerance):
        if whole and isinstance(got, Tensor) and got.is_floating_point():
            raise Trouble(f"{what}: expected whole numbers of type torch.long", "round, then `.long()`")
        return
    wrong = [
        (clue, value_of_mistake)
        for clue, w in mistakes.items()
        for value_of_mistake in (w if isinstance(w, list) else [w])
    ]
    hint = next(
        (clue for clue, value_of_mistake in wrong if _close(value, as_tensor(value_of_mistake, what), tolerance)), hint
    )
    if value.shape != right.shape and not value.numel() == right.numel() == 1:
        raise Trouble(f"{what}: expected shape {list(right.shape)}", hint, detail=f"got {list(value.shape)}")
    if not torch.isfinite(value).all():
        raise Trouble(f"{what}: NaN or infinite entries", hint)
    raise Trouble(
        f"{what}: other values than expected", hint, detail=f"expected {short_text(right)}, got {short_text(value)}"
    )


def _close(value: Tensor, right: Tensor, tolerance: float) -> bool:
    if value.numel() == right.numel() == 1:
        value = value.view(right.shape)
    return value.shape == right.shape and torch.allclose(
        value, right, rtol=0, atol=tolerance * max(right.abs().max().item(), 1e-12)
    )


def within(value: float, low: float, high: float, what: str, hint: str = "") -> None:
    """Require a number in [low, high]; `Trouble` if it is not."""
    if not low <= value <= high:
        raise Trouble(f"{what}: out of range", hint, detail=f"expected {low:.4g} to {high:.4g}, got {value:.4g}")


NEAR, WIDE, SINGULAR = 2e-4, 0.05, 1e8
"""How close a measured number is to that of the student's own functions, and these to right ones, as a share; a
condition above which rounding decides the row."""


def _same_table(got: Any, right: list[dict], keys: int, tolerance: float, what: str, hint: str) -> None:
    columns = list(right[0])
    if not isinstance(got, list) or not all(isinstance(row, dict) and set(row) == set(columns) for row in got):
        raise Trouble(f"measure: expected a list of rows, each a dictionary with the keys {', '.join(columns)}")
    if not all(isinstance(value, str | int | float) for row in got for value in row.values()):
        raise Trouble("measure: the values are plain numbers and text; use `.item()`")
    theirs, ours = ({tuple(row[name] for name in columns[:keys]): row for row in rows} for rows in (got, right))
    if missing := [key for key in ours if key not in theirs]:
        settings = "; ".join(_setting(columns, key) for key in missing)
        raise Trouble(f"measure: there is no row for {settings}", f"the rows are {len(ours)}, one for each setting")
    if len(got) > len(ours):
        raise Trouble("measure: more rows than settings")
    for key, row in ours.items():
        singular = max(row[name] for name in columns[keys:]) > SINGULAR
        for name in columns[keys:]:
            value = theirs[key][name]
            near = isinstance(value, int | float) and abs(value - row[name]) <= tolerance * abs(row[name])
            if not (name != "condition" or value > SINGULAR if singular else near):
                detail = f"expected {short_text(row[name])}, got {short_text(value)}"
                raise Trouble(f"measure: {name} at {_setting(columns, key)}: {what}", hint, detail=detail)


def _setting(columns: list[str], key: tuple) -> str:
    return ", ".join(f"{label} {part}" for label, part in zip(columns, key, strict=False))
