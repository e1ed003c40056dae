"""Below each figure of a lecture, links to its recorded rows: the cell's metadata name the experiments, as ``rows``."""

from typing import Any

from fedleak_book.experiments import records, running

Cell = dict[str, Any]


def with_rows(chapter: str, cells: list[Cell]) -> list[Cell]:
    """Return a notebook's cells with links to the recorded rows in the legends of their figures."""
    return [linked(chapter, cell) if "rows" in cell["metadata"] else cell for cell in cells]


def linked(chapter: str, cell: Cell) -> Cell:
    """Return a figure's cell with a legend that links to the records of the experiments in its ``rows``."""
    experiments, metadata = running.declared(chapter), cell["metadata"]["mystnb"]
    names = [name for each in cell["metadata"]["rows"] for name in records.records_of(chapter, experiments[each])]
    links = [f"{{download}}`{name}.csv </data/results/{chapter}/{name}.csv>`" for name in names]
    figure = {**metadata["figure"], "caption": f"{metadata['figure']['caption']}\n\nRows: {', '.join(links)}"}
    return {**cell, "metadata": {**cell["metadata"], "mystnb": {**metadata, "figure": figure}}}
