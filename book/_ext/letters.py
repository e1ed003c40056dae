"""Repeat each paper's column of the notation page's table in its chapter."""

import re

import pandas as pd
from render import table

from fedleak_book import paths

PAGE = paths.root() / "book" / "notation.md"
COLUMNS = {"llg": "LLG", "lia_sa": "LIA-SA", "rlu": "RLU", "gdbr": "GDBR", "agic": "AGIC"}
"""By chapter, the heading of its paper's column."""
NONE = "–"
"""A cell of the table: the chapter has no such thing."""


def letters() -> pd.DataFrame:
    """Return the notation page's table, one row per thing."""
    lines = re.findall(r"^\| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    head, _, *rows = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    return pd.DataFrame(rows, columns=head)


def fragments() -> dict[str, str]:
    """Return by name, for each chapter, the letters that differ from its paper's."""
    rows, parts = letters(), {}
    for chapter, paper in COLUMNS.items():
        differs = rows[(rows[paper] != NONE) & (rows[paper] != rows["Letter"])]
        shown = table(differs[["Letter", paper, "Meaning"]].rename(columns={"Letter": "Here", paper: "Paper"}))
        parts[f"letters-{chapter}"] = f":::{{dropdown}} In the paper's letters\n{shown}\n:::\n"
    return parts
