"""Figures on narrow screens: the panels of a chart stand below each other, made from the chart itself.

Matplotlib writes a panel as a group, at its place. As many panels stay beside each other as fit. A panel that shared an
axis with its left neighbour, or with the panel below, gets a copy of the labels; the legend's entries are set anew.
Charts with pictures stay as they are, and so does a single panel, which is as wide as the screen.
"""

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from matplotlib.transforms import Bbox
from sphinx.application import Sphinx

SVG = "http://www.w3.org/2000/svg"
G, PATH = f"{{{SVG}}}g", f"{{{SVG}}}path"
WIDEST, GAP, LINE, LETTER = 360.0, 8.0, 15.0, 0.6
"""Points: the widest chart, the space between panels, a line of the legend; the width of a letter in its size."""
IMAGE = re.compile(r'<img [^>]*src="((?:\.\./)*_images/([^"/]+)\.svg)"[^>]*/>')
ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


class Panel:
    """A group of the chart, the box of its axes, and the box of all that it shows."""

    def __init__(self, group: Element):
        self.group, self.axes = group, path_box(group)
        self.x_axis, self.y_axis = (node for node in group if node.get("id", "").startswith("matplotlib.axis_"))
        self.box = Bbox.union([self.axes, *words(group)])

    def borrow(self, axis: Element, right: float, down: float) -> None:
        """Take the words of another panel's axis, moved."""
        copy = SubElement(self.group, G, transform=f"translate({right:g} {down:g})")
        copy.extend(deepcopy(node) for node in texts(axis))
        self.box = Bbox.union([self.box, *(word.translated(right, down) for word in words(axis))])


def path_box(node: Element) -> Bbox:
    """Return the box of a node's first path."""
    ends = [float(number) for number in re.findall(r"-?[\d.]+", node.find(f".//{PATH}").get("d"))]  # type: ignore
    return Bbox.from_extents(min(ends[::2]), min(ends[1::2]), max(ends[::2]), max(ends[1::2]))


def texts(node: Element) -> Iterator[Element]:
    """Yield the groups of words in a node."""
    return (group for group in node.iter(G) if group.get("id", "").startswith("text_"))


def words(node: Element) -> Iterator[Bbox]:
    """Yield the boxes of the lines of words in a node, their widths by the number of letters."""
    for group in texts(node):
        places = " ".join(part.get("transform", "") for part in group.iter())
        for line in group.iter(f"{{{SVG}}}text"):
            letters = re.sub(r"\s*\n\s*", "", "".join(line.itertext()))  # a formula has each letter by itself
            styles = " ".join(part.get("style", "") for part in line.iter())
            size = max(map(float, re.findall(r"font-size: ([\d.]+)", styles)))
            moved = re.search(r"translate\((-?[\d.]+)[ ,]+(-?[\d.]+)", places)
            x, y = map(float, (line.get("x"), line.get("y")) if line.get("x") else moved.groups())  # type: ignore
            if re.search(r"rotate\(-?90", places):  # its length lies along the axis
                yield Bbox.from_extents(x - size, y, x + size / 4, y)
                continue
            width, anchor = LETTER * size * len(letters), re.search(r"text-anchor: (\w+)", styles)
            left = x - width * {"end": 1.0, "middle": 0.5}.get(anchor[1] if anchor else "", 0.0)
            yield Bbox.from_extents(left, y - size, left + width, y + size / 3)


def borrow_labels(panels: list[Panel]) -> None:
    """Give a panel without words at its horizontal axis those of the panel below that has some."""
    for panel in panels:
        if not any(texts(panel.x_axis)):
            column = (p for p in panels if abs(p.axes.x0 - panel.axes.x0) < 1)
            if below := next((p for p in column if any(texts(p.x_axis))), None):
                panel.borrow(below.x_axis, 0, panel.axes.y1 - below.axes.y1)


def rows_of(panels: list[Panel]) -> list[list[Panel]]:
    """Return the panels in rows that fit; the first of a row has words at its vertical axis."""
    rows: list[list[Panel]] = []
    for place, panel in enumerate(panels):
        end = sum(p.box.width + GAP for p in rows[-1]) if rows else 0
        if rows and abs(rows[-1][-1].axes.y0 - panel.axes.y0) < 1 and end + panel.box.width < WIDEST:
            rows[-1].append(panel)
            continue
        if not any(texts(panel.y_axis)):
            before = (p for p in reversed(panels[:place]) if abs(p.axes.y0 - panel.axes.y0) < 1)
            if beside := next((p for p in before if any(texts(p.y_axis))), None):
                panel.borrow(beside.y_axis, panel.axes.x0 - beside.axes.x0, 0)
        rows.append([panel])
    return rows


def entries(legend: Element) -> Iterator[tuple[list[Element], Bbox]]:
    """Yield each entry of a legend, its drawings and words, and its box."""
    parts: list[Element] = []
    for node in legend:
        path = node.find(PATH)
        if not parts and path is not None and "Q" in path.get("d", ""):  # the legend's frame
            continue
        parts.append(node)
        if node.get("id", "").startswith("text_"):
            word = next(words(node))
            marks = [float(use.get("x", 0)) - 5 for part in parts for use in part.iter(f"{{{SVG}}}use")]
            lines = [path_box(part).x0 for part in parts if part.find(PATH) is not None]
            yield parts, Bbox.from_extents(min([word.x0, *marks, *lines]), word.y0, word.x1, word.y1)
            parts = []


def stacked(svg: str) -> str | None:
    """Return a chart of several panels for a narrow screen; None for one panel, for pictures and for other drawings."""
    root = ElementTree.fromstring(svg)
    figure = next((node for node in root if node.get("id") == "figure_1"), None)
    if figure is None or "<image" in svg:
        return None
    groups = [node for node in figure if node.get("id", "").startswith("axes_")]
    legends = [node for node in figure if node.get("id", "").startswith("legend_")]
    if len(groups) < 2 or len(figure) != 1 + len(groups) + len(legends):
        return None
    panels = [Panel(node) for node in groups if any(texts(node))]  # others are hidden
    borrow_labels(panels)
    out = Element(f"{{{SVG}}}svg")
    out.extend(node for node in root if node.tag == f"{{{SVG}}}defs")
    down, right, width = 2.0, 0.0, 0.0
    for parts, box in (entry for legend in legends for entry in entries(legend)):
        if right and right + box.width > WIDEST:
            down, right = down + LINE, 0.0
        place = SubElement(out, G, transform=f"translate({right - box.x0:g} {down - box.y0:g})")
        place.extend(parts)
        right += box.width + 2 * GAP
        width = max(width, right)
    down += LINE if right else 0
    for row in rows_of(panels):
        top, bottom, right = min(p.box.y0 for p in row), max(p.box.y1 for p in row), 0.0
        for panel in row:
            place = SubElement(out, G, transform=f"translate({right - panel.box.x0:g} {down + GAP - top:g})")
            place.append(panel.group)
            right += panel.box.width + GAP
        width, down = max(width, right), down + GAP + bottom - top
    height = f"{down + GAP:.0f}"
    out.attrib |= {"width": f"{width:.0f}pt", "height": f"{height}pt", "viewBox": f"0 0 {width:.0f} {height}"}
    return ElementTree.tostring(out, encoding="unicode")


def offer(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Let a page's charts have a form for narrow screens."""
    paths = {name: path for path, name in app.builder.images.items()}

    def offered(image: re.Match[str]) -> str:
        source = Path(app.srcdir, paths.get(f"{image[2]}.svg", "-"))
        if not source.is_file():
            return image[0]
        svg = source.read_text(encoding="utf-8")
        if svg.count('<g id="axes_') == 1 and "class=" not in image[0]:
            return image[0].replace("<img ", '<img class="one-panel" ')
        if (narrow := stacked(svg)) is None:
            return image[0]
        folder = Path(app.outdir, "_images")
        folder.mkdir(exist_ok=True)
        (folder / f"{image[2]}-narrow.svg").write_text(narrow, encoding="utf-8")
        address = image[1].removesuffix(".svg") + "-narrow.svg"
        return f'<picture><source media="(max-width: 40rem)" srcset="{address}"/>{image[0]}</picture>'

    if "body" in context:
        context["body"] = IMAGE.sub(offered, context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the pages' charts."""
    app.connect("html-page-context", offer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
