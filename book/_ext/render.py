"""Render references and drawn figures for the pages, and escape Markdown."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import seaborn as sns
from matplotlib.figure import Figure

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


def save(draw: Callable[[], Figure], path: Path, **metadata: str) -> None:
    """Write a figure as an SVG that names its fonts, in the style of the front page."""
    stream = io.StringIO()
    with mpl.rc_context():
        sns.set_theme(style="whitegrid", palette="colorblind", font_scale=0.9)
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "fedleak", "font.sans-serif": ["DejaVu Sans"]})
        draw().savefig(stream, format="svg", metadata={"Date": None, **metadata})
    path.write_text("\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n", encoding="utf-8")
