"""Drawings of the book: findings are of today's records, schematics keep to the page, sliders work."""

import io
import re
from html import unescape
from xml.etree import ElementTree

import findings
import matplotlib as mpl
import narrow
import pytest
import sliders
from jinja2 import Template
from matplotlib.figure import Figure

from fedleak_book import paths
from fedleak_book.pages import notebooks


def read(*place):
    return paths.root().joinpath(*place).read_text(encoding="utf-8")


# --- findings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", findings.FINDINGS, ids=lambda make: make.__name__)
def test_the_committed_picture_is_of_todays_records(make):
    text = (findings.FIGURES / f"finding-{make.__name__}.svg").read_text(encoding="utf-8")
    drawn = re.search(r"<dc:description>(.*?)</dc:description>", text, re.S)
    assert unescape(drawn[1]) == make().says()


def test_the_readme_has_the_front_pages_first_finding_with_todays_numbers():
    title, text = re.search(r"card\} (A malicious.*)\n!\[.*\n\n(.*) \{ref\}", read("book", "index.md")).groups()
    numbers = {"clients": findings.clients().numbers}
    assert f"**{title}.** {Template(text).render(finding=numbers)} (" in read("README.md")


# --- schematics --------------------------------------------------------------------------------------------------

DRAWN = sorted((paths.root() / "book" / "figures").glob("schematic-*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("path", [*DRAWN, DRAWN[0].with_name("round.svg")], ids=lambda path: path.stem)
def test_schematics_have_a_description_and_the_pages_colours_and_size(path):
    drawn = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    svg, caption = drawn.find(f"{SVG}svg"), drawn.find("figcaption")
    assert svg.get("role") == "img"
    assert len(svg.get("aria-label")) > len(caption.text) > 60
    assert not [node.tag for node in drawn.iter() if {"fill", "stroke", "style"}.intersection(node.keys())]
    used = {name for node in drawn.iter() for name in node.get("class", "").split()}
    assert used - set(re.findall(r"\.([a-z]+)", read("book", "_static", "custom.css"))) == set()
    width, height = map(float, svg.get("viewBox").split()[2:])
    for node in svg.iter(f"{SVG}rect"):
        assert float(node.get("x")) + float(node.get("width")) <= width
        assert float(node.get("y")) + float(node.get("height")) <= height


# --- sliders -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sliders.SLIDERS)
def test_one_frame_is_visible_at_first_and_all_have_descriptions(name):
    assert name in notebooks.chapters()
    slider = sliders.SLIDERS[name]()
    html = slider.html()
    hidden = [bool(attribute) for attribute in re.findall(r'<div class="frame" data-at="[^"]+"( hidden)?>', html)]
    assert [i for i, is_hidden in enumerate(hidden) if not is_hidden] == [0]
    assert len(hidden) == len(slider.frames) >= 5
    assert len({frame.words for frame in slider.frames}) > len(hidden) / 2
    assert len(html) < 50_000
    assert "nan" not in html


# --- charts on narrow screens ------------------------------------------------------------------------------------


def chart(rows, columns, draw):
    """A chart as the pages have it, whose panels share their vertical axis."""
    figure, stream = Figure(figsize=(8.4, 2.4 * rows), layout="constrained"), io.StringIO()
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for number, axes in enumerate(panels):
        draw(axes)
        axes.set(title=f"panel {number}", ylabel="" if number % columns else "height")
        axes.set_yticks([0, 3], ["low", "high"])
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    with mpl.rc_context({"svg.fonttype": "none"}):
        figure.savefig(stream, format="svg")
    return stream.getvalue()


def lines(axes):
    for name in ("first line", "second line", "a third line with a long name"):
        axes.plot([0, 1, 3], [0, 1, 3], marker="o", label=name)


@pytest.mark.parametrize(("rows", "columns", "across"), [(2, 4, 2), (1, 2, 1)])
def test_panels_stand_below_each_other_with_the_labels_of_their_neighbours(rows, columns, across):
    root = ElementTree.fromstring(narrow.stacked(chart(rows, columns, lines)))
    texts = ["".join(text.itertext()) for text in root.iter(f"{{{narrow.SVG}}}text")]
    assert [text for text in texts if text.startswith("panel")] == [f"panel {i}" for i in range(rows * columns)]
    assert texts.count("height") == texts.count("high") == rows * columns / across
    assert {"first line", "second line", "a third line with a long name"} < set(texts)
    assert float(root.get("width").removesuffix("pt")) < 375


def test_one_panel_and_pictures_stay_as_they_are():
    assert narrow.stacked(chart(1, 1, lines)) is None
    assert narrow.stacked(chart(1, 2, lambda axes: axes.imshow([[0, 1], [2, 3]], label="picture"))) is None
