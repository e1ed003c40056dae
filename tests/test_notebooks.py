"""The chapters run through papermill, and find what their attacks must find."""

import re

import nbformat
import pytest

from fedleak_book import paths
from fedleak_book.experiments import notebooks

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def executed():
    """All notebooks, executed side by side as the book has them: the pages' tests build it from the same copies."""
    notebooks.execute_all([name for name in notebooks.available() if notebooks.is_stale(name, notebooks.QUICK)])


def read(name):
    return nbformat.read(paths.executed_notebook(name), as_version=4)


@pytest.mark.parametrize("name", notebooks.available())
def test_every_figure_has_an_image(name):
    figures = [cell for cell in read(name).cells if "figure" in cell.metadata.get("mystnb", {})]
    assert figures
    for cell in figures:
        assert any("image/svg+xml" in output.get("data", {}) for output in cell.outputs), cell.id


def test_the_arenas_advice_is_borne_out_by_its_data():
    (advice,) = [cell for cell in read("arena").cells if cell.get("id") == "advice"]
    said = "".join(output.get("text", "") for output in advice.outputs)
    holding, written = map(int, re.search(r"(\d+) of (\d+) sentences hold", said).groups())
    assert holding == written >= 8
    (text,) = [output.data["text/markdown"] for output in advice.outputs if "data" in output]
    assert all("([data](#" in line for line in text.splitlines()), "every sentence names its data"
