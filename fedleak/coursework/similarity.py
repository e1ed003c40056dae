"""What the text of submissions tells a teacher: how alike they are, and imports that an assignment does not need."""

import ast
import re
from collections.abc import Mapping

FORBIDDEN = ("fedleak.attacks", "fedleak.coursework.checks", "fedleak.audit")
SUSPICIOUS = (
    "builtins",
    "ctypes",
    "gc",
    "importlib",
    "inspect",
    "multiprocessing",
    "os",
    "socket",
    "subprocess",
    "sys",
)
"""Modules that solve an assignment, and modules that no assignment needs."""
LENGTH = 12
"""Words of the syntax tree that make one piece."""


def _tree(source: bytes) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def imports(source: bytes) -> list[str]:
    """Return the forbidden and suspicious modules that a file names, in imports or as text; sorted."""
    found = set()
    for node in ast.walk(_tree(source) or ast.Module([], [])):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [name for name in FORBIDDEN if node.value.startswith(name)]
        else:
            names = ["importlib"] if isinstance(node, ast.Name) and node.id == "__import__" else []
        for watched in (*FORBIDDEN, *SUSPICIOUS):
            if any(f"{name}.".startswith(f"{watched}.") for name in names):
                found.add(watched)
    return sorted(found)


def pieces(source: bytes) -> frozenset[tuple[str, ...]]:
    """Return the pieces of a file's syntax tree, without docstrings and the names of its own variables."""
    tree = _tree(source) or ast.Module([], [])
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
    """Return for each file the share of pieces that it has in common with the file most like it, and whose that is.

    The share is Jaccard's, of the pieces that are not in `given`.
    """
    common = pieces(given)
    sets = {name: pieces(source) - common for name, source in sources.items()}
    found = {}
    for name, own in sets.items():
        others = [(other, whose) for whose, other in sets.items() if whose != name]
        shares = ((len(own & other) / max(len(own | other), 1), whose) for other, whose in others)
        found[name] = max(shares, default=(0.0, ""))
    return found
