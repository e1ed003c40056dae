"""Below a figure stand the records that it is drawn from, and below one of this run none."""

import json
import re
import sys

import pytest

from fedleak import paths
from fedleak.experiments import notebooks

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
import drawn


def figures(chapter):
    """Each figure's caption, and the files below it."""
    cells = json.loads(paths.source_notebook(chapter).read_text(encoding="utf-8"))["cells"]
    for cell in drawn.with_rows(chapter, cells):
        if figure := cell["metadata"].get("mystnb", {}).get("figure"):
            caption, _, rows = figure["caption"].partition("\n\nRows: ")
            yield figure["name"], caption, re.findall(r"</(.+?)>", rows)


FOUND = {name: (chapter, caption, rows) for chapter in notebooks.chapters() for name, caption, rows in figures(chapter)}


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("fig-llg-4", ["dlg", "fig4"]),
        ("fig-gdbr-forms", ["fig4", "fig4_normalised"]),  # through a variable of another cell
        ("fig-arena-balance", ["aggregation", "defences", "utility"]),  # through functions, one of them cached
        ("fig-rlu-3", []),  # names an experiment, and computes its figure now
        ("fig-arena-one", []),
    ],
)
def test_a_figure_links_to_the_records_that_its_functions_read(name, records):
    chapter, _, rows = FOUND[name]
    assert sorted(rows) == [f"data/results/{chapter}/{record}.csv" for record in records]


def test_every_figure_that_is_said_to_be_recorded_has_rows():
    told = [name for name, (_, caption, _) in FOUND.items() if "recorded" in caption]
    assert len(told) > 5
    assert [name for name in told if not FOUND[name][2]] == []
    assert [name for name, (_, caption, rows) in FOUND.items() if "in this run" in caption and rows] == []
