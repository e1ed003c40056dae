"""The project's modules that a module imports, directly or through others: found in the source, nothing is run."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from fedleak_book import paths

PACKAGES = ("fedleak", "fedleak_book", "notebooks")


def imported_files(modules: Iterable[str]) -> list[Path]:
    """Return the files of these modules and of all that they import of the project, sorted.

    A name that a package only passes on counts as imported from the module that defines it. Modules that are imported
    by a name made up at run time (``import_module(f"fedleak.attacks.{room}")``) are all those with its beginning.
    """
    files: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in files and (file := file_of(name)) is not None:
            files[name] = file
            waiting += _imports(name, file)
    return sorted(set(files.values()))


def file_of(module: str) -> Path | None:
    """Return the file of a module of the project; None for any other module."""
    base = paths.root().joinpath(*module.split("."))
    candidates = (base.with_suffix(".py"), base / "__init__.py") if module.split(".")[0] in PACKAGES else ()
    return next((file for file in candidates if file.is_file()), None)


def code_of(module: str) -> str:
    """Return the code of a module of the project without imports and docstrings; "" where there is no such module."""
    if (file := file_of(module)) is None:
        return ""
    tree = ast.parse(file.read_bytes())
    tree.body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _imports(module: str, file: Path) -> Iterator[str]:
    """Yield the modules that a module imports, wherever in it, some of them several times."""
    for node in _importing(file, file.stat().st_mtime_ns):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (_definer(node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Call):
            yield from _made_up(module, node.args[0])


def _definer(module: str, name: str) -> str:
    """Return the module behind ``from module import name``: the name itself, or where it is defined."""
    if file_of(f"{module}.{name}") is not None:
        return f"{module}.{name}"
    file = file_of(module)
    if file is not None and file.name == "__init__.py":
        for node in _importing(file, file.stat().st_mtime_ns):
            if isinstance(node, ast.ImportFrom) and any((a.asname or a.name) == name for a in node.names):
                original = next(a.name for a in node.names if (a.asname or a.name) == name)
                return _definer(node.module or "", original)
    return module


def _made_up(module: str, name: ast.expr) -> Iterator[str]:
    """Yield the modules of the package whose names begin as a formatted string does: with its own name, or a text."""
    first = name.values[0] if isinstance(name, ast.JoinedStr) else None
    prefix = f"{module}." if isinstance(first, ast.FormattedValue) else str(getattr(first, "value", ""))
    if prefix.startswith("fedleak."):
        folder = paths.root().joinpath(*prefix.rstrip(".").split("."))
        for file in folder.rglob("*.py"):
            parts = file.relative_to(paths.root()).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _importing(file: Path, _written: int) -> list[ast.Import | ast.ImportFrom | ast.Call]:
    """Return the statements and calls of a file that import."""
    nodes = ast.walk(ast.parse(file.read_bytes()))
    return [
        node
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module")
    ]
