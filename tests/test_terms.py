"""Tooltips explain a page's terms by the glossary, each once."""

import terms
from docutils import nodes
from docutils.utils import new_document


def test_the_first_use_of_each_term_is_explained():
    page = new_document("page")
    page += nodes.title("", "Secure aggregation")
    page += nodes.paragraph("", "", nodes.Text("Under secure aggregation a FedSGD update, and FedSGD again;"))
    page += nodes.paragraph("", "", nodes.Text("its ASR or instance accuracy"), nodes.literal("", "FedAvg"))
    assert terms.explain(page, terms.definitions()) == 4
    found = list(page.findall(nodes.abbreviation))
    assert [node.astext() for node in found] == ["secure aggregation", "FedSGD", "ASR", "instance accuracy"]
    assert page.astext().endswith("its ASR or instance accuracyFedAvg")


def test_definitions_are_plain_words():
    assert "cell" not in terms.definitions()
    assert "LLG*" in terms.definitions()["dummy images"]
    assert not [name for name, meaning in terms.definitions().items() if set(meaning) & set("`{}<>")]
