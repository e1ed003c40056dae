"""The scoreboard's overview and the page on what does not reproduce: every value has its place, every link a target."""

import json
import re
import sys

import pytest

from fedleak import paths
from fedleak.experiments import published, running, scoreboard

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
import overview

PUBLISHED = {paper: published.load(paper) for paper in scoreboard.papers()}
NOTEBOOKS = {path.stem: json.loads(path.read_text()) for path in (paths.root() / "notebooks").glob("*.ipynb")}
ARTEFACTS, ERRATA = overview.read("artefacts"), overview.read("errata")


def anchors(notebook):
    found = set()
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        for pattern in (r"^\(([\w-]+)\)=", r"\$\$\s*\(([\w-]+)\)", r":label: ([\w-]+)"):
            found.update(re.findall(pattern, text, re.M))
        found.add(cell["metadata"].get("mystnb", {}).get("figure", {}).get("name"))
    return found


def row(**changes):
    return {
        "item": "Table I, MNIST",
        "anchor": "tab-x",
        "claim": "LLG* wins",
        "where": "Sec. 1",
        "metric": "ASR",
        "direction": "higher",
        "published": "0.9",
        "ours": 0.8,
        "difference": -0.1,
        "tolerance": 0.05,
        "status": "✗ differs (A)",
        "verdict": "differs",
        "grade": "A",
        "blocks": [],
        "source": "recorded",
        "differences": [],
        "remarks": [],
        "note": "",
        **changes,
    }


@pytest.mark.parametrize("paper", sorted(PUBLISHED.keys() & ARTEFACTS.keys()))
def test_every_published_value_belongs_to_one_table_or_figure(paper):
    items = [vars(item) for item in PUBLISHED[paper].items.values()]
    assert not overview.unlisted({"rows": items}, ARTEFACTS[paper])
    for artefact in ARTEFACTS[paper]:
        assert any(overview.belongs(item, artefact) for item in items), artefact["name"]


@pytest.mark.parametrize("paper", sorted(NOTEBOOKS.keys() & ARTEFACTS.keys()))
def test_records_are_experiments_of_the_chapter(paper):
    """What is recorded, and what the overview names, is declared; and the records say what the declaration says."""
    experiments = running.declared(paper)
    assert {name for artefact in ARTEFACTS[paper] for name in artefact.get("records", ())} <= experiments.keys()
    for file in paths.recorded(paper).glob("*.csv"):
        facts = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
        now = json.loads(json.dumps(experiments[file.stem].declared))
        same = {**facts["declared"], "filled": 0} == {**now, "filled": 0}
        assert same, file.stem


@pytest.mark.parametrize("paper", sorted(NOTEBOOKS.keys() & ERRATA.keys()))
def test_every_erratum_leads_to_its_chapter(paper):
    there = anchors(NOTEBOOKS[paper])
    for erratum in ERRATA[paper]:
        assert erratum["see"], erratum["where"]
        assert {anchor for _, anchor in erratum["see"]} <= there, erratum["where"]
        assert all(erratum[key].strip().endswith(".") for key in ("wrong", "shown"))


def test_names_that_begin_alike_are_told_apart():
    one = {"name": "Table I"}
    assert overview.belongs(row(item="Table I"), one)
    assert overview.belongs(row(item="Table I, MNIST"), one)
    assert not overview.belongs(row(item="Table II"), one)
    assert not overview.belongs(row(item="Fig. 10"), {"name": "Fig. 1"})
    assert overview.belongs(row(item="Fig. 8a"), {"name": "Fig. 8"})


def test_a_table_says_how_many_values_have_which_verdict():
    told = [("agrees", "A"), ("agrees", "A"), ("differs", "D"), ("open", "D"), ("depends", "B"), ("not attempted", "")]
    rows = [row(verdict=verdict, grade=grade) for verdict, grade in told]
    assert overview.verdict(rows) == "A: ✓ 2 agrees<br>B: ⇄ 1 depends<br>D: ✗ 1 differs, ≈ 1 open<br>— 1 not attempted"
    assert overview.verdict([]) == ""


def test_the_largest_difference_is_measured_in_tolerances():
    rows = [row(difference=5.0, tolerance=10.0, metric="s"), row(difference=-0.1, tolerance=0.01, metric="LLG*")]
    assert overview.widest(rows) == r"−0.1<br>*LLG\**"
    assert overview.widest([*rows, row(difference=0.001, tolerance=0.0)]).startswith("0.001")
    assert overview.widest([row(difference=0.0)]) == "0"
    assert overview.widest([row(verdict="not attempted", difference=None)]) == "–"


def test_hardware_and_cost_come_from_the_provenance():
    cpu = {"device": "cpu", "threads": 2, "seconds": 90.0}
    gpu = {"device": "NVIDIA H100", "threads": 8, "seconds": 7200.0}
    assert overview.hardware([cpu, gpu]) == "CPU, 2 threads; NVIDIA H100, 8 threads"
    assert [overview.duration(facts) for facts in ([], [cpu], [cpu, gpu])] == ["–", "2 min", "2.0 h"]


def test_the_overview_lists_a_paper_without_a_chapter():
    title = PUBLISHED["llg"].title
    text = overview.overview([{"chapter": "llg", "title": title, "rows": []}])
    assert f"### {title}" in text
    assert text.count("— not attempted |") == sum(map(len, ARTEFACTS.values()))
    assert "### GDBR (its chapter is not in this book)" in text


def test_errata_are_shown_for_the_chapters_of_the_book_only():
    text = overview.errata(["llg"])
    assert text.count("\n| ") == len(ERRATA["llg"]) + 2
    assert "eq-agic" not in text


def test_what_is_in_the_way_is_counted():
    rows = [{"beyond": False, "blocks": blocks} for blocks in ([], ["trials"], ["not printed", "data"])]
    text = overview.in_the_way([{"title": "LLG", "rows": [*rows, {**rows[0], "beyond": True}]}])
    assert "| LLG | 1 | 1 | 1 | · | · | 1 |" in text
