"""Write the pictures that follow from the chapters' results, and bring the drawn ones in, before Sphinx starts.

A picture becomes part of the page, so that it follows the theme's colours, light and dark.
"""

from collections import Counter
from html import escape
from typing import Any

from generated import comparisons
from stacked import wide_and_tall

from fedleak_book import paths
from fedleak_book.evidence import scoreboard
from fedleak_book.evidence.scoreboard import SIGNS, is_counted

Row = dict[str, Any]
CELL, GAP, PER_COLUMN = 11, 2, 5
WORDS = {
    scoreboard.AGREES: "agrees with the print, inside the band",
    scoreboard.WITHIN: "agrees within the tolerance alone, beside the print",
    scoreboard.BETTER: "a better attack than printed",
    scoreboard.DIFFERS: "differs: outside the band",
    scoreboard.DEPENDS: "depends on what the paper does not print",
    scoreboard.OPEN: "open: the interval does not say",
    scoreboard.NOT_ATTEMPTED: "not attempted",
}
"""What the legend says of a verdict."""
UNGRADED = (scoreboard.DEPENDS, scoreboard.NOT_ATTEMPTED)
"""Verdicts that the legend counts; the others are never added up over grades."""
STRENGTHS = {
    "A": "the paper's own settings",
    "B": "every plausible choice of what it does not print",
    "C": "fewer images, whose effect was measured elsewhere",
    "D": "other settings",
}
"""What the legend says of a grade."""


def raw(html: str) -> str:
    """Return HTML as a part of a Markdown page."""
    return f"```{{raw}} html\n{html.strip()}\n```\n"


def square(verdict: str, grade: str, place: str = "") -> str:
    """Draw a value: its colour is the verdict, its strength the grade."""
    classes = f"verdict-{verdict.replace(' ', '-')}" + f" grade-{grade}" * bool(grade)
    return f'<rect class="{classes}" {place} width="{CELL}" height="{CELL}" rx="2"/>'


def squares(rows: list[Row], top: int) -> tuple[str, int]:
    """Draw a square for each value, column by column, the best evidence first; return them and their width."""
    step, ordered = CELL + GAP, sorted(rows, key=scoreboard.rank)
    places = [f'x="{step * (i // PER_COLUMN)}" y="{top + step * (i % PER_COLUMN)}"' for i in range(len(ordered))]
    drawn = (square(row["verdict"], row["grade"], place) for row, place in zip(ordered, places, strict=True))
    return "".join(drawn), step * -(-len(ordered) // PER_COLUMN)


def statuses(papers: list[Row]) -> str:
    """Return every value that the papers print as a square, a strip a paper, with a legend."""
    top, width, parts, labels = 0, 0, [], []
    every = []
    for paper in papers:
        rows = [row for row in paper["rows"] if is_counted(row)]
        every += rows
        drawn, wide = squares(rows, top + 18)
        width = max(width, wide)
        name, counts = escape(paper["title"].split(":")[0]), Counter(row["status"] for row in rows)
        parts.append(f'<text x="0" y="{top + 12}">{name}, {len(rows)} values</text>{drawn}')
        labels.append(f"{name}: " + ", ".join(f"{n} {status}" for status, n in counts.most_common()))
        top += 18 + PER_COLUMN * (CELL + GAP) + 12
    verdict, grade = (Counter(row[name] for row in every) for name in ("verdict", "grade"))
    legend = "".join(
        f'<li><svg width="{CELL}" height="{CELL}" aria-hidden="true">{drawn}</svg> {sign} <b>{count}</b> {words}</li>'
        for drawn, sign, count, words in (
            *((square(v, ""), SIGNS[v], verdict[v] if v in UNGRADED else "", words) for v, words in WORDS.items()),
            *((square(scoreboard.AGREES, g), g, grade[g], words) for g, words in STRENGTHS.items()),
        )
    )
    return (
        '<figure class="drawing status-picture">'
        f'<svg viewBox="0 0 {width} {top}" role="img" aria-label="{"; ".join(labels)}">{"".join(parts)}</svg>'
        f'<ul class="status-legend">{legend}</ul></figure>'
    )


def fragments() -> dict[str, str]:
    """Return the fragments by name."""
    folder = paths.root() / "book" / "figures"
    drawn = {path.stem: wide_and_tall(path.read_text(encoding="utf-8")) for path in folder.glob("schematic-*.svg")}
    drawn |= {name: (folder / f"{name}.svg").read_text(encoding="utf-8") for name in ("round", "cartoons")}
    return {name: raw(html) for name, html in (drawn | {"statuses": statuses(comparisons())}).items()}
