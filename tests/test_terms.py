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
