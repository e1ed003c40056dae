"""The page of the book: its example is a set-up that works, and the fragment is a report made from it."""

import os

import generated

from fedleak.audit.case import prepare
from fedleak.audit.setup import load
from fedleak_book import paths


def test_the_example_is_a_set_up_that_works():
    case = prepare(load(paths.root() / "book" / "audit_example.py"))
    assert (case.clients.name, case.classifier.n_classes) == ("mnist5k", 10)


def test_the_fragment_is_a_report_with_its_figure(tmp_path):
    text = "from torch import nn\nfrom fedleak.audit import Setup\n"
    (tmp_path / "mine.py").write_text(
        f"{text}setup = Setup(model=nn.Linear(6, 3), shape=(6,), batch_size=4, trials=3)\n"
    )
    fragment = generated.audit(tmp_path / "mine.py", tmp_path / "audit.svg")
    assert fragment.startswith("### Leakage from the updates of Linear\n")
    assert "```{image} /book/_generated/audit.svg\n:alt: " in fragment
    assert "<svg" in (tmp_path / "audit.svg").read_text()


def test_a_fragment_is_made_again_only_if_something_changed(tmp_path):
    source, fragment = tmp_path / "a.py", tmp_path / "a.md"
    source.touch()
    assert not generated.up_to_date(fragment, source)
    fragment.touch()
    for changed, is_up_to_date in ((1, True), (2**33, False)):
        os.utime(source, (changed, changed))
        assert generated.up_to_date(fragment, source) == is_up_to_date
