"""How to cite: the front page's BibTeX entry and the evidence pages' sentence, both from `CITATION.cff`."""

from pathlib import Path
from typing import Any

import yaml
from render import keep
from sphinx.application import Sphinx

FILE = Path(__file__).parents[2] / "CITATION.cff"


def citation() -> dict[str, Any]:
    """Read what `CITATION.cff` says."""
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def bibtex() -> str:
    """Return the entry of this version, as a block of a page."""
    source = citation()
    fields = {
        "author": " and ".join(f"{{{author['name']}}}" for author in source["authors"]),
        "title": source["title"],
        "version": source["version"],
        "year": source["date-released"].year,
    }
    return "\n".join(
        ["```bibtex", "@software{fedleak,", *(f"  {k:<7} = {{{v}}}," for k, v in fields.items()), "}", "```"]
    )


def one_value(chapter: str, key: str) -> str:
    """Return how to cite one value of a chapter's evidence page."""
    return (
        f"Every value has a name, such as `{key}`, that links to its row. To cite one value, cite "
        f"[the book](/book/index.md#how-to-cite) and add `evidence/{chapter}.html#{key}`, fedleak "
        f"{citation()['version']}, and the commit of its record, which the table below the values has: between two "
        "versions a value may be measured again.\n"
    )


def write(app: Sphinx) -> None:
    """Write the fragment."""
    keep(app, {"cite": bibtex()})


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
