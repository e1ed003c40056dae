"""What the book is built from: its generated tables and its executed notebooks."""

import importlib.util
import json
from types import SimpleNamespace

import nbformat
import pytest

from fedleak import notebooks, paths


def extension(name):
    spec = importlib.util.spec_from_file_location(name, paths.root() / "book" / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generated, executed = extension("generated"), extension("executed")


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
        "status": "✓ match",
        "source": "this run",
        "note": "",
        **changes,
    }


def papers(*rows):
    return [{"chapter": "llg", "paper": "llg", "title": "LLG", "rows": list(rows)}]


def cells(line):
    return [cell.strip() for cell in line.replace(r"\|", "¦").strip("| ").split("|")]


def test_scoreboard_row(warnings):
    text = generated.scoreboard(papers(row(note="because\nof this")))
    (line,) = [line for line in text.splitlines() if "fig-llg-4a" in line]
    assert cells(line) == [
        "[Fig. 4 (a)](#fig-llg-4a)",
        "*ASR* ↑",
        "≥ 0.98",
        "0.971 [0.96, 0.98], n = 100",
        "−0.0088",
        "0.02",
        "✓ match",
        "this run",
    ]
    assert "- **Fig. 4 (a)** (✓ match): because of this" in text
    assert not warnings


def test_scoreboard_row_that_was_not_attempted(warnings):
    empty = dict.fromkeys(("ours", "low", "high", "difference"))
    text = generated.scoreboard(papers(row(**empty, n=0, status="— not attempted", note="no GPU")))
    (line,) = [line for line in text.splitlines() if "fig-llg-4a" in line]
    assert cells(line)[3:7] == ["–", "–", "0.02", "— not attempted"]
    assert not warnings


def test_scoreboard_in_short_counts_by_status(warnings):
    statuses = ["✓ match", "✓ match", "✗ differs", "◌ scaled down, agrees"]
    text = generated.scoreboard_in_short(papers(*(row(status=status) for status in statuses)))
    assert cells(text.splitlines()[3]) == ["[LLG](/notebooks/llg.ipynb)", "2", "·", "1", "1", "·", "4"]
    assert not warnings


def test_an_unknown_status_is_a_warning(warnings):
    generated.scoreboard(papers(row(status="fine")))
    assert "unknown status 'fine'" in warnings[0]


def test_a_chapter_without_comparison_is_a_warning(warnings, tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "chapters", lambda: ["llg", "rlu"])
    (tmp_path / "rlu.json").write_text(json.dumps({"title": "RLU", "rows": []}))
    assert [paper["chapter"] for paper in generated.comparisons(tmp_path)] == ["rlu"]
    (warning,) = warnings
    assert warning.startswith("llg has left no comparison")


def test_a_notebook_without_a_paper_needs_no_comparison(warnings, tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "chapters", lambda: ["arena"])
    assert not generated.comparisons(tmp_path)
    assert not warnings


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
        (True, "True"),
    ],
)
def test_numbers(value, shown):
    assert generated.number(value) == shown


def test_every_registered_attack_is_in_the_threat_models(warnings):
    from fedleak.attacks import registry

    text = generated.threat_models()
    for attack in registry.all_attacks():
        assert text.count(f"| **{attack.name}** |") == 3
    assert not warnings


def test_every_data_set_is_on_its_page(warnings):
    from fedleak import data

    text = generated.data_sets()
    for entry in data.catalogue():
        assert f"| `{entry.name}` |" in text
    assert not warnings


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
    assert source == [ran]
    assert not warnings


def test_a_missing_copy_is_a_warning(sphinx, warnings):
    executed.swap_in(sphinx, "notebooks/llg", [notebook_text("a")])
    assert "has not been executed" in warnings[0]


def test_a_copy_of_other_cells_is_a_warning(sphinx, warnings):
    leave(sphinx, notebook_text("a = 1", "a"))
    executed.swap_in(sphinx, "notebooks/llg", [notebook_text("a = 1", "b")])
    assert "has changed since it was executed" in warnings[0]
