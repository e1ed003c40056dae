"""What every notebook shares: parameters that are checked, tables beside recorded ones, the comparison for the book."""

import json
import math

import pandas as pd
import pytest
import torch

from fedleak import chapter as module
from fedleak import paths, report
from fedleak.chapter import NOW, RECORDED, Chapter, show
from fedleak.report import Measured


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def shown(monkeypatch):
    """What the chapter displays, as HTML."""
    found = []
    monkeypatch.setattr(module, "display", lambda thing: found.append(thing.data))
    return found


def chapter(**changes):
    fields = {"paper": "paper", "profile": "quick", "device": "cpu", "seed": 0, "trials": 0, "data_root": ""}
    return Chapter(**{**fields, "record": False, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"profile": "fast"}, "profile is 'quick' or 'paper', not 'fast'"),
        ({"trials": -1}, "trials is 0 .* or more, got -1"),
        ({"record": True}, "only the paper profile is recorded"),
        ({"device": "tpu"}, "PyTorch cannot use device='tpu' here: 'cpu', 'cuda' or 'auto'"),
    ],
)
def test_bad_parameters(changes, message):
    with pytest.raises(ValueError, match=message):
        chapter(**changes)


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="torch sees no GPU here"):
        chapter(device="cuda")
    assert chapter(device="auto").device == "cpu"


def test_a_profile_picks_and_trials_override_it():
    quick, paper = chapter(), chapter(profile="paper")
    assert (quick.full, paper.full) == (False, True)
    assert (quick.pick(1, 2), paper.pick(1, 2)) == (1, 2)
    assert (quick.count(10, 100), paper.count(10, 100)) == (10, 100)
    assert chapter(profile="paper", trials=3).count(10, 100) == 3


def test_sweep_uses_the_chapters_seed_and_cache(checkout):
    def trial(seeds, a):
        return [{"seed": s, "value": a * s} for s in seeds]

    one = chapter(seed=5)
    table = one.sweep(trial, {"a": [1, 2]}, 3)
    assert len(table) == 6
    assert len(list((checkout / "_build" / "cache" / "paper" / "trial").glob("*.json"))) == 2
    pd.testing.assert_frame_equal(chapter(seed=5).sweep(trial, {"a": [1, 2]}, 3), table)
    assert not chapter(seed=6).sweep(trial, {"a": [1, 2]}, 3)["value"].equals(table["value"])


def test_a_table_stands_beside_the_recorded_one(checkout):
    old = pd.DataFrame({"batch_size": [1, 2], "mean": [0.5, 0.6]})
    new = pd.DataFrame({"batch_size": [1], "mean": [0.4]})
    quick = chapter()
    assert quick.table("fig1", lambda: new)["source"].tolist() == [NOW]
    full = chapter(profile="paper", record=True, seed=9)
    assert full.table("fig1", lambda: old, note="x")["source"].tolist() == [NOW, NOW]
    both = quick.table("fig1", lambda: new)
    assert both["source"].tolist() == [NOW, RECORDED, RECORDED]
    assert both["mean"].tolist() == [0.4, 0.5, 0.6]
    facts = report.recorded("paper", "fig1")[1]
    assert {"profile": "paper", "seed": 9, "device": "cpu", "note": "x", "datasets": []}.items() <= facts.items()
    quick.table("fig1", lambda: new)
    assert report.recorded("paper", "fig1")[0]["mean"].tolist() == [0.5, 0.6]  # only recording writes


def test_loaded_data_are_noted_with_their_digest(checkout, monkeypatch):
    monkeypatch.delenv("FEDLEAK_DATA", raising=False)
    full = chapter(profile="paper", record=True)
    images = full.load("synthetic")
    full.table("fig1", lambda: pd.DataFrame({"mean": [1.0]}))
    (noted,) = report.recorded("paper", "fig1")[1]["datasets"]
    assert (noted["name"], noted["digest"], noted["images"]) == ("synthetic/train", images.digest, len(images))


def test_the_cache_key_of_a_trial_that_reads_the_chapter_does_not_change_while_it_runs(checkout):
    one = chapter()
    before = repr(one)
    one.load("synthetic")
    one._seconds += 3
    assert repr(one) == before


PUBLISHED = """
title = "A paper"
key = "a2020paper"
[[item]]
id = "fig1"
item = "Fig. 1"
anchor = "fig-1"
claim = "it works"
where = "Sec. 6"
metric = "ASR"
direction = "higher"
kind = "at least"
published = 0.9
tolerance = 0.05
why = "because"
"""


def test_the_comparison_is_left_for_the_scoreboard(checkout, shown):
    paths.published("paper").parent.mkdir(parents=True)
    paths.published("paper").write_text(PUBLISHED)
    one = chapter()
    table = one.compare([Measured("fig1", 0.93, 0.92, 0.94, 10), Measured("fig1", 0.5, n=100, source=RECORDED)])
    assert table["status"].tolist() == [report.MATCH, report.DIFFERS]
    left = json.loads(paths.executed_comparison("paper").read_text())
    assert (left["paper"], left["title"], left["profile"]) == ("paper", "A paper", "quick")
    assert [row["ours"] for row in left["rows"]] == [0.5]  # recorded rows stand for the chapter where there are any
    one.compare([Measured("fig1", 0.93)])
    left = json.loads(paths.executed_comparison("paper").read_text())
    assert [row["status"] for row in left["rows"]] == [report.MATCH]
    assert one.published()["fig1"].published == 0.9


def test_the_comparison_names_what_was_not_attempted(checkout, shown):
    paths.published("paper").parent.mkdir(parents=True)
    paths.published("paper").write_text(PUBLISHED)
    one = chapter()
    one.show_comparison(one.compare([Measured("fig1", 0.93, 0.92, 0.94, 10)]))
    assert "≥ 0.9" in shown[0]
    assert "0.93 [0.92, 0.94], n = 10" in shown[0]
    one.show_comparison(one.compare([Measured("fig1", None, source=NOW, note="needs a GPU")]))
    assert report.NOT_ATTEMPTED in shown[1]


def test_show_provenance(checkout, shown):
    one = chapter(profile="paper", record=True)
    one.show_provenance(["fig1"])
    assert shown == []
    one.load("synthetic")
    one.table("fig1", lambda: pd.DataFrame({"mean": [1.0]}))
    one.show_provenance(["fig1", "fig2"])
    assert "fig1" in shown[0]
    assert "synthetic/train" in shown[1]
    assert "fig2" not in shown[0]


def test_show_is_the_same_every_time_and_marks_what_is_missing(shown):
    table = pd.DataFrame({"name": ["a"], "value": [0.123456], "none": [math.nan]})
    for _ in range(2):
        show(table, "A caption.")
    assert shown[0] == shown[1]
    assert "A caption." in shown[0]
    assert "0.123" in shown[0]
    assert "0.1234" not in shown[0]
    assert "–" in shown[0]
