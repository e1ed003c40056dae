"""Below each figure of a lecture, the recorded rows that it is drawn from.

They are those of the experiments that the cell's last line names, or the functions of the chapter that it calls.
"""

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from fedleak_book import paths
from fedleak_book.experiments import Experiment

Cell = dict[str, Any]


def with_rows(chapter: str, cells: list[Cell]) -> list[Cell]:
    """Return a notebook's cells with links to the recorded rows in the legends of their figures."""
    known, made = dict[str, Any](), dict[str, list[str]]()
    return [linked(chapter, cell, drawn_from(cell, known, made)) for cell in cells]


def linked(chapter: str, cell: Cell, names: Iterable[str]) -> Cell:
    """Return a figure's cell with a legend that links to records; any other cell as it is."""
    shown = cell["metadata"].get("mystnb", {})
    names = [name for name in names if (paths.recorded(chapter) / f"{name}.csv").is_file()]
    links = [f"{{download}}`{name}.csv </data/results/{chapter}/{name}.csv>`" for name in names]
    if not links or "figure" not in shown:
        return cell
    figure = {**shown["figure"], "caption": f"{shown['figure']['caption']}\n\nRows: {', '.join(links)}"}
    return {**cell, "metadata": {**cell["metadata"], "mystnb": {**shown, "figure": figure}}}


def drawn_from(cell: Cell, known: dict[str, Any], made: dict[str, list[str]]) -> list[str]:
    """Return the experiments whose rows the last statement of a cell shows.

    `known` gets what the cell imports, and `made` the experiments behind the variables that it assigns.
    """
    found = list[str]()
    if cell["cell_type"] != "code":
        return found
    for node in ast.parse("".join(cell["source"])).body:
        code = compile(ast.Module([node], []), "cell", "exec")
        if isinstance(node, ast.Import | ast.ImportFrom):
            exec(code, known)
        found = [one for name in names(code) for one in made.get(name, ())]
        if "run" in names(code):  # else a cell computes now what it shows
            found += read(code, known, set())
        found = list(dict.fromkeys(found))
        for target in node.targets if isinstance(node, ast.Assign) else ():
            made |= {one.id: found for one in ast.walk(target) if isinstance(one, ast.Name)}
    return found


def names(code: CodeType) -> list[str]:
    """Return the names that code uses, with those of the functions in it."""
    return [*code.co_names, *(name for one in code.co_consts if isinstance(one, CodeType) for name in names(one))]


def read(code: CodeType, known: Mapping[str, Any], seen: set[FunctionType]) -> Iterator[str]:
    """Yield the experiments that code names, or the chapters' functions that it calls."""
    used = names(code)
    values = [known[name] for name in used if name in known]
    modules = [one for one in values if isinstance(one, ModuleType) and one.__name__.startswith("notebooks.")]
    for value in values + [getattr(module, name, None) for module in modules for name in used]:
        several = value if isinstance(value, tuple | list) else [value]
        yield from (one.name for one in several if isinstance(one, Experiment))
        function = inspect.unwrap(value) if callable(value) else None
        if isinstance(function, FunctionType) and function.__module__.startswith("notebooks.") and function not in seen:
            seen.add(function)
            yield from read(function.__code__, function.__globals__, seen)
