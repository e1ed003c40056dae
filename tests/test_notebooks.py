"""The chapters run through papermill, and find what their attacks must find."""

import re

import nbformat
import pytest

from fedleak_book import paths
from fedleak_book.pages import notebooks
from notebooks.show import ATTACKS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def executed():
    """All notebooks, executed side by side as the book has them: the pages' tests build it from the same copies."""
    notebooks.execute_all([name for name in paths.notebooks() if notebooks.is_stale(name, notebooks.QUICK)])


def read(name):
    return nbformat.read(paths.executed_notebook(name), as_version=4)


@pytest.mark.parametrize("name", paths.notebooks())
def test_every_figure_has_an_image_with_legible_text_and_the_pages_names(name):
    """Eleven pixels at least where a figure gets 688 of them, as in a window 1,300 wide; exponents are smaller."""
    figures = [cell for cell in read(name).cells if "figure" in cell.metadata.get("mystnb", {})]
    assert figures
    for cell in figures:
        images = [output.data["image/svg+xml"] for output in cell.outputs if "image/svg+xml" in output.get("data", {})]
        assert images, cell.id
        for image in images:
            width = float(re.search(r'width="([\d.]+)pt"', image)[1])
            points = [float(size) for size in re.findall(r"<text style=\"font-size: ([\d.]+)px", image)]
            assert not points or min(points) * min(4 / 3, 688 / width) >= 10.9, cell.id
            assert not set(re.findall(r">([^<>]+)</text>", image)) & ATTACKS.keys(), cell.id
