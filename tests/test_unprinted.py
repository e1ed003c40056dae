"""What the papers do not print: choices are of settings that are open, and a joint fit stands beside its null."""

import sys

import pytest
from values import item

from fedleak import paths
from fedleak.experiments import choices, published, scoreboard
from fedleak.experiments.choices import Choice, Choices
from fedleak.experiments.published import LOST
from fedleak.experiments.status import Difference, Measured

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
import unprinted


@pytest.mark.parametrize("paper", scoreboard.papers())
def test_choices_are_of_settings_that_the_paper_leaves_open(paper):
    declared, tables = choices.load(paper), published.load(paper).tables
    assert declared.written
    for one in declared.choices:
        lost = [row for name, table in tables.items() if name in (one.tables or tables) for row in table.rows]
        assert any(row.get(one.setting) == LOST for row in lost), one.setting
    for one in declared.transports:
        assert set(one.tables) <= tables.keys()


RULES = Choices("today", (Choice("lr", (0.01, 0.03), ("code", "three times"), "table"),))


def point(id, lr, value):
    return Measured(id, value, value - 0.01, value + 0.01, 10, differences=(Difference("lr", lr, LOST),))


def test_the_best_joint_choice_stands_beside_what_chance_fits():
    values = [0.1, 0.3, 0.5, 0.7, 0.9, 0.2, 0.4]
    items = [item(id=str(k), published=value, table="t", column="acc") for k, value in enumerate(values)]
    points = [(point(i.id, 0.01, 0.99 - i.published), point(i.id, 0.03, i.published)) for i in items]
    found = unprinted.best(items, points, RULES)
    assert (found["Fits best"], found["In their bands"]) == ("lr 0.03", "7 of 7")
    assert found["p"] == "0.00"
    level = [(point(i.id, 0.01, 0.5), point(i.id, 0.03, 0.5)) for i in items]
    assert unprinted.best(items, level, RULES)["p"] == "1.00"


def test_backtests_say_whether_they_count():
    text = unprinted.backtests([{"chapter": "llg", "title": "LLG"}])
    assert "| LLG | `reduced` |" in text
    assert text.count("| yes |") == 1
