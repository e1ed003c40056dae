"""The drawn schematics: what they show is said in words, they take the page's colours, and their chapters show them."""

import re
from xml.etree import ElementTree

import pytest

from fedleak import notebooks, paths

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
def test_its_chapter_opens_with_it_after_a_question(path):
    name = path.stem.removeprefix("schematic-")
    if name not in notebooks.chapters():
        pytest.skip(f"no chapter {name}")
    opening = (paths.root() / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8").split('"cell_type"')[1]
    assert re.search(r'\?\*\*\\n",\s*"\\n",\s*"```{include} \.\./book/_generated/' + path.stem, opening)
