"""A submission's program: a Python file as it is, or the code cells of a notebook.

What belongs to a notebook's session has no effect here, in a notebook or a file that was exported from one: `display`,
and magics but those that run a cell's code. As in a session, a cell that fails does not stop those after it.
"""

import __future__

import ast
import asyncio
import inspect
import re
import warnings
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fedleak.errors import extra

RUN_THEIR_CODE = ("time", "capture", "prun")
"""Magics whose code is part of the program."""
_IMPORT = re.compile(rb"^from IPython(?:\.\w+)* import get_ipython[ \t\r]*$", re.M)
"""Exported notebooks have this line, and it would replace our `get_ipython`."""
_EXPORTED_CELL = re.compile(rb"^# In\[[ \d]*\]:", re.M)


class Program(NamedTuple):
    """Source text, the lines at which a notebook's code cells begin, and whether its file is a notebook."""

    text: bytes
    begins: tuple[int, ...] = ()
    is_notebook: bool = False

    def place(self, line: int | None) -> tuple[int, int | None]:
        """Return a line's cell, from 1 on, and its line there; 0 and the line in a file."""
        if line is None or not self.is_notebook:
            return 0, line
        cell = bisect_right(self.begins, line)
        return cell, line - self.begins[cell - 1] + 1

    def run(self, path: Path, namespace: dict[str, Any]) -> Exception | SystemExit | None:
        """Run a file, whose error is raised, or a notebook's cells, of which the first error is returned."""
        if not self.begins:
            exec(compile(self.text, str(path), "exec"), namespace)
            return None
        lines, flags, failure = self.text.split(b"\n"), ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, None
        for first, end in zip(self.begins, (*self.begins[1:], len(lines) + 1), strict=True):
            cell = b"\n" * (first - 1) + b"\n".join(lines[first - 1 : end - 1])
            try:
                code = compile(cell, str(path), "exec", flags)
                flags |= code.co_flags & __future__.annotations.compiler_flag
                if inspect.iscoroutine(waiting := eval(code, namespace)):
                    asyncio.run(waiting)
            except (Exception, SystemExit) as error:
                failure = failure or error
        return failure


def cells(data: bytes) -> list[str]:
    """Return a notebook's code cells; raise `ValueError` if nbformat cannot read it."""
    with extra("coursework"):
        import nbformat
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old formats, cells without names
            notebook = nbformat.reads(data.decode("utf-8"), as_version=4)
        return [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    except Exception as error:
        raise ValueError("this file is not a notebook that can be read") from error


def python(cell: str) -> str:
    """Return a cell as Python: IPython's magics and shell commands as the calls that nbconvert writes."""
    if not re.search(r"^\s*[%!?]|[!%]\w|\?\s*$", cell, re.M):
        return cell  # IPython takes a second to import
    with extra("coursework"):
        from IPython.core.inputtransformer2 import TransformerManager
    return TransformerManager().transform_cell(cell)


def program(name: str, data: bytes) -> Program:
    """Return the program of a file, or of a notebook by its suffix; raise `ValueError` if this cannot be read."""
    if not name.endswith(".ipynb"):
        exported = [data.count(b"\n", 0, cell.start()) + 1 for cell in _EXPORTED_CELL.finditer(data)]
        return Program(_IMPORT.sub(b"pass", data), (1, *exported) if exported else ())
    begins: list[int] = []
    lines: list[str] = []
    for cell in cells(data):
        begins.append(len(lines) + 1)
        lines += python(cell).split("\n")
    return Program(_IMPORT.sub(b"pass", "\n".join(lines).encode()), tuple(begins), True)


def session(namespace: dict[str, Any]) -> dict[str, Callable[..., Any]]:
    """Return what a notebook's session has beside builtins, for a program that runs in this namespace."""
    shell = _Shell(namespace)
    return {"get_ipython": lambda: shell, "display": lambda *objects, **options: None}


class _Nothing:
    """An object of which every attribute, and every call, is nothing, too."""

    def __getattr__(self, name: str) -> "_Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()

    def __call__(self, *arguments: Any, **options: Any) -> "_Nothing":
        return _Nothing()

    def __bool__(self) -> bool:
        return False

    def __getitem__(self, key: Any) -> "_Nothing":
        return _Nothing()

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Any:
        return iter(())


class _Shell(_Nothing):
    """The shell of a notebook's session, without effects."""

    def __init__(self, namespace: dict[str, Any]):
        self.namespace = namespace

    def run_cell_magic(self, name: str, line: str, cell: str) -> None:
        """Run the code of a cell such as ``%%time``; ``%%capture out`` binds `out` to nothing."""
        if name == "capture" and (words := [w for w in line.split() if w.isidentifier()]):
            self.namespace[words[0]] = _Nothing()
        if name in RUN_THEIR_CODE:
            exec(python(cell), self.namespace)

    def run_line_magic(self, name: str, line: str, *_: Any) -> None:
        """Run the code of a line such as ``%time x = f()``."""
        self.run_cell_magic(name, "", line)
