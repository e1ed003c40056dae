"""What the papers print, pinned as it was written down: nothing is lost, and no tolerance moves.

`pinned/values.json` holds all values with their tolerances, our values and statuses as they were when each was pinned;
`pinned/changed_<paper>.csv` lists every status that is another now, with the rule that changed it.
"""

import csv
import json
from pathlib import Path

import pytest

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


def changed(paper):
    path = HERE / f"changed_{paper}.csv"
    if not path.exists():
        return {}
    with open(path, encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


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
