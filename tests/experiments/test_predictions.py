"""Predictions: the texts and bounds that were committed before the runs, and how their outcomes follow."""

import dataclasses
import hashlib
import json
from types import SimpleNamespace

import pytest

from fedleak_book.evidence import predictions, published, scoreboard, verdicts
from fedleak_book.evidence.measurements import Measured
from fedleak_book.evidence.published import Paper
from fedleak_book.evidence.results import Results
from fedleak_book.experiments import records, running

FROZEN = {
    "arena": (69, "1bc108337020dfaa9beb2a64c96331f08d63cad44b6356f89183617668cd1c9e"),
    "learned": (49, "9c9a5ba2a7c7753f7598fedc5446fa6e9a0b912c00031c2e2dee9e97cff12913"),
}
"""Predictions of a chapter, and the digest of their texts and bounds."""


@pytest.mark.parametrize("chapter", FROZEN)
def test_texts_and_bounds_are_those_committed_before_the_runs(chapter):
    items = published.load(chapter).items.values()
    content = [[item.id, item.claim, item.kind, item.published, item.tolerance] for item in items]
    body = json.dumps(content, ensure_ascii=False).encode()
    assert (sum(not item.id.endswith("-2") for item in items), hashlib.sha256(body).hexdigest()) == FROZEN[chapter]
    assert all(item.beyond and item.since for item in items)
    declared = {claim.id for claim in running.module(chapter, "claims").CLAIMS}
    assert declared == {item.id.removesuffix("-2") for item in items}


def made_up(**values):
    """A run with two predictions: x is at least 0.5 with a tolerance of 0.1; y at least 2, and between −0.1 and 0.1."""
    same = dict.fromkeys(("item", "anchor", "claim", "where", "metric", "why"), "") | {"direction": "neither"}
    bounds = {
        "some-x": {"kind": "at least", "published": 0.5, "tolerance": 0.1},
        "some-y": {"kind": "at least", "published": 2, "tolerance": 0.0},
        "some-y-2": {"kind": "between", "published": (-0.1, 0.1), "tolerance": 0.0},
    }
    items = {id: published.Published(id=id, since="1", **same, **bound) for id, bound in bounds.items()}
    paper = Paper("some", "", "", {}, items)
    found = {id: values.get(id.removeprefix("some-").replace("-", "_")) for id in bounds}
    measured = {id: [Measured(id, ours, note="not recorded" * (ours is None))] for id, ours in found.items()}
    rows = [scoreboard.row(items[id], verdicts.row(items[id], paper, points)) for id, points in measured.items()]
    return SimpleNamespace(paper="some", published=paper, values=rows)


@pytest.mark.parametrize(
    ("values", "x", "y"),
    [
        ({"x": 0.4, "y": 2, "y_2": 0.1}, "✓", "✓"),
        ({"x": 0.39, "y": 1, "y_2": 0.0}, "✗", "✗"),
        ({"x": 0.9, "y": 3, "y_2": 0.2}, "✓", "✗"),
        ({}, "–", "–"),
    ],
)
def test_a_prediction_holds_if_all_of_its_bounds_do(values, x, y):
    run = made_up(**values)
    assert predictions.ids(run) == ["some-x", "some-y"]
    lines = list(predictions.table(run, *predictions.ids(run)))
    assert [line["held"] for line in lines] == [x, y]
    assert [line["bound"] for line in lines] == ["≥ 0.5 ± 0.1", "≥ 2; −0.1 to 0.1"]


@pytest.mark.parametrize(("kind", "text", "inside", "outside"), [("above", "> 2", 2.1, 2), ("below", "< 2", 1.9, 2)])
def test_strict_bound_excludes_its_own_value(kind, text, inside, outside):
    bound = made_up().published.items["some-y"]
    bound = dataclasses.replace(bound, kind=kind)
    assert bound.text() == text
    low, high = bound.band
    assert low <= inside <= high
    assert not low <= outside <= high


def test_prediction_without_a_record_is_not_measured_and_runs_nothing(monkeypatch):
    monkeypatch.setattr(records, "recorded", lambda *_, **__: None)
    monkeypatch.setattr(running, "run", lambda *_, **__: pytest.fail("an experiment runs"))
    measured = Results("learned", device="cpu").measure()
    assert len(measured) == 49
    assert all(one.ours is None and one.note.endswith("is not recorded") for (one,) in measured.values())
