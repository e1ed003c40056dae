"""How to cite: the front page's BibTeX entry and the evidence pages' sentence, both from `CITATION.cff`."""

from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).parents[2] / "CITATION.cff"


def citation() -> dict[str, Any]:
    """Read `CITATION.cff`."""
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def bibtex(address: str = "") -> str:
    """Return the entry of this version, with the repository's address if there is one, as a block of a page."""
    source = citation()
    fields = {
        "author": " and ".join(f"{{{author['name']}}}" for author in source["authors"]),
        "title": source["title"],
        "version": source["version"],
        "year": source["date-released"].year,
    } | ({"url": address} if address else {})
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


def fragments() -> dict[str, str]:
    """Return the fragments by name."""
    settings = yaml.safe_load((FILE.parent / "_config.yml").read_text(encoding="utf-8"))
    return {"cite": bibtex(settings["repository"]["url"])}
