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
    variables, sources = dict[str, Any](), dict[str, list[str]]()
    return [linked(chapter, cell, drawn_from(cell, variables, sources)) for cell in cells]


def linked(chapter: str, cell: Cell, names: Iterable[str]) -> Cell:
    """Return a figure's cell with a legend that links to records; any other cell as it is."""
    metadata = cell["metadata"].get("mystnb", {})
    names = [name for name in names if (paths.recorded(chapter) / f"{name}.csv").is_file()]
    links = [f"{{download}}`{name}.csv </data/results/{chapter}/{name}.csv>`" for name in names]
    if not links or "figure" not in metadata:
        return cell
    figure = {**metadata["figure"], "caption": f"{metadata['figure']['caption']}\n\nRows: {', '.join(links)}"}
    return {**cell, "metadata": {**cell["metadata"], "mystnb": {**metadata, "figure": figure}}}


def drawn_from(cell: Cell, variables: dict[str, Any], sources: dict[str, list[str]]) -> list[str]:
    """Return the experiments whose rows the last statement of a cell shows.

    `variables` gets what the cell imports, `sources` the experiments behind the variables that it assigns.
    """
    experiments = list[str]()
    if cell["cell_type"] != "code":
        return experiments
    for node in ast.parse("".join(cell["source"])).body:
        code = compile(ast.Module([node], []), "cell", "exec")
        if isinstance(node, ast.Import | ast.ImportFrom):
            exec(code, variables)
        experiments = [source for name in names(code) for source in sources.get(name, ())]
        if "run" in names(code):  # else a cell computes now what it shows
            experiments += read(code, variables, set())
        experiments = list(dict.fromkeys(experiments))
        for target in node.targets if isinstance(node, ast.Assign) else ():
            sources |= {node.id: experiments for node in ast.walk(target) if isinstance(node, ast.Name)}
    return experiments


def names(code: CodeType) -> list[str]:
    """Return the names that code uses, with those of the functions in it."""
    return [
        *code.co_names,
        *(name for constant in code.co_consts if isinstance(constant, CodeType) for name in names(constant)),
    ]


def read(code: CodeType, variables: Mapping[str, Any], visited: set[FunctionType]) -> Iterator[str]:
    """Yield the experiments that code names, or the chapters' functions that it calls."""
    used = names(code)
    values = [variables[name] for name in used if name in variables]
    modules = [
        experiment
        for experiment in values
        if isinstance(experiment, ModuleType) and experiment.__name__.startswith("notebooks.")
    ]
    for value in values + [getattr(module, name, None) for module in modules for name in used]:
        several = value if isinstance(value, tuple | list) else [value]
        for experiment in several:
            if isinstance(experiment, Experiment):
                yield from (experiment.name, *experiment.recorded_as)
        function = inspect.unwrap(value) if callable(value) else None
        if (
            isinstance(function, FunctionType)
            and function.__module__.startswith("notebooks.")
            and function not in visited
        ):
            visited.add(function)
            yield from read(function.__code__, function.__globals__, visited)
