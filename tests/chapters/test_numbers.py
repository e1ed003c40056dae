"""Measured numbers on a lecture come from its rows: where all values of the records are others, each number moves."""

import ast
import json
import re
from dataclasses import replace

import pytest

from fedleak_book import paths
from fedleak_book.evidence.results import Number, Results
from fedleak_book.experiments import records, running
from fedleak_book.pages import notebooks

CHAPTERS = notebooks.chapters()
LECTURES = [name for name in notebooks.pages() if paths.chapter_of(name) in CHAPTERS]


def cells(lecture, kind="code"):
    """Return the sources of a notebook's cells of a kind, by their names."""
    all_cells = json.loads(paths.source_notebook(lecture).read_text(encoding="utf-8"))["cells"]
    return {cell["id"]: "".join(cell["source"]) for cell in all_cells if cell["cell_type"] == kind}


def imported(lecture):
    """Return what the setup cell imports."""
    lines = [node for node in ast.parse(cells(lecture)["setup"]).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {}
    exec(compile(ast.Module(lines, []), "<setup>", "exec"), names)
    return names


def filled(text, names, guarded=True):
    """Return the values that a cell's sentences are filled with, by their expressions; if `guarded`, as it asserts."""
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if guarded or not isinstance(node, ast.Assert)]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "say"]
    rest = [node for node in tree.body if not (isinstance(node, ast.Expr) and node.value in calls)]
    exec(compile(ast.Module(rest, []), "<cell>", "exec"), names)
    values = {}
    for call in calls:
        for part in call.args[0].values:
            if isinstance(part, ast.FormattedValue) and "verdict" not in (source := ast.unparse(part.value)):
                values[source] = eval(compile(ast.Expression(part.value), "<value>", "eval"), names)
    return values


def moved(rows, declared):
    """Return the rows with averaged values that are others: shares nearer to a half, numbers larger."""
    rows = rows.copy()
    for value, kind in declared["kinds"].items():
        if value in rows:
            if kind["name"] in ("rate", "mean", "difference"):
                rows[value] = 0.5 + 0.8 * (rows[value] - 0.5)
                continue
            far = (rows[value] - rows[value].mean()) / rows[value].std()
            rows[value] = rows[value] * 1.3 + rows[value].std() * (far**2 / 4 + 0.5)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("lecture", LECTURES)
def test_every_measured_number_moves_with_the_records(lecture, monkeypatch):
    chapter = paths.chapter_of(lecture)
    recorded, results = records.recorded, Results(chapter, device="cpu")
    spoken = {name: text for name, text in cells(lecture).items() if "say(f" in text}
    assert spoken
    start = imported(lecture) | {"run": results, "e": running.module(chapter, "experiments"), "say": None}
    before = {name: filled(text, dict(start)) for name, text in with_helpers(spoken)}

    def other(paper, name, profile="paper"):
        original = recorded(paper, name, profile)
        return original and replace(original, rows=moved(original.rows, original.declared))

    monkeypatch.setattr(records, "recorded", other)
    results = Results(chapter, device="cpu")
    monkeypatch.setattr(Results, "measured", property(lambda self: measured))
    measured = {id: Number.measured(vars(first)) for id, (first, *_) in results.measure().items()}
    after = {name: filled(text, dict(start, run=results), guarded=False) for name, text in with_helpers(spoken)}
    stays = [
        f"{name}: {{{source}}}"
        for name in before
        for source in before[name]
        if before[name][source] == after[name][source]
    ]
    assert "\n".join(stays) == ""
    assert sum(map(len, before.values())) >= (20 if lecture == chapter else 5)


class Asked(Results):
    """A run that notes which recorded rows it is asked for, and computes none."""

    def recorded(self, name):
        self.asked = {*getattr(self, "asked", ()), name}
        return super().recorded(name)

    def rows(self, name):
        return records.load(self.paper, name).rows


@pytest.mark.slow
@pytest.mark.parametrize("lecture", LECTURES)
def test_figures_name_the_experiments_that_they_are_drawn_from(lecture):
    """`rows` in the metadata of a figure's cell are the experiments whose rows its code asks for."""
    chapter = paths.chapter_of(lecture)
    names = imported(lecture) | {"e": running.module(chapter, "experiments"), "seed": 0}
    helpers = dict(with_helpers(cells(lecture)))
    for cell in json.loads(paths.source_notebook(lecture).read_text(encoding="utf-8"))["cells"]:
        if named := cell["metadata"].get("rows"):
            names["run"] = Asked(chapter, device="cpu")
            exec(compile(helpers[cell["id"]], "<figure>", "exec"), names)
            if "run" in "".join(cell["source"]):  # else it draws what another cell has read
                assert getattr(names["run"], "asked", set()) == set(named), cell["id"]


def with_helpers(cells):
    """Yield each cell with the functions that earlier cells define before it."""
    helpers = ""
    for name, text in cells.items():
        yield name, helpers + text
        defined = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
        helpers += "".join(f"{ast.unparse(node)}\n\n\n" for node in defined)


@pytest.mark.parametrize("lecture", LECTURES)
def test_sentences_of_markdown_have_no_measured_decimals(lecture):
    """A decimal fraction in a Markdown cell is of an example by hand, a setting, or printed in the paper."""
    for name, text in cells(lecture, "markdown").items():
        if name != "by-hand":
            plain = re.sub(r"\$[^$]*\$|`[^`]*`|:::\{.*?:::", "", text, flags=re.S)
            assert not re.findall(r"\b0\.\d\d+\b|\b\d+(?:\.\d+)? ?%", plain), name
