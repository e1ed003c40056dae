"""Compare the numbers of two built books: `python book/_tools/numbers_of.py BEFORE/html AFTER/html [--every]`.

Prints one line per page and number, with its occurrences in both books, and exits with 1 if any of them differ.
"""

import html
import re
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?(?:[ \u00a0\u202f]?%)?")  # not the 18 of ResNet18
HIDDEN = re.compile(r"<(head|header|footer|nav|script|style)\b.*?</\1>|<[^>]*>", re.S)
"""Tags, and elements that are the same on every page or not for readers."""


def numbers(page: Path) -> Counter[str]:
    """Count a page's numbers, written one way: 1,000 as 1000, 85 % as 85%, a true minus as a hyphen."""
    text = html.unescape(HIDDEN.sub(" ", page.read_text(encoding="utf-8"))) if page.is_file() else ""
    return Counter(re.sub(r"[, \u00a0\u202f]", "", n) for n in NUMBER.findall(text.replace("\u2212", "-")))


def compared(before: Path, after: Path) -> list[tuple[str, str, int, int]]:
    """Return page, number and its occurrences before and after, for all pages of two folders of HTML."""
    names = {file.relative_to(root).as_posix() for root in (before, after) for file in root.rglob("*.html")}
    pairs = [(name, numbers(before / name), numbers(after / name)) for name in sorted(names)]
    return [(name, n, old[n], new[n]) for name, old, new in pairs for n in sorted(old | new)]


def main(
    before: Path, after: Path, every: Annotated[bool, typer.Option(help="List unchanged numbers, too.")] = False
) -> None:
    """List the numbers that changed between two built books, by page."""
    rows = compared(before, after)
    changed = [row for row in rows if row[2] != row[3]]
    for name, number, old, new in rows if every else changed:
        print(f"{name:40s} {number:>12s} {old:5d} -> {new:d}")
    print(f"{len(changed)} of {len(rows)} numbers changed")
    raise typer.Exit(bool(changed))


if __name__ == "__main__":
    typer.run(main)
