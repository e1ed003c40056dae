"""The open contest: what is frozen, what an attack that is entered can do wrong, and the rows that are committed."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from fedleak import cli
from fedleak.attacks import registry
from fedleak.attacks.registry import Need
from fedleak.federated import Update
from fedleak_book import paths
from fedleak_book.experiments import Context, cells, entering, running
from fedleak_book.experiments.experiment import seeds_of

EXAMPLE = paths.root() / "tests" / "examples" / "attack.py"
ROWS = sorted(paths.entries().glob("*.json"))
SMALL = "LeNet, untrained, 8"
FILE = """
from pathlib import Path
import torch
from fedleak.attacks.registry import Need, attack

__version__ = "2"

@attack("mine", needs={{Need.HEAD_GRADIENT}}, summary="For a test.")
def recover(update, model):
    {body}
"""


@pytest.fixture
def contest():
    return running.module("arena", "experiments_entered")


@pytest.fixture(autouse=True)
def small(contest, monkeypatch, tmp_path):
    """Three networks of one cell, nothing kept from elsewhere, and a registry that forgets what is entered."""
    monkeypatch.setattr(contest, "NETWORKS", 3)
    monkeypatch.setattr(paths, "entries", lambda: tmp_path / "entries")
    monkeypatch.setattr(contest, "CELLS", {SMALL: contest.CELLS[SMALL]})
    monkeypatch.setenv("FEDLEAK_CACHE", str(tmp_path / "cache"))
    registry.all_attacks()
    registered = {name: attack for name, attack in registry._ATTACKS.items() if name != "smallest row"}
    monkeypatch.setattr(registry, "_ATTACKS", registered)


@pytest.fixture
def fresh(monkeypatch):
    """Let a file be entered again in the same process."""
    return lambda: registry._ATTACKS.pop("mine", None)


def mine(folder, body):
    path = folder / "my_attack.py"
    path.write_text(FILE.format(body=body))
    return path


def invoke(path, out):
    return CliRunner().invoke(cli.app, ["enter", str(path), "--out", str(out)])


@pytest.mark.parametrize("path", ROWS, ids=lambda path: path.stem)
def test_committed_rows_are_of_the_contest_and_scored_right(path, monkeypatch, contest):
    monkeypatch.undo()
    row = json.loads(path.read_text())
    assert list(row) == [*entering.ABOUT, *entering.MADE, "cells"]
    assert set(row["needs"]) <= {need.value for need in Need}
    scores = entering.scored(entering.scores(row), {})
    for cell, entry in row["cells"].items():
        assert entry["refused"] == {} or sum(entry["refused"].values()) == list(entry["answers"].values()).count("")
        assert {name: entry[name] for name in scores[cell]} == scores[cell]
        assert ("lead" in entry) == (row["by"] == entering.ENTERED and not entry["refused"])
    assert 0 <= row["off"] <= entering.TOLERANCE


def test_rows_of_the_package_are_of_attacks_that_it_has(monkeypatch):
    monkeypatch.undo()
    rows = entering.entries()
    ours = [row["attack"] for row in rows if row["by"] == entering.PACKAGE]
    assert 6 <= len(ours) == len(set(ours))
    assert set(ours) <= registry._ATTACKS.keys()
    assert [row["by"] for row in rows] == sorted((row["by"] for row in rows), reverse=True)


def test_an_attack_is_scored_on_the_hidden_labels(contest):
    row = entering.enter(str(EXAMPLE))
    assert (row["attack"], row["by"], row["file"]) == ("smallest row", "entered", "attack.py")
    truth = contest.truth(Context("cpu"), SMALL)
    assert row["cells"][SMALL]["answers"].keys() == truth.keys() == {f"{i}.{j}" for i in range(3) for j in range(2)}
    shares = []
    for name, counts in truth.items():
        answer = [int(count) for count in row["cells"][SMALL]["answers"][name].split()]
        assert sorted(answer)[:-1] == [0] * 9
        assert counts.sum() == 8
        shares.append(counts[answer.index(8)] / 8)
    assert row["cells"][SMALL]["iacc"] == pytest.approx(np.mean(shares), abs=1e-4)
    assert row["off"] <= entering.TOLERANCE


def test_the_lead_is_over_rivals_that_answered_everything(contest):
    scores = {SMALL: np.array([[0.5, 0.7], [0.6, 0.6], [0.9, 0.7]])}
    rivals = {"weak": {SMALL: scores[SMALL] - 0.2}, "best": {SMALL: scores[SMALL] - 0.1}}
    rivals["picky"] = {SMALL: np.array([[1.0, np.nan], [1.0, 1.0], [1.0, 1.0]])}
    entry = entering.scored(scores, rivals)[SMALL]
    assert (entry["best"], entry["networks"]) == ("best", 3)
    assert entry["lead"] == pytest.approx(0.1)
    assert entry["lead low"] < 0.1 < entry["lead high"]
    assert entry["iacc"] == pytest.approx(2 / 3, abs=1e-4)
    refused = {SMALL: np.array([[np.nan, np.nan], [0.6, np.nan], [0.9, 0.7]])}
    entry = entering.scored(refused, rivals)[SMALL]
    assert "lead" not in entry
    assert (entry["iacc"], entry["iacc low"], entry["networks"]) == (0.7, None, 2)


def test_an_update_that_is_refused_is_counted_and_has_no_rank(tmp_path):
    body = "if list(update.tensors.values())[0].sum() > 0:\n        raise ValueError('too large')\n    "
    body += "return torch.zeros(10, dtype=torch.long)"
    result = invoke(mine(tmp_path, body), tmp_path / "row.json")
    row = json.loads((tmp_path / "row.json").read_text())
    ((why, updates),) = row["cells"][SMALL]["refused"].items()
    assert (why, 0 < updates < 6, row["version"]) == ("too large", True, "2")
    assert f"refused {updates} of 6: too large" in result.output
    assert "mine (this one)" not in result.output
    whole = {"attack": "whole", "cells": {"a": {"refused": {}, "iacc": 0.5}, "b": {"refused": {}, "iacc": 0.7}}}
    better = {"attack": "better", "cells": {"a": {"refused": {}, "iacc": 0.7}, "b": {"refused": {}, "iacc": 0.8}}}
    assert entering.ranked([row, whole, better]) == [(0.75, "better"), (0.6, "whole")]


def answering(body):
    return FILE.format(body=body)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (answering("raise KeyError('gone')"), "most often: unforeseen KeyError: 'gone'"),
        (answering("raise ValueError('too few')"), "'mine' answered none of the 6 updates; most often: too few"),
        (answering("return torch.zeros(3, dtype=torch.long)"), "this one [3]"),
        (answering("return torch.zeros(4, 10, dtype=torch.long)"), "not counts: [[0, "),
        (answering("return torch.full((10,), float('nan'))"), "returned torch.float32 [10]"),
        (answering("return torch.full((10,), -1)"), "not counts: [-1, "),
        (answering("return [1, 2]"), "this one returned list"),
        (answering("raise SystemExit(0)"), "ended the process"),
        ("x = 1\n", "has to register one attack, with @attack; it registers none"),
        ("def f(:\n", "line 1: SyntaxError"),
        ("\nimport no_such_module\n", "line 2: ModuleNotFoundError"),
        (answering("pass").replace('"mine"', '"RLU"'), "an attack named 'RLU' is registered already"),
        (answering("pass").replace("summary", "goal='images', summary"), "its goal is images"),
        (answering("pass").replace("summary", "sends=list, summary"), "it sends models"),
        (answering("pass").replace("summary", "options={'x'}, summary"), "mine takes x; there are"),
        (None, "is no file, and no attack of the package"),
    ],
)
def test_what_cannot_be_entered_is_a_line_and_no_row_is_written(tmp_path, text, why):
    path = tmp_path / "my_attack.py"
    if text is not None:
        path.write_text(text)
    result = invoke(path, tmp_path / "row.json")
    assert result.exit_code == 1
    assert why in result.output
    assert not (tmp_path / "row.json").exists()


def test_a_run_that_is_stopped_goes_on(tmp_path, fresh):
    body = f"""calls = Path({str(tmp_path)!r}, "calls")
    calls.write_text((calls.read_text() if calls.exists() else "") + "x")
    if len(calls.read_text()) == 3:
        raise KeyboardInterrupt
    return torch.ones(10, dtype=torch.long)"""
    path, out = mine(tmp_path, body), tmp_path / "row.json"
    stopped = invoke(path, out)
    assert (stopped.exit_code, out.exists()) == (130, False)
    assert "the same command goes on" in stopped.output
    fresh()
    assert invoke(path, out).exit_code == 0
    assert len((tmp_path / "calls").read_text()) == 3 + 4  # the first network's two updates are not read again
    fresh()
    path.write_text(path.read_text() + "# edited\n")
    assert invoke(path, out).exit_code == 0
    assert len((tmp_path / "calls").read_text()) == 7 + 6


def test_what_was_frozen_is_compared_within_rounding(monkeypatch):
    seed = seeds_of(0, 1)[0]
    model = nn.Linear(40, 5)
    update = Update({name: torch.randn_like(p) for name, p in model.named_parameters()}, "gradient", 8)

    def results(factor=1.0):
        near = update.replace({name: factor * t for name, t in update.tensors.items()})
        return entering.fingerprint([(model, near)])

    frozen = json.dumps({"torch": "1.0", "cells": {"c": {str(seed): results()}}})
    monkeypatch.setattr(type(paths.contest()), "read_text", lambda *_, **__: frozen)
    assert entering.compared(results(), "c", seed) == 0
    assert entering.compared(results(1 + 1e-4), "c", seed) == pytest.approx(1e-4, rel=0.01)
    with pytest.raises(ValueError, match=r"is 0.1 off.* frozen with torch 1.0; this is torch 2"):
        entering.compared(results(1.1), "c", seed)


@pytest.mark.slow
def test_what_is_frozen_comes_out_again_in_every_cell(contest, monkeypatch):
    monkeypatch.undo()
    (seed,) = seeds_of(0, 1)
    for cell in contest.CELLS:
        off = entering.compared(contest.printed(contest.frozen(Context("cpu"), cell, seed)), cell, seed)
        assert off <= entering.TOLERANCE


def test_rows_of_another_contest_or_other_updates_are_refused(contest, tmp_path):
    row = entering.enter(str(EXAMPLE))
    with pytest.raises(ValueError, match="of another contest"):
        entering.scores({**row, "contest": 0})
    row["cells"][SMALL]["answers"].pop("2.1")
    with pytest.raises(ValueError, match="does not have the updates"):
        entering.scores(row)


def test_the_page_marks_who_entered(monkeypatch):
    monkeypatch.undo()
    page = running.module("arena", "notes").entered(None)
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    assert any(line.startswith("| **smallest row** (entered)") for line in lines)
    assert any(line.startswith("| RLU |") for line in lines)
    assert sum(line.startswith("| smallest row |") for line in lines) == 10  # a line a cell, with its lead


def test_the_best_of_equal_attacks_is_not_flattered_by_being_picked():
    scores = np.random.default_rng(1).normal(0.5, 0.1, (200, 20, 10))
    assert scores.mean(1).max(1).mean() > 0.53
    fair = [cells.held_out(pair) for pair in scores]
    assert np.mean([score for score, _ in fair]) == pytest.approx(0.5, abs=0.005)
    assert np.mean([lead for _, lead in fair]) == pytest.approx(0.0, abs=0.005)


def test_a_dominant_attack_has_a_lead_over_the_second():
    scores = np.array([[0.2, 0.9, 0.7], [0.1, 0.8, 0.7], [0.3, 1.0, 0.4]])
    score, lead = cells.held_out(scores)
    assert score == pytest.approx([0.9, 0.8, 1.0])
    assert lead == pytest.approx([0.2, 0.1, 0.6])
    alone, ahead = cells.held_out(scores[:, :1])
    assert alone == pytest.approx(scores[:, 0])
    assert ahead == pytest.approx(0)
    assert [value.item() for value in cells.held_out(scores[:1])] == pytest.approx([0.9, 0.2])
