"""The page of the book: its example is a Flower app that runs, and its fragment is a report on that run."""

from dataclasses import replace

import generated
import pytest

from fedleak.audit.setup import load
from fedleak_book import paths

EXAMPLE = paths.root() / "book" / "flower_example.py"


@pytest.mark.slow
def test_the_fragment_is_a_report_on_the_examples_run(tmp_path, monkeypatch):
    setup = replace(load(EXAMPLE), remedy_trials=1)  # one update's remedies
    monkeypatch.setattr("fedleak.audit.setup.load", lambda path: setup)
    fragment = generated.flower(EXAMPLE, tmp_path / "flower.svg")
    assert "20 updates of 5 clients in 4 rounds (1 to 4), recorded by the server" in fragment
    assert "True labels are recorded for 20 of the 20 updates" in fragment
    assert "| round 4 | 5 of 5 |" in fragment
    assert "](/book/_generated/flower.svg)" in fragment
    assert "<svg" in (tmp_path / "flower.svg").read_text()
