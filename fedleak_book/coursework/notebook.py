"""A submission's program: a Python file as it is, or in a session of IPython the cells of a notebook, or of its export.

As in a notebook, a cell that fails does not stop those after it.
"""

import contextlib
import re
import traceback
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fedleak.errors import extra

_EXPORTED = re.compile(r"^# In\[[ \d]*\]:|get_ipython", re.M)
_CELL = re.compile(r"^(?=# In\[[ \d]*\]:)", re.M)
_IMPORT = re.compile(r"^from IPython(?:\.\w+)* import get_ipython[ \t\r]*$", re.M)
"""Exported notebooks have this line, and it would replace our session's `get_ipython`."""


class Unreadable(ValueError):
    """A file that should be a notebook and is none."""


def run(path: Path, data: bytes, module: Any) -> BaseException | None:
    """Run a file, whose error is raised, or a session's cells, of which the first error is returned.

    Raises `Unreadable` if a notebook cannot be read. The working directory is afterwards what it was.
    """
    text = data.decode("utf-8", "replace")
    if path.suffix != ".ipynb" and not _EXPORTED.search(text):
        exec(compile(data, str(path), "exec"), vars(module))
        return None
    with contextlib.chdir("."):  # `%cd` moves this process
        return _run_cells(path, _notebook(data) if path.suffix == ".ipynb" else _exported(text), module)


def _run_cells(path: Path, cells: Iterable[tuple[int, int, str]], module: Any) -> BaseException | None:
    shell, failure = _session(module), None
    for cell, line, source in cells:
        blank = re.match(r"(?:[ \t]*\n)*", source)[0].count("\n")  # type: ignore[index]  # IPython takes them off
        name = f"{path}:{cell}:{line + blank}"
        shell.compile.get_code_name = lambda *_, name=name: name
        result = shell.run_cell(_IMPORT.sub("pass", source), silent=True)
        error = result.error_before_exec or result.error_in_exec
        if error is not None and not isinstance(error, Exception | SystemExit):
            raise error  # an interrupt, which is not the cell's
        failure = failure or error
    return failure


def place_of(error: BaseException, path: Path) -> tuple[int, int | None]:
    """Return the cell, from 1 on, and the line where a program raised an error: cell 0 in a file, None elsewhere."""
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        frames.append((error.filename or "", error.lineno or 0))
    for name, line in reversed(frames):
        if place := re.fullmatch(rf"{re.escape(str(path))}(?::(\d+):(\d+))?", name):
            return int(place[1] or 0), line + int(place[2] or 0)
    return 0, None


def _notebook(data: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield the number of each cell of code, how many lines stand before it, and its source."""
    with extra("coursework"):
        import nbformat
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old formats, cells without names
            notebook = nbformat.reads(data.decode("utf-8"), as_version=4)
        sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    except Exception as error:
        raise Unreadable("this file is not a notebook that can be read") from error
    yield from ((number, 0, source) for number, source in enumerate(sources, 1))


def _exported(text: str) -> Iterator[tuple[int, int, str]]:
    lines = 0
    for source in _CELL.split(text):
        yield 0, lines, source
        lines += source.count("\n")


def _session(module: Any) -> Any:
    """Return a session in a module: it prints no errors, opens no window and keeps no history."""
    with extra("coursework"):
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config
    shell = InteractiveShell(user_module=module, user_ns=vars(module), config=Config(HistoryManager={"enabled": False}))
    shell.showtraceback = shell.showsyntaxerror = shell.enable_gui = lambda *_, **__: None
    return shell
