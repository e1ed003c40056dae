"""The package's exceptions; other mistakes of a caller raise `ValueError`."""

import math
import operator
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

WRAPPERS = ("module.", "_orig_mod.", "_module.")
"""Prefixes that DataParallel, torch.compile and Opacus add to every name of a model's state."""


def wrapped(names: Iterable[str]) -> str:
    """Return the prefix that a wrapper has left on all of these names; "" if there is none."""
    names = list(names)
    return next((prefix for prefix in WRAPPERS if names and all(name.startswith(prefix) for name in names)), "")


def likely(names: Iterable[str]) -> str:
    """Return a hint for an error if all of these names have a wrapper's prefix; else ""."""
    if prefix := wrapped(names):
        return f". All its names begin with {prefix!r}, as wrappers of models leave them: take it off"
    return ""


class WithheldParameter(KeyError):
    """The client did not share the gradient of a parameter that is needed."""

    def __init__(self, name: str, shared: list[str]):
        self.name = name
        super().__init__(name, tuple(shared))

    def __str__(self) -> str:
        shared = ", ".join(self.args[1]) or "nothing"
        return (
            f"the update withholds {self.name!r}; it shares: {shared}. "
            f"Use an attack that does not need this parameter, or an update that shares it{likely(self.args[1]) or '.'}"
        )


class Failed(RuntimeError):
    """A program that a command ran has failed; the message names the place."""


class MissingExtra(ModuleNotFoundError):
    """A package of one of fedleak's extras is not installed; the message has the command that installs it."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Import packages of one of fedleak's extras, in a block around the imports or a decorated function.

    Raises `MissingExtra` if a module is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if isinstance(error, MissingExtra):
            raise
        raise MissingExtra(f"{error.name} is not installed: pip install 'fedleak[{name}]'", name=error.name) from error


def require(*modules: str) -> None:
    """Raise `ModuleNotFoundError` for the first module that is not installed, without importing any."""
    for module in modules:
        if find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)


class DataNotFound(FileNotFoundError):
    """A data set is not available; the message has the places that were searched and the remedy."""


SEEDS = (-(2**63), 2**64 - 1)
"""The smallest and the largest seed of PyTorch's generators."""


def is_of(value: Any, kind: Any) -> bool:
    """Return whether a value is of an annotated type: a class, union, tuple, sequence, function or protocol of one.

    A bool is no number, a string no sequence, and a list may be a tuple. A class is a function if its arguments are
    none, as it makes something then.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(is_of(value, part) for part in parts)
    if origin is tuple:
        return isinstance(value, tuple | list) and len(value) == len(parts) and all(map(is_of, value, parts))
    if origin is Sequence:
        return isinstance(value, Sequence) and not isinstance(value, str) and all(is_of(v, parts[0]) for v in value)
    if origin is Callable or getattr(kind, "_is_protocol", False):
        return callable(value) and (parts[:1] == ([],) or not isinstance(value, type))
    if kind in (int, float):
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    return isinstance(value, kind)


def whole_number(what: str, value: Any, least: int | None = 1, most: int | None = None) -> int:
    """Return a value as an int; `ValueError` for other than a whole number from `least` to `most`, and for a bool."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    low, high = -math.inf if least is None else least, math.inf if most is None else most
    if number is None or isinstance(value, bool) or not low <= number <= high:
        bounds = "".join(
            f", at {end} {bound}" for end, bound in (("least", least), ("most", most)) if bound is not None
        )
        raise ValueError(f"{what} is a whole number{bounds}; got {value!r}")
    return number


def line_of(error: BaseException, path: Path) -> int | None:
    """Return the innermost line of a user's file in which an error was raised; None if it was elsewhere."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        frames.append((error.filename or "", error.lineno))
    return next((line for name, line in reversed(frames) if Path(name).name == path.name), None)


def is_same_source(first: Any, second: Any) -> bool:
    """Return whether two functions have one module and name, as those of a notebook's cell that ran twice."""
    names = [(getattr(f, "__module__", None), getattr(f, "__qualname__", None)) for f in (first, second)]
    return None not in names[0] and names[0] == names[1]


@contextmanager
def own_code(path: Path) -> Iterator[None]:
    """Run a user's file in the block: it can import its neighbours, and errors become a `ValueError` with the line."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    except Exception as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ValueError(f"{path.name}, line {line_of(error, path)}: {kind}{text}") from error
    finally:
        sys.path.remove(folder)
