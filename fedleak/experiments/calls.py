"""Which functions a computation called, and hashes of them: an edit of one is noticed, an edit of another is not."""

import ast
import hashlib
import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PACKAGE = str(Path(__file__).resolve().parents[1])
MACHINERY = "fedleak.experiments."
"""Modules that run trials and keep their rows, and have no part in what a trial computes."""
PARAMETERS = {"profile", "device", "seed", "trials", "data_root", "record", "scheduler"}
"""What papermill sets in a notebook: no part of any trial."""


def traced(function: Callable[[], Any], home: Mapping[str, Any]) -> tuple[Any, dict[str, str]]:
    """Call a function; return what it returns, and which functions of the package and of a notebook it called.

    Parameters
    ----------
    function
        What is called.
    home
        The notebook's globals.

    Returns
    -------
    result, calls
        `calls` is ``module:qualified name`` to a hash of the function; the module is empty for the notebook, which
        its kernel calls by another name than other processes.
    """
    main, seen, names = home.get("__name__"), set[CodeType](), dict[str, None]()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code in seen:
            return
        seen.add(code)
        module = frame.f_globals.get("__name__", "")
        if module == main or (code.co_filename.startswith(PACKAGE) and not module.startswith(MACHINERY)):
            names[f"{'' if module == main else module}:{code.co_qualname.split('.<locals>')[0]}"] = None

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        result = function()
    finally:
        sys.setprofile(before)
    return result, {name: one for name in names if (one := fingerprint(name, home)) is not None}


def fingerprint(name: str, home: Mapping[str, Any]) -> str | None:
    """Hash a function: its statements without comments and docstrings, and the plain constants that it reads.

    Returns
    -------
    str or None
        ``"gone"`` for a function that is no longer there, None for one without source (a dataclass's own methods).
    """
    module, _, qualified = name.partition(":")
    if not module and (known := _known.get()) is not None:
        return known.get(name)
    try:
        found = vars(importlib.import_module(module)) if module else home
        target: Any = found[qualified.split(".")[0]]
        for part in qualified.split(".")[1:]:
            target = inspect.getattr_static(target, part)
    except (ImportError, KeyError, AttributeError):
        return None if qualified.startswith("<") else "gone"
    target = target.fget if isinstance(target, property) else getattr(target, "__func__", target)
    target = getattr(target, "func", target)  # a cached property
    target = getattr(target, "trial", target)  # an experiment has taken the name of its trial
    target = inspect.unwrap(target) if callable(target) else target
    if not inspect.isfunction(target):
        return None
    try:
        text = _statements(inspect.getsource(target))
    except (OSError, TypeError):
        return None
    read = {key: target.__globals__[key] for key in _names(target.__code__) if key in target.__globals__}
    constants = {key: value for key, value in read.items() if key not in PARAMETERS and _plain(value)}
    return hashlib.sha256(f"{text} {sorted(constants.items())}".encode()).hexdigest()[:12]


def changed(calls: Mapping[str, str], home: Mapping[str, Any]) -> list[str]:
    """Return which of these functions have another hash today."""
    return [name for name, then in calls.items() if not name.startswith(MACHINERY) and fingerprint(name, home) != then]


_known: ContextVar[Mapping[str, str] | None] = ContextVar("known", default=None)
"""On a worker of a cluster: the hashes of the notebook's functions, which have their source elsewhere."""


def fingerprints(home: Mapping[str, Any]) -> dict[str, str]:
    """Hash the functions of a notebook, and the methods of its classes, for processes that do not have their source."""
    names = [f":{name}" for name in home]
    for name, value in home.items():
        if inspect.isclass(value) and value.__module__ == home["__name__"]:
            names += [f":{name}.{part}" for part in vars(value)]
    return {name: one for name in names if (one := fingerprint(name, home)) is not None}


def elsewhere(known: Mapping[str, str], function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process that knows the notebook's functions by these hashes."""
    token = _known.set(known)
    try:
        return function(*arguments)
    finally:
        _known.reset(token)


@cache
def _statements(source: str) -> str:
    """Return the code of a function: comments, layout, docstrings and decorators left out."""
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            node.decorator_list = []
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def _names(code: CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _plain(value: Any) -> bool:
    if isinstance(value, dict):  # no other mapping: a WeakKeyDictionary fills up as functions remember in it
        return bool(value) and all(map(_plain, value.values()))  # an empty one is filled later: a registry, a memo
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return value is None or isinstance(value, bool | int | float | str)
