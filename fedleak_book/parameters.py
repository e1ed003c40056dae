"""The parameters of notebooks and their one check, which imports nothing that takes long."""

import ast
import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedleak_book import paths


class _Kind(NamedTuple):
    fits: Callable[[Any], bool]
    says: str


def _whole(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool) and 0 <= value < 2**63


MOST_TRIALS = 10**6
_TEXT = _Kind(lambda value: value is None or isinstance(value, str), "text")
_YES_OR_NO = _Kind(lambda value: isinstance(value, bool), "True or False")
KINDS = {
    "profile": _Kind(lambda value: value in ("quick", "paper"), "'quick' or 'paper'"),
    "device": _Kind(
        lambda value: bool(re.fullmatch(r"auto|cpu|cuda(:\d+)?", str(value))), "'auto', 'cpu', 'cuda' or 'cuda:1'"
    ),
    "seed": _Kind(_whole, "a whole number from 0 on"),
    "trials": _Kind(
        lambda value: _whole(value) and value <= MOST_TRIALS,
        f"a whole number from 0 (each experiment's own number) to {MOST_TRIALS:,}",
    ),
    "data_root": _TEXT,
    "record": _YES_OR_NO,
    "scheduler": _TEXT,
}
"""Of the parameters that every notebook has, and hands to `fedleak_book.experiments.Results`."""
_BY_DEFAULT = {
    bool: _YES_OR_NO,
    int: _Kind(lambda value: hasattr(value, "__index__") and not isinstance(value, bool), "a whole number"),
    float: _Kind(lambda value: isinstance(value, int | float) and not isinstance(value, bool), "a number"),
    str: _TEXT,
}
"""Of a notebook's further parameters, by the type of their default."""


def check(values: Mapping[str, Any], defaults: Mapping[str, Any] = {}) -> None:
    """Raise `ValueError` for a value that is none of its parameter's: a word for a number, a number for yes or no."""
    for name, value in values.items():
        kind = KINDS.get(name) or _BY_DEFAULT.get(type(defaults.get(name)))
        if kind and not kind.fits(value):
            raise ValueError(f"{name} is {kind.says}, not {value!r}")


def check_call(notebook: str, values: Mapping[str, Any]) -> None:
    """Raise `ValueError` for a notebook or a parameter that there is not, or a value that `check` refuses."""
    if notebook not in (available := paths.notebooks()):
        raise ValueError(f"no notebook {notebook!r}; there are: {', '.join(available) or 'none'}")
    defaults = declared(paths.source_notebook(notebook))
    if unknown := sorted(set(values) - set(defaults)):
        close = dict.fromkeys(near for key in unknown for near in difflib.get_close_matches(key, defaults, 3))
        hint = f": did you mean {' or '.join(map(repr, close))}?" if close else ""
        listed = ", ".join(f"{key} ({default!r})" for key, default in defaults.items())
        raise ValueError(
            f"{notebook} has no parameter {', '.join(map(repr, unknown))}{hint}; it has: {listed or 'none'}"
        )
    check(values, defaults)


def declared(notebook: Path) -> dict[str, Any]:
    """Return the defaults of a notebook's parameters: the assignments in the cell that is tagged for papermill."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if "parameters" in cell["metadata"].get("tags", []):
            return dict(_constants(ast.parse("".join(cell["source"]))))
    return {}


def _constants(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(ast.Name(id=name), value=value):
                try:
                    yield name, ast.literal_eval(value) if value else None
                except ValueError:  # computed: it has no kind
                    yield name, None
