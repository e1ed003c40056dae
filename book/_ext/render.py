"""Render cards and references for the pages, and escape Markdown."""

import re
from typing import Any

import pandas as pd

from notebooks.show import number as number
from notebooks.show import table as table

ROLES = {"eq": "eq", "prop": "prf:ref", "lem": "prf:ref", "thm": "prf:ref"}


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


def cards(frame: pd.DataFrame, columns: str) -> str:
    """Return a card for each row, its ``title`` and ``text``; ``columns`` side by side ("1 2": narrow, wide)."""
    parts = [f":::{{grid-item-card}} {row.title}\n{row.text}\n:::\n" for row in frame.itertuples()]
    return "\n".join([f"::::{{grid}} {columns}\n:gutter: 3\n", *parts, "::::\n"])
