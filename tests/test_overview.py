"""The scoreboard's pages: every value is counted in one place, every link has a target, every command a record."""

import json
import re

import pandas as pd
import pytest

from fedleak_book import paths
from fedleak_book.evidence import published
from fedleak_book.evidence.results import figure_of, slug
from fedleak_book.experiments import recheck, records, running

PUBLISHED = {paper: published.load(paper) for paper in paths.papers()}
NOTEBOOKS = {}  # the cells of each chapter, with those of the notebook that continues it
for name in paths.notebooks():
    cells_of = json.loads(paths.source_notebook(name).read_text(encoding="utf-8"))["cells"]
    NOTEBOOKS.setdefault(paths.chapter_of(name), {"cells": []})["cells"] += cells_of


def anchors(notebook):
    names = set()
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        for pattern in (r"^\(([\w-]+)\)=", r"\$\$\s*\(([\w-]+)\)", r":label: ([\w-]+)"):
            names.update(re.findall(pattern, text, re.M))
        names.add(cell["metadata"].get("mystnb", {}).get("figure", {}).get("name"))
    return names


# --- the lists under data/ ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("paper", PUBLISHED)
def test_every_published_value_has_an_anchor(paper):
    """No name needs escaping in HTML or an address, nor is one the anchor of a heading of its page."""
    items = PUBLISHED[paper].items
    rows = [vars(item) for item in items.values()]
    headings = {slug(figure_of(row)) for row in rows} | {slug(name) for name in running.declared(paper)}
    assert [key for key in items if not re.fullmatch(r"[A-Za-z][A-Za-z0-9.-]*", key)] == []
    assert headings.isdisjoint(items)


@pytest.mark.parametrize("paper", PUBLISHED)
def test_records_are_experiments_of_the_chapter(paper):
    """What is recorded is declared, and the records say what the declaration says."""
    experiments = running.declared(paper)
    for file in paths.recorded(paper).glob("*.csv"):
        if records.joined_in(paper, file.stem) or file.stem in records.retired(paper):
            continue
        facts = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
        now = json.loads(json.dumps(experiments[file.stem].declared))
        # a record can be of an earlier version, which recheck then passes over, and of a trial that had another name
        aside = {"filled": 0, "version": 0, "trial": ""}
        assert {**facts["declared"], **aside} == {**now, **aside}, file.stem
        assert facts["declared"]["version"] <= now["version"], file.stem


def test_blank_or_lost_rows_are_no_agreement():
    keys = {"axes": ["net"], "by": ["attack"], "times": [], "rounding": [], "fixed": {}}
    declared = keys | {"values": ["iacc"], "kinds": {"iacc": {"name": "mean"}}}
    trials = [{"net": "cnn", "trial": k, "attack": a, "iacc": 0.88 + k / 100} for k in range(10) for a in "AB"]
    table = pd.DataFrame(trials)
    blank = table.assign(iacc=table["iacc"].where(table["trial"] == 4))
    assert recheck.DIFFERS not in recheck.compare(table, table, declared)
    assert recheck.DIFFERS not in recheck.compare(blank, blank, declared)
    assert recheck.compare(table, blank, declared).count(recheck.DIFFERS) == 18
    lost = recheck.missing(table, table[table["attack"] == "A"], ["net"], ["net", "attack"])
    assert set(lost["attack"]) == {"B"}
    assert len(lost) == 10
    assert recheck.missing(table, table[table["trial"] < 3], ["net"], ["net", "attack"]).empty
