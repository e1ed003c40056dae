"""Below each figure of a lecture, links to its recorded rows: the cell's metadata name the experiments, as ``rows``."""

from typing import Any

Cell = dict[str, Any]


def with_rows(chapter: str, cells: list[Cell]) -> list[Cell]:
    """Return a notebook's cells with links to the recorded rows in the legends of their figures."""
    return [linked(chapter, cell) if "rows" in cell["metadata"] else cell for cell in cells]


def linked(chapter: str, cell: Cell) -> Cell:
    """Return a figure's cell with a legend that links to the records of the experiments in its ``rows``."""
    from fedleak_book.experiments import records  # it takes seconds, and few pages change at a time

    metadata = cell["metadata"]["mystnb"]
    names = [part for name in cell["metadata"]["rows"] for part in records.parts(chapter, name)]
    links = [f"{{download}}`{name}.csv </data/results/{chapter}/{name}.csv>`" for name in names]
    figure = {**metadata["figure"], "caption": f"{metadata['figure']['caption']}\n\nRows: {', '.join(links)}"}
    return {**cell, "metadata": {**cell["metadata"], "mystnb": {**metadata, "figure": figure}}}
