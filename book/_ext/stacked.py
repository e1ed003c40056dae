"""Stack a schematic for narrow screens: the same boxes, one below the other, made from the drawing itself.

Boxes that lie above each other in the drawing are a stage, with all that lies within their width. What lies between
two stages leads from one to the next: its words stand beside an arrow down. A group that starts in a stage stays there.
Where there are more stages than `MOST`, those that fit beside each other stay so, as they are drawn: one row of stages
is a stage.
"""

import re
from collections.abc import Iterator
from copy import deepcopy
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

SVG = "http://www.w3.org/2000/svg"
WIDTH, WIDEST, EDGE, ARROW, LINE, MOST = 360, 388, 4, 34, 15, 4
ElementTree.register_namespace("", SVG)


def kind(node: Element) -> str:
    """Return the kind of a node, such as "rect" or "text"."""
    return node.tag.removeprefix(f"{{{SVG}}}")


def extent(node: Element, down: bool = False) -> tuple[float, float]:
    """Return where a node begins and ends from left to right, or `down`; a group counts where it begins."""
    if kind(node) == "g":
        return (extent(node[0], down)[0],) * 2
    if kind(node) == "path":
        ends = [float(number) for number in re.findall(r"[\d.]+", node.get("d", ""))[down::2]]
        return min(ends), max(ends)
    place, size = ("y", "height") if down else ("x", "width")
    start = float(node.get(place) or node.get("c" + place) or 0)
    return start, start + float(node.get(size) or node.get("r", 0))


def boxes(nodes: list[Element]) -> Iterator[tuple[float, float, float, float]]:
    """Yield the left, right, upper and lower end of every box."""
    for node in nodes:
        if kind(node) == "rect" and "box" in node.get("class", "").split():
            yield *extent(node), *extent(node, down=True)


def columns(nodes: list[Element]) -> list[tuple[float, float]]:
    """Return the stages' left and right ends."""
    spans: list[tuple[float, float]] = []
    for start, end, *_ in sorted(boxes(nodes)):
        if spans and start < spans[-1][1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((start, end))
    return spans


def rows(ends: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the left and right ends of rows of stages."""
    spans = ends[:1]
    for start, end in ends[1:]:
        if end - spans[-1][0] <= WIDEST - 2 * EDGE:
            spans[-1] = spans[-1][0], end
        else:
            spans.append((start, end))
    return spans


def stacked(svg: Element) -> Element:
    """Return the drawing with its stages below each other."""
    nodes = [deepcopy(node) for node in svg if kind(node) != "defs"]
    ends = columns(nodes)
    ends = rows(ends) if len(ends) > MOST else ends
    width = max(WIDTH, *(x_max - x_min + 2 * EDGE for x_min, x_max in ends))
    stages: list[list[Element]] = [[] for _ in ends]
    words: list[list[str]] = [[] for _ in ends]
    for node in nodes:
        x_min, x_max = extent(node)
        begun = max((i for i, (start, _) in enumerate(ends) if start <= x_min), default=0)
        if x_max <= ends[begun][1]:
            stages[begun].append(node)
        elif kind(node) == "text":
            words[begun].append(node.text or "")
    tall = Element(svg.tag, {"role": "img", "aria-label": svg.get("aria-label", ""), "class": "tall"})
    tall.extend(deepcopy(node) for node in svg if kind(node) == "defs")
    y = float(EDGE)
    shifts = [(width - x_min - x_max) / 2 for x_min, x_max in ends]
    for k, (across, stage, label) in enumerate(zip(shifts, stages, words, strict=True)):
        y = place(tall, stage, across, y)
        if stage is not stages[-1]:
            long = max(ARROW, LINE * len(label) + 12)
            start, end = across + sum(columns(stage)[-1]) / 2, shifts[k + 1] + sum(columns(stages[k + 1])[0]) / 2
            top, bottom = f"{y + 3:g}", f"{y + long - 3:g}"
            way = f"V{bottom}" if start == end else f"C{start:g} {bottom} {end:g} {top} {end:g} {bottom}"
            line = {"class": "wire", "d": f"M{start:g} {top}{way}", "marker-end": "url(#tip)"}
            SubElement(tall, f"{{{SVG}}}path", line)
            for i, text_line in enumerate(label):
                at = {"x": f"{start + 10:g}", "y": f"{y + long / 2 + 4 + LINE * (i - (len(label) - 1) / 2):g}"}
                SubElement(tall, f"{{{SVG}}}text", {"class": "small"} | at).text = text_line
            y += long
    tall.set("viewBox", f"0 0 {width:g} {y + EDGE:g}")
    return tall


def place(tall: Element, stage: list[Element], across: float, y: float) -> float:
    """Put a stage into the drawing, and return where it ends; what stands above its boxes moves right above them."""
    extents = list(boxes(stage))
    start, end = min(box[0] for box in extents), max(box[1] for box in extents)
    top, bottom = min(box[2] for box in extents), max(box[3] for box in extents)
    above = [node for node in stage if kind(node) == "text" and float(node.get("y", 0)) < top]
    together, row = (start, end, top, bottom) in extents, len(columns(stage)) > 1
    if together:  # one box around all: no higher than it has to be
        outer = next(node for node in stage if kind(node) == "rect" and extent(node) == (start, end))
        bottom = min(bottom, 12 + max(extent(node, down=True)[1] for node in stage if node is not outer))
        outer.set("height", f"{bottom - top:g}")
    frame = 6 * (not together and not row)
    y += 18 * bool(above) + frame
    group = SubElement(tall, f"{{{SVG}}}g", {"transform": f"translate({across:g} {y - top:g})"})
    for node in above:
        node.set("x", node.get("x", "") if row else f"{(start + end) / 2:g}")
        node.set("y", f"{top - 7 - frame:g}")
    if frame:  # several boxes: a frame, for an arrow that means all of them
        size = {"x": start - 6, "y": top - 6, "width": end - start + 12, "height": bottom - top + 12, "rx": 8}
        SubElement(group, f"{{{SVG}}}rect", {"class": "frame"} | {k: f"{v:g}" for k, v in size.items()})
    group.extend(stage)
    return y + bottom - top + frame


def wide_and_tall(figure: str) -> str:
    """Return a schematic's figure with the stacked drawing beside the wide one; the style sheet shows one of them."""
    svg = ElementTree.fromstring(figure).find(f"{{{SVG}}}svg")
    assert svg is not None
    tall = re.sub(r'(#|id=")tip\b', r"\1tip-down", ElementTree.tostring(stacked(svg), encoding="unicode"))
    wide = figure.replace("<svg ", '<svg class="wide" ', 1)
    return wide.replace("<figcaption>", f"{tall}\n<figcaption>", 1)
