"""What the book is built from: tables that are generated from the package, and executed notebooks."""

import json
import re
import sys
import tomllib
from types import SimpleNamespace

import cheat_sheet
import executed
import fragments
import nbformat
import pandas as pd
import pytest
import render
from jinja2 import StrictUndefined, Template
from values import cells

from fedleak_book import paths

# --- Markdown ----------------------------------------------------------------------------------------------------


def test_a_table_is_a_data_frame_as_it_stands():
    frame = pd.DataFrame({"a | b": ["one\n\ntwo", None], "n": [1, 12345], "x": [0.12345, None]})
    assert cells(render.table(frame)) == [["a ¦ b", "n", "x"], ["one two", "1", "0.123"], ["–", "12,345", "–"]]


def test_fragments_are_written_again_when_what_they_are_made_of_has_changed(tmp_path, monkeypatch):
    top, calls = tmp_path / "book", []
    for name in ("CITATION.cff", "_config.yml", "_toc.yml", "requirements.lock", "book/notation.md", "book/page.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("before")
    module = SimpleNamespace(fragments=lambda: calls.append(1) or {"table": "| a |"})
    monkeypatch.setattr(fragments.paths, "root", lambda: tmp_path)
    monkeypatch.setattr(fragments.notebooks, "pages", list)
    monkeypatch.setattr(fragments, "GENERATED", top / "_generated")
    monkeypatch.setattr(fragments, "STAMP", top / "_generated" / "inputs.txt")
    monkeypatch.setattr(fragments, "MODULES", ("table",))
    monkeypatch.setattr(fragments, "import_module", {"table": module}.__getitem__)

    def written_again(path, text=None):
        path.write_text(text) if text else path.unlink()
        before = len(calls)
        fragments.write()
        return len(calls) > before

    assert written_again(top / "page.md", "first build")
    assert not written_again(top / "page.md", "another sentence")
    assert written_again(top / "drawing.svg", "<svg/>")
    assert written_again(top / "_generated" / "table.md")


# --- data sets and names -----------------------------------------------------------------------------------------


def positions(text):
    for part in text.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def test_subsets_are_recorded_and_have_distinct_positions_in_their_split():
    recorded = {
        (used["name"], used["images"], used["digest"])
        for path in (paths.root() / "data" / "results").glob("*/*.json")
        for used in json.loads(path.read_text(encoding="utf-8")).get("datasets", ())
    }
    for subset in tomllib.loads((paths.root() / "data" / "subsets.toml").read_text())["subset"]:
        assert {(subset["name"], subset["images"], digest) for digest in subset["digests"]} <= recorded
        if "unknown" not in subset:
            indices = list(positions(subset["positions"]))
            assert len(indices) == len(set(indices)) == subset["images"]
            start, size = (
                subset["official"].startswith("files"),
                int(subset["official"].split(", ")[1].replace(",", "")),
            )
            assert start <= min(indices) <= max(indices) < start + size, subset["name"]


# --- executed notebooks ------------------------------------------------------------------------------------------


def notebook_text(*sources, injected=None, text="Before."):
    outputs = [nbformat.v4.new_output("stream", text="2")] if injected else []
    cells = [nbformat.v4.new_code_cell(source, outputs=outputs) for source in sources]
    cells[0].metadata["tags"] = ["parameters"]
    if injected:
        cells.insert(1, nbformat.v4.new_code_cell(injected, metadata={"tags": ["injected-parameters"]}))
    return nbformat.writes(nbformat.v4.new_notebook(cells=[*cells, nbformat.v4.new_markdown_cell(text)]))


@pytest.mark.parametrize(
    ("copy", "warning"),
    [
        (notebook_text("a = 1", "a", injected="a = 2"), None),
        (notebook_text("a = 1", "b"), "has changed since it was executed"),
        (None, "has not been executed"),
    ],
)
def test_the_executed_copy_is_swapped_in_or_warned_of(tmp_path, monkeypatch, copy, warning):
    warned = []
    monkeypatch.setattr(executed.logger, "warning", lambda text, *words, **_: warned.append(text % words))
    env = SimpleNamespace(doc2path=lambda name: f"{name}.ipynb", note_dependency=lambda path: None)
    sphinx, source = SimpleNamespace(srcdir=tmp_path, env=env), [notebook_text("a = 1", "a", text="Now.")]
    if copy:
        place = executed.executed_copy(sphinx, "notebooks/llg")
        place.parent.mkdir(parents=True)
        place.write_text(copy)
    executed.swap_in(sphinx, "notebooks/llg", source)
    if warning:
        (message,) = warned
        assert warning in message
        return
    cells = nbformat.reads(source[0], as_version=4).cells
    assert [cell.source for cell in cells] == ["a", "Now.", "a = 1"]  # papermill's own cell is no part of a page
    assert cells[0].outputs[0].text == "2"
    assert cells[-1].metadata["tags"] == ["parameters", "hide-input"]
    assert not warned


def test_the_cheat_sheet_names_numbers_that_there_are_and_links_to_pages():
    page = (paths.root() / "book" / "cheat_sheet.md").read_text(encoding="utf-8")
    shown = Template(page, undefined=StrictUndefined).render(cheat_sheet.fragments())
    targets = set(re.findall(r"\{doc\}`[^<`]*<(/[^>]*)>`", shown))
    assert targets
    assert all(any((paths.root() / f"{target[1:]}{end}").is_file() for end in (".md", ".ipynb")) for target in targets)


def test_a_downloaded_chapter_says_first_what_it_needs(monkeypatch):
    notebook = {
        "cells": [{"cell_type": "markdown", "source": "# LLG"}, {"cell_type": "code", "source": "import torch"}]
    }
    copy = json.loads(executed.readers_copy(notebook, "llg", "https://example.org/book"))
    assert [cell["source"][:6] for cell in copy["cells"]] == ["# LLG", "# A ch", "import"]
    exec(copy["cells"][1]["source"], {})  # in a clone nothing is missing
    monkeypatch.setitem(sys.modules, "notebooks", None)
    with pytest.raises(ImportError, match=r"git clone https://example.org/book.*make lab.*notebooks/llg.ipynb"):
        exec(copy["cells"][1]["source"], {})
