"""Fingerprints of the statistics by which claims are measured, from their source without formatting and comments."""

import ast
import functools
import hashlib
import inspect
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from fedleak_book.experiments import Experiment

PLAIN = (str, int, float, bool, type(None), list, tuple, dict, set, frozenset)


def fingerprint(claim):
    """Return twelve hexadecimal digits that change with a claim's statistic, its columns or the rows that it keeps."""
    parts = [claim.statistic, claim.value, claim.wide, claim.filters, claim.rows, claim.kind, claim.reading]
    return hashlib.sha256("\n".join(map(describe, parts)).encode()).hexdigest()[:12]


def describe(value, outer=()):
    """Return a text that represents a value: a function's source, with what it closes over and calls in its chapter."""
    if isinstance(value, functools.partial):
        return f"partial({describe([value.func, value.args, value.keywords], outer)})"
    if isinstance(value, FunctionType):
        if value in outer:
            return value.__qualname__
        return _describe_function(value, (*outer, value))
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {describe(item, outer)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(describe(item, outer) for item in value)}]"
    if isinstance(value, Experiment):
        return value.name
    return repr(value) if isinstance(value, PLAIN) else getattr(value, "__name__", type(value).__name__)


def _describe_function(function, outer):
    code, cells = function.__code__, function.__closure__ or ()
    used = dict(zip(code.co_freevars, (cell.cell_contents for cell in cells), strict=True))
    used |= {"defaults": [function.__defaults__ or (), function.__kwdefaults__ or {}]}
    if not (function.__module__ or "").startswith("notebooks"):
        return f"{function.__qualname__} with {describe(used, outer)}"
    used |= {name: function.__globals__[name] for name in sorted(_names(code)) if name in function.__globals__}
    captured = {name: value for name, value in used.items() if not isinstance(value, ModuleType)}
    return f"{_source(function)} with {describe(captured, outer)}"


def _names(code):
    nested = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(_names, nested))


@functools.cache
def _functions(path):
    kinds = (ast.FunctionDef, ast.Lambda)
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def _source(function):
    """Return the normalised source of the smallest function around the positions of its instructions."""
    code = function.__code__
    positions = [(p[0], p[2]) for p in list(code.co_positions())[1:] if None not in p and p[3]]
    first, last = min(positions), max(positions)
    around = [
        node
        for node in _functions(inspect.getsourcefile(function))
        if (node.lineno, node.col_offset) <= first and last <= (node.end_lineno, node.end_col_offset)
        if isinstance(node, ast.Lambda) == (function.__name__ == "<lambda>")
    ]
    smallest = max(around, key=lambda node: (node.lineno, node.col_offset))
    if isinstance(smallest, ast.Lambda):
        return ast.unparse(smallest)
    has_docstring = ast.get_docstring(smallest) is not None
    return "\n".join([ast.unparse(smallest.args), *map(ast.unparse, smallest.body[has_docstring:])])
