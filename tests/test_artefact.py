"""The artefact appendix: every value of the papers is counted once, and every command names what is declared."""

import re
import sys

import pytest

from fedleak import paths
from fedleak.experiments import scoreboard

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
import artefact
import overview
from generated import comparisons

PAPERS = comparisons()
TEXT = artefact.appendix(PAPERS)


def test_every_value_is_in_one_count():
    listed = overview.read("artefacts")
    for paper in PAPERS:
        rows = [row for row in paper["rows"] if not row["beyond"]]
        lines = [
            artefact.line(paper["chapter"], a, [row for row in rows if overview.belongs(row, a)], {})
            for a in listed[paper["chapter"]]
        ]
        assert sum(one["Values"] for one in lines) == len(rows)
        for one in lines:
            counts = [0 if one[name] == "·" else one[name] for name in artefact.COUNTS]
            assert min(counts) >= 0
            assert sum(counts) == one["Values"]


def test_the_sum_is_that_of_the_scoreboard():
    counted = scoreboard.overview()["all"]
    names = "values|" + "|".join(name.lower() for name in artefact.COUNTS)
    total, *counts = map(int, re.findall(rf"(\d+) (?:{names})", TEXT.split("\n")[0]))
    values = [row for paper in PAPERS for row in paper["rows"] if not row["beyond"]]
    assert total == sum(counts) == len(values)
    assert counts[1] + counts[3] == len(overview.differ(values))
    assert counts[0] == counted["match"] + counted["better"]
    assert counts[2] == counted["scaled_agrees"]


@pytest.mark.parametrize("paper", [paper["chapter"] for paper in PAPERS])
def test_commands_name_records_that_are_there(paper):
    found = re.findall(rf"`fedleak record {paper} ([^`]+)`", TEXT)
    assert found
    assert {name for names in found for name in names.split()} <= overview.records_of(paper).keys()
