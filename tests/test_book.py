"""What the book is built from: its generated tables and its executed notebooks."""

import sys
from types import SimpleNamespace

import nbformat
import pandas as pd
import pytest

from fedleak import data, paths
from fedleak.data.sources import DOWNLOADS
from fedleak.experiments import notebooks, scoreboard

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
import executed
import generated
import render


@pytest.fixture
def warnings(monkeypatch):
    """Collect what the extensions warn about: each of these fails the book."""
    found = []
    for module in (generated, executed):
        monkeypatch.setattr(
            module, "logger", SimpleNamespace(warning=lambda text, *words, **_: found.append(text % words))
        )
    return found


# --- the generated tables -------------------------------------------------------------------------------------


def row(**changes):
    return {
        "id": "fig-4a-llg",
        "item": "Fig. 4 (a)",
        "anchor": "fig-llg-4a",
        "metric": "ASR",
        "direction": "higher",
        "published": "≥ 0.98",
        "ours": 0.97123,
        "low": 0.96,
        "high": 0.98,
        "n": 100,
        "difference": -0.0088,
        "tolerance": 0.02,
        "why": "trials | batch sizes",
        "status": "✓ agrees (A)",
        "verdict": "agrees",
        "grade": "A",
        "blocks": [],
        "source": "recorded",
        "differences": [],
        "remarks": [],
        "beyond": False,
        "note": "",
        **changes,
    }


def papers(*rows):
    return [{"chapter": "llg", "paper": "llg", "title": "LLG", "rows": list(rows)}]


def cells(line):
    return [cell.strip() for cell in line.replace(r"\|", "¦").strip("| ").split("|")]


def test_scoreboard_in_short_keeps_grades_and_ours_apart(warnings):
    told = [("agrees", "A"), ("agrees", "A"), ("differs", "A"), ("open", "D"), ("not attempted", "")]
    rows = [*(row(verdict=verdict, grade=grade) for verdict, grade in told), row(beyond=True)]
    lines = generated.scoreboard_in_short(papers(*rows)).splitlines()
    assert cells(lines[1])[2:] == ["agrees", "better", "differs", "open", "depends", "not attempted"]
    assert cells(lines[3]) == ["[LLG](/notebooks/llg.ipynb)", "A", "2", "·", "1", "·", "·", "·"]
    assert cells(lines[4])[1:] == ["D", "·", "·", "·", "1", "·", "·"]
    assert cells(lines[5])[1:] == ["–", "·", "·", "·", "·", "·", "1"]
    assert cells(lines[6])[:3] == ["our own extensions", "A", "1"]


def test_one_sentence_never_adds_up_grades():
    told = [("agrees", "A"), ("differs", "A"), ("better", "B"), ("open", "B"), ("agrees", "D"), ("depends", "C")]
    text = generated.in_one_sentence(papers(*(row(verdict=verdict, grade=grade) for verdict, grade in told)))
    assert "Of the papers' 6 values" in text
    assert "2 at the paper's own settings (1 agrees, 1 differs); 1 at every plausible choice" in text
    assert "fewer images" not in text
    assert "1 depend on" in text


def test_a_chapter_whose_claims_are_older_than_its_records_is_a_warning(warnings, monkeypatch):
    def rows(paper):
        if paper == "llg":
            raise ValueError("the claims of llg were measured before fig3 changed")
        return []

    monkeypatch.setattr(notebooks, "chapters", lambda: ["llg", "rlu", "arena"])
    monkeypatch.setattr(scoreboard, "rows", rows)
    assert [paper["chapter"] for paper in generated.comparisons.__wrapped__()] == ["rlu"]
    (warning,) = warnings
    assert "fig3 changed" in warning


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        ("≥ 1", "≥ 1"),
        (0.97123, "0.971"),
        (-0.5, "−0.5"),
        (1.0, "1"),
        (12345, "12,345"),
        (12345.0, "12,345"),
        (1e-5, "1e−05"),
        (float("nan"), "–"),
        (-7, "−7"),
        (True, "True"),
    ],
)
def test_numbers(value, shown):
    assert render.number(value) == shown


def test_a_table_is_a_data_frame_as_it_stands():
    frame = pd.DataFrame({"a | b": ["one\n\ntwo", None], "n": [1, 12345], "x": [0.12345, None]})
    assert render.table(frame).splitlines()[1:-1] == [
        r"| a \| b | n | x |",
        "| --- | --- | --- |",
        "| one two | 1 | 0.123 |",
        "| – | 12,345 | – |",
    ]


def test_links_to_equations_and_theorems_are_numbered():
    assert render.link("Fig. 3", "fig-llg-3") == "[Fig. 3](#fig-llg-3)"
    assert render.link("", "eq-llg-g") == "Eq. {eq}`eq-llg-g`"
    assert render.link("", "prop-llg-1") == "{prf:ref}`prop-llg-1`"
    assert render.link("Fig. 3", None) == "Fig. 3"


def test_every_data_set_is_on_its_page():
    text = generated.data_sets()
    for entry in data.catalogue():
        (line,) = (line for line in text.splitlines() if line.startswith(f"| `{entry.name}` |"))
        assert ("| `fedleak data download` |" in line) == (entry.name in DOWNLOADS)


# --- the executed notebooks -----------------------------------------------------------------------------------


def notebook_text(*sources, injected=None):
    made = [nbformat.v4.new_code_cell(source) for source in sources]
    if injected:
        made.insert(1, nbformat.v4.new_code_cell(injected, metadata={"tags": ["injected-parameters"]}))
    return nbformat.writes(nbformat.v4.new_notebook(cells=made))


@pytest.fixture
def sphinx(tmp_path):
    env = SimpleNamespace(doc2path=lambda name: f"{name}.ipynb", note_dependency=lambda path: None)
    return SimpleNamespace(srcdir=tmp_path, env=env)


def leave(sphinx, text):
    copy = executed.executed_copy(sphinx, "notebooks/llg")
    copy.parent.mkdir(parents=True)
    copy.write_text(text)


def test_the_executed_copy_is_swapped_in(sphinx, warnings):
    ran = notebook_text("a = 1", "a", injected="a = 2")
    leave(sphinx, ran)
    source = [notebook_text("a = 1", "a")]
    executed.swap_in(sphinx, "notebooks/llg", source)
    found = nbformat.reads(source[0], as_version=4).cells
    assert [cell.source for cell in found] == ["a = 1", "a"]  # papermill's own cell is no part of a page
    assert not warnings


def test_the_parameters_are_folded():
    cell = nbformat.v4.new_code_cell("a = 1", metadata={"tags": ["parameters"]})
    assert executed.folded(cell)["metadata"]["tags"] == ["parameters", "hide-input"]


def test_a_missing_copy_is_a_warning(sphinx, warnings):
    executed.swap_in(sphinx, "notebooks/llg", [notebook_text("a")])
    assert "has not been executed" in warnings[0]


def test_a_copy_of_other_cells_is_a_warning(sphinx, warnings):
    leave(sphinx, notebook_text("a = 1", "a"))
    executed.swap_in(sphinx, "notebooks/llg", [notebook_text("a = 1", "b")])
    assert "has changed since it was executed" in warnings[0]
