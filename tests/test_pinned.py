"""What the papers print, pinned as it was written down: nothing is lost, and no tolerance moves.

`pinned/values.json` holds all values with their tolerances, our values and statuses as they were when each was pinned;
`pinned/changed_<paper>.csv` lists every status that is another now, with the rule that changed it.
`pinned/statistics.csv` holds the fingerprints of the statistics by which claims are measured, pinned on 2026-11-28;
`pinned/changed_statistics.csv` lists those that are others now, with the reason. Further readings may be added.
"""

import csv
import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from fingerprints import fingerprint

from fedleak_book import paths
from fedleak_book.experiments import published, scoreboard

HERE = Path(__file__).parent / "pinned"
VALUES = json.loads((HERE / "values.json").read_text(encoding="utf-8"))
PAPERS = [p for p in dict.fromkeys(v["paper"] for v in VALUES) if (paths.published(p) / "tables.toml").exists()]
SAME = {
    "✓ match": {"✓ agrees (A)"},
    "▲ better": {"▲ better (A)"},
    "✗ differs": {"✗ differs (A)"},
    "≈ undecided": {"≈ open (A)"},
    "◌ scaled down, agrees": {"✓ agrees (D)"},
    "◌ scaled down, differs": {"✗ differs (D)", "▲ better (D)"},
    "◌ agrees": {"✓ agrees (D)"},
    "◌ differs": {"✗ differs (D)", "▲ better (D)"},
    "◌ undecided": {"≈ open (D)"},
    "— not attempted": {"— not attempted"},
}
"""What the statuses of then are called now."""


def pinned(paper):
    return {v["id"]: v for v in VALUES if v["paper"] == paper}


def lines(name):
    with open(HERE / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def changed(paper):
    name = f"changed_{paper}.csv"
    return {row["id"]: row for row in lines(name)} if (HERE / name).exists() else {}


def test_all_values_are_pinned():
    assert len(VALUES) == 757
    assert len({(v["paper"], v["id"]) for v in VALUES}) == 757


@pytest.mark.parametrize("paper", PAPERS)
def test_published_values_come_back(paper):
    now, then = published.load(paper).items, pinned(paper)
    assert set(then) <= set(now)
    assert [k for k in set(now) - set(then) if not now[k].beyond] == [], "a new value of a paper is pinned with it"
    for key, value in then.items():
        item = now[key]
        shown = list(item.published) if isinstance(item.published, tuple) else item.published
        assert (shown, item.kind, item.direction, item.tolerance, item.where) == (
            value["published"],
            value["kind"],
            value["direction"],
            value["tolerance"],
            value["where"],
        ), key


@pytest.mark.parametrize("paper", PAPERS)
def test_statuses_change_for_a_listed_rule_only(paper):
    then, listed = pinned(paper), changed(paper)
    rows = {row["id"]: row for row in scoreboard.rows(paper)}
    moved = {k: rows[k]["status"] for k, v in then.items() if rows[k]["status"] not in SAME[v["status"]]}
    assert moved == {k: row["now"] for k, row in listed.items()}
    for key in moved:
        row = listed[key]
        assert row["then"] == then[key]["status"]
        assert row["rule"].strip()


def statistics(paper):
    """Return the fingerprints of each claim's statistics, by id."""
    fingerprints = {}
    for claim in importlib.import_module(f"notebooks.{paper}.claims").CLAIMS:
        if claim.statistic is not None:
            fingerprints.setdefault(claim.id, set()).add(fingerprint(claim))
    return fingerprints


@pytest.mark.parametrize("paper", PAPERS)
def test_no_statistic_moves_unless_the_reason_is_listed(paper):
    now = statistics(paper)
    then = {row["id"]: set(row["fingerprints"].split()) for row in lines("statistics.csv") if row["paper"] == paper}
    gone = {(key, mark) for key, marks in then.items() for mark in marks - now.get(key, set())}
    listed = {(row["id"], row["then"]): row["why"] for row in lines("changed_statistics.csv") if row["paper"] == paper}
    assert gone == set(listed)
    assert all(why.strip() for why in listed.values())
    assert set(now) == set(then), "a new claim's statistics are pinned with it"


def test_a_fingerprint_is_of_what_a_statistic_does():
    claims = importlib.import_module("notebooks.gdbr.claims")
    (claim, *_) = [c for c in claims.CLAIMS if c.id == "fig6a-vgg11-cifar10-high"]
    other = replace(claim, statistic=claims.over_dummies(1, 100))
    assert fingerprint(claim) == fingerprint(replace(claim))
    assert (
        len({fingerprint(c) for c in (claim, other, replace(claim, filters=claim.filters | {"defence": "noise"}))}) == 3
    )
    assert fingerprint(other) != fingerprint(replace(claim, statistic=claims.over_dummies(1, 1000)))
