"""What the papers do not print is listed: settings, and values of them that were ever recorded."""

import dataclasses

import pytest

from fedleak_book import paths
from fedleak_book.experiments import choices, completeness, published
from fedleak_book.experiments.choices import Choices, Undeclared


@pytest.mark.parametrize("paper", paths.papers())
def test_every_unprinted_setting_has_choices_or_a_reason(paper):
    assert completeness.unlisted(published.load(paper)) == []


def test_a_missing_choice_and_a_missing_value_are_named(monkeypatch):
    paper, rules = published.load("lia_sa"), choices.load("lia_sa")
    few = tuple(dataclasses.replace(one, values=one.values[:1]) for one in rules.choices if one.setting == "constants")
    monkeypatch.setattr(choices, "load", lambda name: Choices(rules.written, few))
    named = completeness.unlisted(paper)
    assert "table1: widths has no choices where data is mnist, rule is LLG" in named
    assert any(name.startswith("fig3: constants 10^(u - U) is recorded (constants) and no choice") for name in named)
    excused = Choices(rules.written, few, (), (Undeclared("constants", "because"), Undeclared("widths", "because")))
    monkeypatch.setattr(choices, "load", lambda name: excused)
    assert all(name.startswith("fig5") for name in completeness.unlisted(paper))
