"""The chapters run through papermill, and find what their attacks must find."""

import nbformat
import pytest

from fedleak_book import paths
from fedleak_book.pages import notebooks

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
