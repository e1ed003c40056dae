"""Show the executed copy of each notebook: the committed ones have no outputs.

`fedleak book` has papermill leave the copies under `_build/executed/`. A copy that is missing, or that was made
from other code than the committed cells', is a warning, and the book is built with warnings as errors.
"""

import json
from pathlib import Path
from typing import Any

from drawn import with_rows
from sphinx.application import Sphinx
from sphinx.util import logging

from fedleak_book import paths

logger = logging.getLogger(__name__)


def executed_copy(app: Sphinx, docname: str) -> Path:
    """Return where papermill leaves the executed copy of a document."""
    return Path(app.srcdir) / "_build" / "executed" / f"{docname}.ipynb"


def tags(cell: dict[str, Any]) -> list[str]:
    """Return a cell's tags."""
    return cell["metadata"].get("tags", [])


def own_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells but the one that papermill injects."""
    return [cell for cell in notebook["cells"] if "injected-parameters" not in tags(cell)]


def code_of(cells: list[dict[str, Any]]) -> list[str]:
    """Return the sources of the cells that are executed."""
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def with_outputs(cells: list[dict[str, Any]], executed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return cells as they are now, their text and captions too, with the outputs of the same code's execution."""
    ran = iter([{key: cell[key] for key in ("outputs", "execution_count")} for cell in executed if "outputs" in cell])
    return [{**cell, **next(ran, {"outputs": []})} if cell["cell_type"] == "code" else cell for cell in cells]


def swap_in(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give a notebook the outputs of its executed copy."""
    if not app.env.doc2path(docname).endswith(".ipynb"):
        return
    copy = executed_copy(app, docname)
    app.env.note_dependency(str(copy))
    if not copy.is_file():
        logger.warning("%s has not been executed; run `fedleak book`", docname, type="fedleak")
        return
    executed, notebook = json.loads(copy.read_text(encoding="utf-8")), json.loads(source[0])
    if code_of(own_cells(executed)) != code_of(notebook["cells"]):
        logger.warning("%s has changed since it was executed; run `fedleak book`", docname, type="fedleak")
        return
    cells = with_outputs(notebook["cells"], own_cells(executed))
    shown = with_rows(paths.chapter_of(Path(docname).name), last_folded(cells))
    source[0] = json.dumps({**executed, "cells": shown})


def last_folded(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return cells in a page's order: parameters and set-up, which run first, folded at the end."""
    first = [cell for cell in cells if "parameters" in tags(cell) or cell.get("id") == "setup"]
    folded = [
        {**cell, "metadata": {**cell["metadata"], "tags": [*dict.fromkeys([*tags(cell), "hide-input"])]}}
        for cell in first
    ]
    return [*(cell for cell in cells if cell not in first), *folded]


NEEDS = """\
# A chapter runs in a clone of the repository, which has `fedleak`, `fedleak_book` and `notebooks`.
try:
    import fedleak, fedleak_book, notebooks
except ImportError as error:
    raise ImportError(
        "this file alone is not enough: {clone}, run `make lab` there (Python 3.11 or later, no GPU, no data set), "
        "and open notebooks/{name}.ipynb"
    ) from error
"""
"""The first cell of a chapter that is downloaded."""


def first_cell(name: str, repository: str) -> dict[str, Any]:
    """Return the cell that says what a downloaded chapter needs and how to get it, where it is missing."""
    clone = f"run `git clone {repository}`" if repository else "clone the repository that this book comes from"
    source = NEEDS.format(clone=clone, name=name)
    cell = {"cell_type": "code", "execution_count": None, "id": "needs", "outputs": []}
    return {**cell, "metadata": {"tags": ["hide-input"]}, "source": source}


def readers_copy(notebook: dict[str, Any], name: str, repository: str = "") -> str:
    """Return a notebook's JSON without stderr: progress bars, and warnings with paths of this machine.

    Its first cell of code says what the chapter needs.
    """
    title, *rest = notebook["cells"]
    notebook["cells"] = [title, first_cell(name, repository), *rest]
    for cell in notebook["cells"]:
        if "outputs" in cell:
            cell["outputs"] = [output for output in cell["outputs"] if output.get("name") != "stderr"]
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def offer_for_download(app: Sphinx, exception: Exception | None) -> None:
    """Put the executed copies behind the download buttons."""
    if exception or app.builder.format != "html":
        return
    for docname in app.env.found_docs:
        offered = Path(app.outdir) / "_sources" / f"{docname}.ipynb"
        if offered.is_file() and (copy := executed_copy(app, docname)).is_file():
            executed = json.loads(copy.read_text(encoding="utf-8"))
            notebook = json.loads((Path(app.srcdir) / f"{docname}.ipynb").read_text(encoding="utf-8"))
            cells = with_outputs(notebook["cells"], own_cells(executed))
            repository = app.config.html_theme_options.get("repository_url", "")
            text = readers_copy({**executed, "cells": cells}, Path(docname).name, repository)
            offered.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("source-read", swap_in)
    app.connect("build-finished", offer_for_download)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
