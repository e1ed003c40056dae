"""Write the pictures that follow from the chapters' results, and bring the drawn ones in, before Sphinx starts.

A picture becomes part of the page, so that it follows the theme's colours, light and dark.
"""

from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import Any

from generated import comparisons

from fedleak_book import paths
from fedleak_book.evidence import scoreboard
from fedleak_book.evidence.scoreboard import is_counted

Row = dict[str, Any]
CELL, STEP, PER_COLUMN = 11, 13, 5


def raw(html: str) -> str:
    """Return HTML as a part of a Markdown page."""
    return f"```{{raw}} html\n{html.strip()}\n```\n"


def squares(rows: list[Row], top: int) -> Iterator[str]:
    """Draw a square for each value, column by column, the best evidence first; a grade is how strong its colour is."""
    for i, row in enumerate(sorted(rows, key=scoreboard.rank)):
        classes = f"verdict-{row['verdict'].replace(' ', '-')}" + f" grade-{row['grade']}" * bool(row["grade"])
        x, y = STEP * (i // PER_COLUMN), top + STEP * (i % PER_COLUMN)
        yield f'<rect class="{classes}" x="{x}" y="{y}" width="{CELL}" height="{CELL}" rx="2"/>'


def statuses(papers: list[Row]) -> str:
    """Return every value that the papers print as a square, a strip a paper."""
    top, width, parts, labels = 0, 0, list[str](), list[str]()
    for paper in papers:
        rows = [row for row in paper["rows"] if is_counted(row)]
        width = max(width, STEP * -(-len(rows) // PER_COLUMN))
        name, counts = escape(paper["title"].split(":")[0]), Counter(row["status"] for row in rows)
        parts.append(f'<text x="0" y="{top + 12}">{name}, {len(rows)} values</text>{"".join(squares(rows, top + 18))}')
        labels.append(f"{name}: " + ", ".join(f"{n} {status}" for status, n in counts.most_common()))
        top += 18 + PER_COLUMN * STEP + 12
    return f'<svg viewBox="0 0 {width} {top}" role="img" aria-label="{"; ".join(labels)}">{"".join(parts)}</svg>'


def fragments() -> dict[str, str]:
    """Return the fragments by name."""
    folder = paths.root() / "book" / "figures"
    drawings = (path for name in ("schematic-*", "round", "cartoons") for path in folder.glob(f"{name}.svg"))
    drawn = {path.stem: path.read_text(encoding="utf-8") for path in drawings}
    return {name: raw(html) for name, html in (drawn | {"statuses": statuses(comparisons())}).items()}
