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


def test_every_value_is_counted_once():
    listed = overview.read("artefacts")
    for paper in PAPERS:
        rows = [row for row in paper["rows"] if not row["beyond"]]
        lines = [
            artefact.line(paper["chapter"], a, [row for row in rows if overview.belongs(row, a)], {})
            for a in listed[paper["chapter"]]
        ]
        assert sum(one["Values"] for one in lines) == len(rows)
    assert f"{scoreboard.overview()['all']['total']} values" in TEXT


@pytest.mark.parametrize("paper", [paper["chapter"] for paper in PAPERS])
def test_commands_name_records_that_are_there(paper):
    found = re.findall(rf"`fedleak record {paper} ([^`]+)`", TEXT)
    assert found
    assert {name for names in found for name in names.split()} <= overview.records_of(paper).keys()


HEADINGS = (
    ("Description", "Security, privacy and ethical concerns"),
    ("Basic requirements", "Hardware requirements", "Software requirements", "Estimated time and storage"),
    ("Environment", "Accessibility", "Set up the environment", "Test the environment"),
    ("Artefact evaluation", "Main results and claims", "Experiments"),
    ("Limitations",),
    ("Notes on reusability",),
)
"""Those of the artefact appendix of PoPETs."""


def test_the_page_has_the_headings_of_an_artefact_appendix():
    text = (paths.root() / "book" / "artefact.md").read_text(encoding="utf-8")
    told = [f"## {first}" for first, *_ in HEADINGS], [f"### {name}" for _, *rest in HEADINGS for name in rest]
    assert (re.findall(r"^## .+", text, re.M), re.findall(r"^### .+", text, re.M)) == told
    (page,) = re.findall(r"\]\((.+?)\)", (paths.root() / "ARTIFACT-APPENDIX.md").read_text(encoding="utf-8"))
    assert (paths.root() / page).read_text(encoding="utf-8") == text
