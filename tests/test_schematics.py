"""The drawn schematics: what they show is said in words, they take the page's colours, and their chapters show them."""

import re
import sys
from xml.etree import ElementTree

import pytest

from fedleak import paths
from fedleak.experiments import notebooks

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
import stacked

DRAWN = sorted((paths.root() / "book" / "figures").glob("schematic-*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(params=[*DRAWN, DRAWN[0].with_name("round.svg")], ids=lambda path: path.stem)
def drawn(request):
    return ElementTree.fromstring(request.param.read_text(encoding="utf-8"))


def test_it_is_said_in_words(drawn):
    svg, caption = drawn.find(f"{SVG}svg"), drawn.find("figcaption")
    assert svg.get("role") == "img"
    assert len(svg.get("aria-label")) > len(caption.text) > 60


def test_it_takes_the_pages_colours(drawn):
    """No colour of its own, and no class that the style sheet does not know."""
    assert not [node.tag for node in drawn.iter() if {"fill", "stroke", "style"}.intersection(node.keys())]
    css = (paths.root() / "book" / "_static" / "custom.css").read_text(encoding="utf-8")
    used = {name for node in drawn.iter() for name in node.get("class", "").split()}
    assert used - set(re.findall(r"\.([a-z]+)", css)) == set()


def test_nothing_lies_outside(drawn):
    svg = drawn.find(f"{SVG}svg")
    width, height = map(float, svg.get("viewBox").split()[2:])
    for node in svg.iter(f"{SVG}rect"):
        assert float(node.get("x")) + float(node.get("width")) <= width
        assert float(node.get("y")) + float(node.get("height")) <= height


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_narrow_screens_get_the_same_boxes_below_each_other(path):
    wide, tall = ElementTree.fromstring(stacked.both(path.read_text(encoding="utf-8"))).findall(f"{SVG}svg")
    assert [wide.get("class"), tall.get("class")] == ["wide", "tall"]
    assert tall.get("aria-label") == wide.get("aria-label")
    assert all(set(re.findall("[A-Za-z]", node.get("d"))) <= set("MLC") for node in wide.findall(f"{SVG}path"))
    words = [sorted(filter(None, (node.text for node in svg.iter(f"{SVG}text")))) for svg in (wide, tall)]
    assert words[0] == words[1]
    width, height = map(float, tall.get("viewBox").split()[2:])
    stages, end = tall.findall(f"{SVG}g"), 0
    assert len(stages) == len(tall.findall(f"{SVG}path")) + 1
    assert sum(len(stacked.columns(list(stage))) for stage in stages) == len(stacked.columns(list(wide))) >= 4
    assert height <= 742  # 800 pixels in such a window
    for stage in stages:
        across, down = map(float, re.findall(r"-?[\d.]+", stage.get("transform")))
        for node in stage.iter(f"{SVG}rect"):
            left, right = (across + end for end in stacked.extent(node))
            assert 0 <= left < right <= width <= 388  # what a window of 420 pixels has room for
        ends = [down + end for node in stage.iter(f"{SVG}rect") for end in stacked.extent(node, down=True)]
        assert end < min(ends) < max(ends) <= height
        end = max(ends)


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_its_chapter_opens_with_it_after_a_question(path):
    name = path.stem.removeprefix("schematic-")
    if name not in notebooks.chapters():
        pytest.skip(f"no chapter {name}")
    opening = (paths.root() / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8").split('"cell_type"')[1]
    assert re.search(r'\?\*\*\\n",\s*"\\n",\s*"```{include} \.\./book/_generated/' + path.stem, opening)
