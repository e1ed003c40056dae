"""Render tables, cards, numbers and references for the pages, and write fragments."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from sphinx.application import Sphinx
from sphinx.util import logging

from fedleak_book.experiments import records  # makes the notebooks' package importable
from notebooks.show import markdown

logger = logging.getLogger(__name__)

ROLES = {"eq": "eq", "prop": "prf:ref", "lem": "prf:ref", "thm": "prf:ref"}


def number(value: Any) -> str:
    """Return a number as the tables show it: three significant digits, a dash for none, words as they are."""
    if isinstance(value, bool | str):
        return str(value)
    if pd.isna(value):
        return "–"
    if 1000 <= abs(value) < 1e15 and value == round(value):
        return f"{value:,.0f}"
    return (str(value) if isinstance(value, int) else f"{value:.3g}").replace("-", "−")


def plain(text: Any) -> str:
    """Escape Markdown in a text: LLG* is a name, not emphasis."""
    return re.sub(r"([*_$`\\])", r"\\\1", " ".join(str(text).split()))


def link(text: str, anchor: str | None) -> str:
    """Return a reference to an equation, a theorem, or any other anchor in a chapter."""
    if not anchor:
        return text
    role = ROLES.get(anchor.split("-")[0])
    if not role:
        return f"[{text}](#{anchor})"
    return "Eq. " * (role == "eq") + f"{{{role}}}`{anchor}`"


def table(frame: pd.DataFrame) -> str:
    """Return a Markdown table that scrolls when it is wide, its numbers as the book writes them."""
    return markdown(frame.astype(object).map(number))


def cards(frame: pd.DataFrame, columns: str) -> str:
    """Return a card for each row, its ``title`` and ``text``; ``columns`` side by side ("1 2": narrow, wide)."""
    parts = [f":::{{grid-item-card}} {row.title}\n{row.text}\n:::\n" for row in frame.itertuples()]
    return "\n".join([f"::::{{grid}} {columns}\n:gutter: 3\n", *parts, "::::\n"])


def arena(*names: str) -> list[tuple[pd.DataFrame, dict[str, Any]]]:
    """Return rows and facts of some of the arena's records; none, with a warning, where one of them is missing."""
    tables = [records.recorded("arena", name) for name in names]
    if all(tables):
        return [table for table in tables if table]
    logger.warning("not recorded: fedleak record arena %s", " ".join(names), type="fedleak")
    return []


def keep(app: Sphinx, fragments: dict[str, str]) -> None:
    """Write fragments; an unchanged one keeps its date, so that Sphinx does not read its page again."""
    folder = Path(app.srcdir) / "book" / "_generated"
    folder.mkdir(exist_ok=True)
    for name, text in fragments.items():
        path = folder / f"{name}.md"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def before_pages(write: Callable[[Sphinx], None]) -> Callable[[Sphinx], dict[str, bool]]:
    """Return the `setup` of an extension that writes its fragments before Sphinx reads the pages."""

    def setup(app: Sphinx) -> dict[str, bool]:
        app.connect("builder-inited", write)
        return {"parallel_read_safe": True, "parallel_write_safe": True}

    return setup
