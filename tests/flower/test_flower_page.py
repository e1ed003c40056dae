"""The page of the book: its example is a Flower app that runs, and its fragment is a report on that run."""

import sys

import pytest

from fedleak import paths
from fedleak.audit.setup import load

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
import generated

EXAMPLE = paths.root() / "book" / "flower_example.py"


@pytest.mark.slow
def test_the_fragment_is_a_report_on_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.setattr("fedleak.audit.setup.load", lambda path: load_quickly(path))
    fragment = generated.flower(EXAMPLE, tmp_path / "flower.svg")
    assert fragment.startswith("### What the updates of run give away\n")
    assert "20 updates of 5 clients in 4 rounds (1 to 4), recorded by the server" in fragment
    assert "True labels are recorded for 20 of the 20 updates" in fragment
    assert "| round 4 | 5 of 5 |" in fragment
    assert "](/book/_generated/flower.svg)" in fragment
    assert "<svg" in (tmp_path / "flower.svg").read_text()


def load_quickly(path):
    """The example's set-up, with one update's remedies."""
    from dataclasses import replace

    return replace(load(path), remedy_trials=1)
