"""From function to equation and back: what docstrings cite is derived in a chapter."""

import derivations
import docstrings
import equations
import pytest
from sphinx.ext.napoleon.docstring import NumpyDocstring
from test_overview import NOTEBOOKS, anchors

from fedleak.attacks import registry
from fedleak_book import paths

MAPPED = derivations.derived()


@pytest.mark.parametrize("paper", sorted(NOTEBOOKS.keys() & MAPPED.keys()))
def test_equations_are_derived_where_the_list_says(paper):
    assert set(derivations.places(paper).values()) <= anchors(NOTEBOOKS[paper])


def test_every_equation_that_a_docstring_cites_is_derived():
    citations = equations.functions()
    assert len(citations) > 20
    missing = {(paper, n): names for (paper, n), names in citations.items() if n not in derivations.places(paper)}
    assert missing.keys() <= {("llg", 3)}  # the server's average: federated averaging itself


@pytest.mark.parametrize(
    ("text", "module", "expected"),
    [
        ("Sums (LLG, Eqs. 9 and 13).", "fedleak.models.passes", [("llg", 9), ("llg", 13)]),
        ("gamma of AGIC's Eq. 5; see Eq. 6", "fedleak.attacks.images.agic", [("agic", 5), ("agic", 6)]),
        ("Follows Eq. 5.", "fedleak.attacks.labels.idlg", []),
    ],
)
def test_papers_are_told_apart(text, module, expected):
    assert derivations.cited(text, module) == expected


def test_the_reference_lists_every_module_of_an_attack():
    own = "".join(map(equations.reference, ("labels", "images")))
    listed = own + "".join(path.read_text() for path in (paths.root() / "book" / "api").glob("*.md"))
    assert all(f".. automodule:: {attack.function.__module__}\n" in listed for attack in registry.all_attacks())
    assert all(listed.count(f".. automodule:: {module}\n") == 1 for module in equations.modules())
    parts = own.split("## Shared by the attacks on labels")
    assert "labels.llg`" in parts[0]
    assert "labels.inputs`" in parts[1]


def test_parameters_of_one_line_have_descriptions_of_their_own():
    lines = "Prepare.||Parameters|----------|model, aux|    The model before; labelled|    images.|rest|    B; t."
    docstring = [*lines.split("|"), "x, y", "    Images ``[B]``, and labels.", "", "Returns", "-------", "Tensor"]
    divided = docstrings.described(docstring)
    assert divided[4:10] == ["model", "    The model before.", "", "aux", "    Labelled images.", ""]
    assert divided[10:12] == ["rest", "    B; t."]
    assert divided[12:18] == ["x", "    Images ``[B]``, and labels.", "", "y", "    See ``x``.", ""]
    assert divided[18:] == ["Returns", "-------", "Tensor"]
    attribute = ["Batches per label: ten.", "More."]
    docstrings.process(None, "data", "RUNS", 10, None, attribute)
    assert NumpyDocstring(attribute, what="data").lines()[:2] == ["", "Batches per label: ten."]
