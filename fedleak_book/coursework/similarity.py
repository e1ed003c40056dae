"""Compare the texts of submissions: similarity, and imports that an assignment does not need."""

import ast
import contextlib
import itertools
import re
from collections.abc import Mapping

from fedleak_book.coursework import notebook

FORBIDDEN = ("fedleak.attacks", "fedleak_book.coursework.checks", "fedleak.audit")
UNNEEDED = (
    *("builtins", "ctypes", "fedleak.federated.defences", "gc", "importlib", "inspect", "multiprocessing", "os"),
    *("socket", "subprocess", "sys"),
)
"""Packages that solve assignments, which the sandbox hides, and modules that no assignment needs."""
LENGTH = 12
"""Words of the syntax tree that make one piece."""


def code(name: str, data: bytes) -> bytes:
    """Return a file as it is, and of a notebook the code cells without the lines that are no Python, to be compared."""
    if not name.endswith(".ipynb"):
        return data
    with contextlib.suppress(ValueError):
        return re.sub(r"^([ \t]*)[%!?].*$", r"\1pass", "\n".join(notebook.cells(data)), flags=re.M).encode()
    return b""


def _tree(source: bytes) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def imports(source: bytes) -> list[str]:
    """Return the modules of these lists that a file names, in imports or as text; sorted."""
    names: set[str] = set()
    for node in ast.walk(_tree(source)):
        match node:
            case ast.Import():
                names |= {alias.name for alias in node.names}
            case ast.ImportFrom():
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
            case ast.Constant(value=str(text)):
                names |= {name for name in FORBIDDEN if text.startswith(name)}
            case ast.Name(id="__import__"):
                names.add("importlib")
    watched = (*FORBIDDEN, *UNNEEDED)
    return sorted(module for module in watched if any(f"{name}.".startswith(f"{module}.") for name in names))


def pieces(source: bytes) -> frozenset[tuple[str, ...]]:
    """Return the pieces of a file's syntax tree, without docstrings and the names of its own variables."""
    tree = _tree(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = "_"
        elif isinstance(node, ast.arg):
            node.arg = "_"
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    words = re.findall(r"\w+", ast.dump(tree))
    return frozenset(zip(*(words[start:] for start in range(LENGTH)), strict=False))


def nearest(sources: Mapping[str, bytes], given: bytes = b"") -> dict[str, tuple[float, str]]:
    """Return for each file the share of pieces in common with the most similar file, and that file's author.

    The share is Jaccard's, of the pieces that are not in `given`.
    """
    common = pieces(given)
    sets = {name: pieces(source) - common for name, source in sources.items()}
    shares = {name: [(0.0, "")] for name in sets}
    for (name, mine), (whose, other) in itertools.permutations(sets.items(), 2):
        shares[name].append((len(mine & other) / max(len(mine | other), 1), whose))
    return {name: max(pairs) for name, pairs in shares.items()}
