"""How to cite: the entry is made from CITATION.cff, and the values' names are addresses."""

import re
import sys

import pytest

from fedleak import paths
from fedleak.experiments import published, running, scoreboard
from fedleak.experiments.results import figure_of, slug

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
import citing


def test_the_entry_has_the_citations_fields():
    told = citing.citation()
    fields = dict(re.findall(r"^  (\w+) += \{(.*)\},$", citing.bibtex(), re.M))
    assert fields == {
        "author": "{The fedleak developers}",
        "title": told["title"],
        "version": told["version"],
        "year": str(told["date-released"])[:4],
    }
    assert "_generated/cite.md" in (paths.root() / "book" / "index.md").read_text()


@pytest.mark.parametrize("paper", scoreboard.papers())
def test_names_of_values_are_addresses_of_their_own(paper):
    """None needs escaping in HTML or an address, nor is the anchor of a heading of its page."""
    items = published.load(paper).items
    headings = {slug(figure_of(vars(item))) for item in items.values()} | {slug(n) for n in running.declared(paper)}
    assert [key for key in items if not re.fullmatch(r"[A-Za-z][A-Za-z0-9.-]*", key)] == []
    assert headings.isdisjoint(items)
