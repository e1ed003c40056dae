"""Say below a docstring where the equations that it names are derived.

A docstring says which equations of its paper a function follows ("Eqs. 19 and 20"); `data/equations.toml` says where
the chapters derive them.
"""

import re
import tomllib
from functools import cache
from typing import Any

from sphinx.application import Sphinx

from fedleak_book import paths
from fedleak_book.pages import notebooks

CITED = re.compile(r"(?:\b(LLG|RLU|LIA-SA|GDBR|AGIC)(?:'s|,)?\s+)?Eqs?\.\s+(\d+(?:(?:\s*[-–,]\s*|\s+and\s+)\d+)*)")
PAPERS = {"LLG": "llg", "RLU": "rlu", "LIA-SA": "lia_sa", "GDBR": "gdbr", "AGIC": "agic"}
KINDS = {"eq": ":eq:", "prop": ":prf:ref:", "lem": ":prf:ref:", "thm": ":prf:ref:"}


@cache
def derived() -> dict[str, Any]:
    """Return by paper where its equations are derived, and the modules whose docstrings mean it."""
    return tomllib.loads((paths.root() / "data" / "equations.toml").read_text(encoding="utf-8"))


def numbers(words: str) -> list[int]:
    """Return the numbers of "17-21", "6–11", "19 and 20" or "16, 17"."""
    cited_numbers = []
    for part in re.split(r",|\band\b", words):
        first, *last = (int(number) for number in re.findall(r"\d+", part))
        cited_numbers += range(first, (last or [first])[-1] + 1)
    return cited_numbers


def places(paper: str) -> dict[int, str]:
    """Return where a chapter derives its paper's equations: number to the name of the place."""
    return {n: anchor for words, anchor in derived()[paper].items() if words != "modules" for n in numbers(words)}


def paper_of(module: str) -> str | None:
    """Return the paper that a module's docstrings mean where they name none."""
    return next((paper for paper, entry in derived().items() if module in entry["modules"]), None)


def cited(docstring: str, module: str) -> list[tuple[str, int]]:
    """Return the equations that a docstring names: paper and number, each once."""
    pairs: dict[tuple[str, int], None] = {}
    for name, words in CITED.findall(docstring):
        paper = PAPERS.get(name) or paper_of(module)
        if paper:
            pairs.update(dict.fromkeys((paper, n) for n in numbers(words)))
    return list(pairs)


def derived_in(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Say below a docstring where the equations that it names are derived."""
    module = name if what == "module" else getattr(thing, "__module__", None) or ""
    chapters, derivations = notebooks.chapters(), {}
    for paper, number in cited("\n".join(lines), module):
        anchor = places(paper).get(number)
        if anchor and paper in chapters:
            role = KINDS.get(anchor.split("-")[0])
            derivations[anchor] = f"Eq. {role}`{anchor}`" if role == ":eq:" else f"{role or ':ref:'}`{anchor}`"
            if role is None:
                derivations[anchor] = f":ref:`Eq. {number} <{anchor}>`"
    if derivations:
        lines += ["", f"**Derived in** {', '.join(derivations.values())}.", ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("autodoc-process-docstring", derived_in, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
