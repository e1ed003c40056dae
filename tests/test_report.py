"""Intervals, the comparison with its status, and recorded runs that cannot be mistaken for others."""

import json
import math
import os

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedleak import paths, report
from fedleak.report import (
    BETTER,
    DIFFERS,
    MATCH,
    NOT_ATTEMPTED,
    SCALED_AGREES,
    SCALED_DIFFERS,
    Measured,
    Published,
    compare,
    interval,
    load_published,
    provenance,
    record,
    recorded,
    summarise,
    write_text,
)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A project's folder of its own, so that nothing is written to this one."""
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    return tmp_path


# --- intervals ---------------------------------------------------------------------------------------------------


def test_golden_wilson_interval_where_all_trials_agree():
    # Wilson with p = 1: the lower end is n / (n + z^2); n = 10, z = 1.96: 10 / 13.8415 = 0.7225.
    low, high = interval([1.0] * 10)
    assert low == pytest.approx(0.72247, abs=1e-5)
    assert high == pytest.approx(1.0)
    assert interval([0.0] * 10) == pytest.approx((0.0, 1 - 0.72247), abs=1e-5)


def test_two_trials_of_a_rate_get_a_wide_interval_and_of_anything_else_none():
    # Wilson with p = 0.5, n = 2, z^2 = 3.8415: centre 0.5, half = 1.96 / 2.92073 * sqrt(1/8 + 3.8415/16) = 0.4055.
    assert interval([0.0, 1.0]) == pytest.approx((0.0945, 0.9055), abs=1e-4)
    assert all(math.isnan(end) for end in interval([3.0, 4.0], rate=False))
    assert all(math.isnan(end) for end in interval([3.0], rate=False))
    assert interval([5.0] * 3, rate=False) == (5.0, 5.0)


def test_bootstrap_interval_of_a_known_spread():
    # 400 values of U(0, 1), standard deviation 1 / sqrt(12) = 0.2887: half the width is 1.96 * 0.2887 / 20 = 0.0283.
    values = np.random.default_rng(0).random(400)
    low, high = interval(values)
    assert high - low == pytest.approx(2 * 0.0283, rel=0.1)
    assert low < values.mean() < high
    assert interval(values) == (low, high)  # the same every time


@settings(max_examples=20, deadline=None, derandomize=True)
@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_the_interval_of_a_rate_holds_its_mean_and_stays_in_range(values):
    low, high = interval(values)
    assert 0 <= low <= np.mean(values) + 1e-9
    assert np.mean(values) - 1e-9 <= high <= 1


@pytest.mark.parametrize(
    ("values", "message"),
    [([], "no values"), ([0.5, 1.2, 0.1], r"a rate lies in \[0, 1\], got 0.1 to 1.2"), ([-0.1, 0.2], "a rate lies in")],
)
def test_bad_values(values, message):
    with pytest.raises(ValueError, match=message):
        interval(values)


def test_summarise_keeps_the_order_and_counts():
    table = pd.DataFrame({"k": ["b", "b", "a", "a", "a"], "one": 1, "asr": [0.0, 1.0, 0.5, 0.5, 0.5]})
    found = summarise(table, ["k", "one"], "asr")
    assert list(found.columns) == ["k", "one", "mean", "low", "high", "n"]
    assert found["k"].tolist() == ["b", "a"]
    assert found["mean"].tolist() == [0.5, 0.5]
    assert found["n"].tolist() == [2, 3]
    assert (found["low"] < found["mean"]).all()
    assert (found["high"] > found["mean"]).all()
    assert summarise(table, ["k"], "asr")["n"].tolist() == [2, 3]


# --- what the paper says -----------------------------------------------------------------------------------------


def item(**changes):
    fields = {
        "id": "fig1", "item": "Fig. 1", "anchor": "fig-1", "claim": "high", "where": "Sec. 6", "metric": "ASR",
        "direction": "higher", "kind": "value", "published": 0.9, "tolerance": 0.05, "why": "because",
    }  # fmt: skip
    return Published(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "ours", "difference", "status"),
    [
        ({}, 0.87, -0.03, MATCH),
        ({}, 0.95, 0.05, MATCH),
        ({}, 0.96, 0.06, BETTER),
        ({}, 0.84, -0.06, DIFFERS),
        ({"direction": "lower"}, 0.84, -0.06, BETTER),
        ({"direction": "lower"}, 0.96, 0.06, DIFFERS),
        ({"direction": "neither"}, 0.96, 0.06, DIFFERS),
        ({"kind": "at least"}, 1.0, 0.0, MATCH),
        ({"kind": "at least"}, 0.86, -0.04, MATCH),
        ({"kind": "at least"}, 0.8, -0.1, DIFFERS),
        ({"kind": "at most"}, 0.1, 0.0, MATCH),
        ({"kind": "at most", "direction": "lower"}, 1.0, 0.1, DIFFERS),
        ({"kind": "between", "published": (0.7, 0.8)}, 0.75, 0.0, MATCH),
        ({"kind": "between", "published": (0.7, 0.8)}, 0.66, -0.04, MATCH),
        ({"kind": "between", "published": (0.7, 0.8)}, 0.6, -0.1, DIFFERS),
        ({"kind": "between", "published": (0.7, 0.8)}, 0.9, 0.1, BETTER),
        ({"published": 0.98, "tolerance": 0.01}, 0.97, -0.01, MATCH),  # 0.98 - 0.97 > 0.01 in binary
        ({"tolerance": 0.0}, 0.9, 0.0, MATCH),
    ],
)
def test_status(changes, ours, difference, status):
    assert item(**changes).difference(ours) == pytest.approx(difference)
    assert item(**changes).status(ours, scaled=False) == status
    assert item(**changes).status(ours, scaled=True) == (SCALED_AGREES if status == MATCH else SCALED_DIFFERS)


def test_text():
    assert item().text() == "0.9"
    assert item(kind="at least").text() == "≥ 0.9"
    assert item(kind="at most").text() == "≤ 0.9"
    assert item(kind="between", published=(0.7, 0.85)).text() == "0.7 to 0.85"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "about"}, "fig1: kind 'about' does not go with published = 0.9"),
        ({"kind": "between"}, "kind 'between' does not go with published = 0.9"),
        ({"published": (0.1, 0.2)}, r"kind 'value' does not go with published = \(0.1, 0.2\)"),
        ({"direction": "up"}, "direction is 'higher', 'lower' or 'neither', not 'up'"),
        ({"tolerance": -0.1}, "the tolerance is not negative, got -0.1"),
        ({"tolerance": math.nan}, "the tolerance is not negative, got nan"),
    ],
)
def test_bad_items(changes, message):
    with pytest.raises(ValueError, match=message):
        item(**changes)


def test_compare_shows_every_item_measured_or_not():
    published = {i.id: i for i in (item(), item(id="fig2"), item(id="fig3", kind="at least"))}
    rows = compare(
        published,
        [
            Measured("fig1", 0.91, 0.89, 0.93, 100),
            Measured("fig1", 0.5, n=3, source="recorded", scaled="3 trials", note="slow"),
            Measured("fig3", None, note="needs a GPU"),
        ],
    )
    assert [row["id"] for row in rows] == ["fig1", "fig1", "fig2", "fig3"]
    first, scaled, missing, skipped = rows
    assert (first["ours"], first["low"], first["high"], first["n"], first["status"]) == (0.91, 0.89, 0.93, 100, MATCH)
    assert first["difference"] == pytest.approx(0.01)
    assert (scaled["status"], scaled["note"], scaled["low"]) == (SCALED_DIFFERS, "3 trials; slow", None)
    assert (missing["status"], missing["ours"], missing["note"]) == (NOT_ATTEMPTED, None, "nothing was measured for it")
    assert (skipped["status"], skipped["note"], skipped["difference"]) == (NOT_ATTEMPTED, "needs a GPU", None)
    json.dumps(rows, allow_nan=False)  # what the scoreboard reads is valid JSON


def test_a_measurement_that_is_not_a_number_was_not_attempted():
    (row,) = compare({"fig1": item()}, [Measured("fig1", math.nan)])
    assert (row["status"], row["ours"]) == (NOT_ATTEMPTED, None)


def test_a_measurement_for_an_unknown_item():
    with pytest.raises(ValueError, match="measured 'fig9', which is not among the published items"):
        compare({"fig1": item()}, [Measured("fig9", 0.5)])


TOML = """
title = "A paper"
key = "a2020paper"
[[item]]
id = "fig1"
item = "Fig. 1"
anchor = "fig-1"
claim = "between"
where = "Sec. 6"
metric = "ASR"
direction = "higher"
kind = "between"
published = [0.7, 0.8]
tolerance = 0.05
why = "because"
"""


def publish(checkout, text):
    folder = checkout / "data" / "published"
    folder.mkdir(parents=True)
    (folder / "paper.toml").write_text(text)


def test_published_numbers_are_read(checkout):
    publish(checkout, TOML)
    head, items = load_published("paper")
    assert head == {"title": "A paper", "key": "a2020paper"}
    assert items["fig1"].published == (0.7, 0.8)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('why = "because"', "", "item 'fig1': .*why"),
        ('why = "because"', 'why = "because"\nsize = 3', "item 'fig1': .*size"),
        ("[[item]]", TOML.partition("\n[[item]]")[2].join(["[[item]]", "[[item]]"]), "two items 'fig1'"),
        ("tolerance = 0.05", "tolerance = -1", "fig1: the tolerance is not negative"),
        ("published = [0.7, 0.8]", "published = 0.7", "fig1: kind 'between' does not go with"),
    ],
)
def test_bad_published_numbers(checkout, old, new, message):
    publish(checkout, TOML.replace(old, new, 1))
    with pytest.raises(ValueError, match=message):
        load_published("paper")


def test_every_published_file_of_this_checkout_is_good():
    files = sorted((paths.root() / "data" / "published").glob("*.toml"))
    assert files
    for file in files:
        head, items = load_published(file.stem)
        assert {"title", "key"} <= head.keys()
        assert items
        assert all(i.why and i.where and i.claim for i in items.values())


# --- recorded runs -----------------------------------------------------------------------------------------------


def test_a_recorded_table_comes_back_as_it_was(checkout):
    table = pd.DataFrame({"name": ["LLG*", "None", "NA"], "asr": [1 / 3, math.nan, 1.1e-17], "n": [1, 2, 3]})
    table = pd.concat([table, pd.DataFrame({"name": "x", "asr": np.random.default_rng(0).random(500), "n": 1})])
    table = table.reset_index(drop=True)
    record("paper", "fig1", table, {"commit": "abc"})
    found, facts = recorded("paper", "fig1")
    pd.testing.assert_frame_equal(found, table, check_exact=True)
    assert facts["commit"] == "abc"
    assert len(facts["sha256"]) == 64
    assert recorded("paper", "fig2") is None
    assert not list(checkout.rglob("*.tmp"))


def test_a_table_that_was_changed_by_hand_is_refused(checkout):
    record("paper", "fig1", pd.DataFrame({"asr": [0.5]}), {})
    file = paths.recorded("paper") / "fig1.csv"
    file.write_text(file.read_text().replace("0.5", "0.9"))
    with pytest.raises(ValueError, match=r"fig1\.csv is not the table that its provenance was written for"):
        recorded("paper", "fig1")
    file.with_suffix(".json").unlink()
    with pytest.raises(ValueError, match=r"fig1\.csv has no provenance beside it"):
        recorded("paper", "fig1")


def test_a_table_is_never_half_written(checkout, monkeypatch):
    record("paper", "fig1", pd.DataFrame({"asr": [0.5]}), {})
    before = (paths.recorded("paper") / "fig1.csv").read_text()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        record("paper", "fig1", pd.DataFrame({"asr": [0.7]}), {})
    assert (paths.recorded("paper") / "fig1.csv").read_text() == before


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PermissionError, match=r"cannot write a\.csv to .*file"):
        write_text(tmp_path / "file" / "a.csv", "text")


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_read_only_folder(tmp_path):
    (tmp_path / "out").mkdir(mode=0o555)
    with pytest.raises(PermissionError, match=r"cannot write a\.csv to .*Permission denied"):
        write_text(tmp_path / "out" / "a.csv", "text")


def test_written_files_can_be_read_by_others(tmp_path):
    write_text(tmp_path / "deep" / "a.txt", "text")
    assert (tmp_path / "deep" / "a.txt").stat().st_mode & 0o777 == 0o644


def test_provenance_says_where_a_result_comes_from(checkout):
    facts = provenance(profile="paper", seed=3)
    assert {"date", "commit", "fedleak", "torch", "python", "processor"} <= facts.keys()
    assert (facts["profile"], facts["seed"]) == ("paper", 3)
    assert facts["commit"] == "unknown"  # a folder without git
    json.dumps(facts)


def test_provenance_names_the_commit_of_a_checkout():
    commit = report.provenance()["commit"]
    if commit != "unknown":  # an unpacked archive has none
        assert len(commit.removesuffix("+changes")) == 12


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_an_interval_of_non_finite_values_is_refused(bad):
    with pytest.raises(ValueError, match="1 of 3 values are NaN or infinite"):
        report.interval([0.5, bad, 0.7], rate=False)
