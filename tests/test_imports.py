"""No circle of imports in the package: a module can be read without those that are built on it."""

import ast
from graphlib import TopologicalSorter

from fedleak_book import paths


def graph(folder):
    """Return which modules each module imports, anywhere in it: inside functions and for type checkers too.

    That a module's package is imported with it is left out: a package's ``__init__`` names what it offers.
    """
    files = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found = {}
    for module, path in files.items():
        names = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                each = {f"{node.module}.{alias.name}" for alias in node.names}
                names |= {name if name in files else node.module for name in each}
        found[module] = {name for name in names if name in files and name != module}
    return found


def test_the_package_has_no_circle_of_imports():
    edges = graph(paths.root() / "fedleak")
    assert "fedleak.audit.guard" in edges["fedleak.commands.audit"], "in a function"
    list(TopologicalSorter(edges).static_order())  # a CycleError names the circle


def test_only_the_command_line_mentions_the_book():
    names = {path: path.read_text(encoding="utf-8") for path in (paths.root() / "fedleak").rglob("*.py")}
    assert [path.name for path, text in names.items() if "fedleak_book" in text] == ["cli.py"]
