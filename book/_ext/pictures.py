"""Write the pictures that follow from the chapters' results, and bring the drawn ones in, before Sphinx starts.

A picture becomes part of the page, so that it follows the theme's colours, light and dark.
"""

from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

from generated import comparisons
from render import keep
from sphinx.application import Sphinx
from stacked import both

from fedleak.experiments.status import COUNTED

Row = dict[str, Any]
CELL, GAP, PER_COLUMN = 11, 2, 5
WORDS = {
    "match": "match: the paper's settings, and within the tolerance",
    "better": "a better attack than printed",
    "differs": "differs: the paper's settings, and outside the tolerance",
    "undecided": "undecided: the paper's settings, and the interval does not say",
    "scaled_agrees": "agrees, at other settings than the paper's",
    "scaled_differs": "differs, at other settings",
    "scaled_undecided": "undecided, at other settings",
    "not_attempted": "not attempted",
}
"""What the legend says of a status."""


def raw(html: str) -> str:
    """Return HTML as a part of a Markdown page."""
    return f"```{{raw}} html\n{html.strip()}\n```\n"


def squares(rows: list[Row], top: int) -> tuple[str, int]:
    """Draw a square for each value, column by column, in the order of the statuses; return them and their width."""
    order = [name for status, name in COUNTED.items() for row in rows if row["status"] == status]
    step = CELL + GAP
    drawn = (
        f'<rect class="status-{name}" x="{step * (i // PER_COLUMN)}" y="{top + step * (i % PER_COLUMN)}"'
        f' width="{CELL}" height="{CELL}" rx="2"/>'
        for i, name in enumerate(order)
    )
    return "".join(drawn), step * -(-len(order) // PER_COLUMN)


def statuses(papers: list[Row]) -> str:
    """Return every value that the papers print as a square of its status, a strip a paper, with a legend."""
    top, width, parts, told = 0, 0, [], []
    count: Counter[str] = Counter()
    for paper in papers:
        rows = [row for row in paper["rows"] if not row["beyond"]]
        found = Counter(COUNTED[row["status"]] for row in rows)
        count += found
        drawn, wide = squares(rows, top + 18)
        width = max(width, wide)
        name = escape(paper["title"].split(":")[0])
        parts.append(f'<text x="0" y="{top + 12}">{name}, {len(rows)} values</text>{drawn}')
        told.append(f"{name}: " + ", ".join(f"{found[key]} {key.replace('_', ' ')}" for key in WORDS if found[key]))
        top += 18 + PER_COLUMN * (CELL + GAP) + 12
    legend = "".join(
        f'<li><svg width="{CELL}" height="{CELL}" aria-hidden="true"><rect class="status-{key}" width="{CELL}"'
        f' height="{CELL}" rx="2"/></svg> {sign} <b>{count[key]}</b> {WORDS[key]}</li>'
        for sign, key in ((status[0], key) for status, key in COUNTED.items())
    )
    return (
        '<figure class="drawing status-picture">'
        f'<svg viewBox="0 0 {width} {top}" role="img" aria-label="{"; ".join(told)}">{"".join(parts)}</svg>'
        f'<ul class="status-legend">{legend}</ul></figure>'
    )


def write(app: Sphinx) -> None:
    """Write the fragments."""
    folder = Path(app.srcdir) / "book" / "figures"
    drawn = {path.stem: both(path.read_text(encoding="utf-8")) for path in folder.glob("schematic-*.svg")}
    drawn["round"] = (folder / "round.svg").read_text(encoding="utf-8")
    keep(app, {name: raw(html) for name, html in (drawn | {"statuses": statuses(comparisons())}).items()})


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
