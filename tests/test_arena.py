"""The arena: an attack that refuses updates is not ranked by the others; an adaptive one knows the defence alone."""

import importlib
from dataclasses import replace

import pandas as pd
import pytest

from fedleak.attacks import registry
from fedleak_book.evidence.results import Results
from fedleak_book.experiments import records, running

FOUND = {  # iAcc of four updates in an easy and a hard cell; None: refused
    "prior guess": ([0.5] * 4, [0.5] * 4),
    "steady": ([0.75] * 4, [0.6] * 4),
    "picky": ([1.0, 1.0, None, 1.0], [1.0] * 4),
    "absent": ([1.0] * 4, None),
}


@pytest.fixture
def ranking():
    return running.module("arena", "ranking")


@pytest.fixture
def anew():
    """Import the arena's experiments anew, from the attacks that are registered then; and once more after the test."""

    def imported():
        for part in ("updates", "experiments"):
            importlib.reload(running.module("arena", part))
        return running.declared("arena")

    yield imported
    imported()


@pytest.fixture
def table():
    rows = [
        {"column": column, "trial": trial, "attack": attack, "iacc": iacc}
        for attack, both in FOUND.items()
        for column, each in zip(("easy", "hard"), both, strict=True)
        for trial, iacc in enumerate(each or [])
    ]
    return pd.DataFrame(rows).assign(row="LeNet", network=lambda t: t["trial"])


def test_who_refused_an_update_wins_no_cell(ranking, table):
    won = ranking.find_best(table, ["row", "column"]).set_index("column")
    assert won["attack"].to_dict() == {"easy": "absent", "hard": "picky"}
    won = ranking.find_best(table, ["row", "column"], ["steady", "picky"]).set_index("column")
    assert won["attack"].to_dict() == {"easy": "steady", "hard": "picky"}
    assert won["iacc"].to_dict() == {"easy": 0.75, "hard": 1.0}
    mean = ranking.tabulate_means(table, "row", "column").set_index("attack")
    assert list(mean.index[:2]) == ["steady", "prior guess"]
    assert mean.loc["steady", ["LeNet", "mean"]].tolist() == pytest.approx([0.675, 0.675])
    assert mean.loc[["picky", "absent"], ["LeNet", "mean"]].isna().all(axis=None)
    assert mean["cells"].to_dict() == {"steady": 2, "prior guess": 2, "picky": 1, "absent": 1}


def test_an_attack_that_is_added_is_computed_alone(monkeypatch, anew):
    def units(experiments):
        return [
            (e.name, e.version, p, s) for e in experiments.values() for p in ("quick", "paper") for s in e.settings(p)
        ]

    before = units(running.declared("arena"))
    monkeypatch.setitem(registry._ATTACKS, "mine", replace(registry.get("LLG"), name="mine"))
    after = units(anew())
    monkeypatch.undo()
    assert [unit for unit in after if unit[-1].get("attack") != "mine"] == before
    assert len({name for name, *_, setting in after if setting.get("attack") == "mine"}) == 9


def test_every_sentence_of_the_advice_moves_with_the_records(monkeypatch):
    advice = running.module("arena", "advice").advice
    before, recorded = list(advice(Results("arena", device="cpu"))), records.recorded

    def other(paper, name, profile="paper"):
        if (record := recorded(paper, name, profile)) is None or "iacc" not in record.rows:
            return record
        return replace(record, rows=record.rows.assign(iacc=0.1 + 0.7 * record.rows["iacc"]))

    monkeypatch.setattr(records, "recorded", other)
    after = list(advice(Results("arena", device="cpu")))
    assert all(holds for _, holds in before)
    assert not all(holds for _, holds in after)
    still = [text for (text, _), (now, _) in zip(before, after, strict=True) if text == now]
    assert len(still) == 2  # they count updates, and attacks
