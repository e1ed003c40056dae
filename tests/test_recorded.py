"""Recorded results: some of them, drawn anew every day, come out again; and a result that does not is noticed."""

import os
from datetime import date

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedleak import paths, recheck, report
from fedleak.cli import app
from fedleak.errors import DataNotFound
from fedleak.recheck import CLOSE, DIFFERS, SAME

SEED = int(os.environ.get("FEDLEAK_RECHECK_SEED", date.today().toordinal()))
BUDGET = float(os.environ.get("FEDLEAK_RECHECK_BUDGET", "60"))


@pytest.mark.slow
def test_recorded_cells_come_out_again(capsys):
    """Set FEDLEAK_RECHECK_SEED to draw the same again, and FEDLEAK_RECHECK_BUDGET to draw more."""
    said = []
    outcomes = recheck.spot_check(recheck.records(), SEED, BUDGET, said.append)
    with capsys.disabled():
        print(f"\nFEDLEAK_RECHECK_SEED={SEED}", *said, sep="\n")
    assert outcomes
    wrong = {str(o.record): o.rows[[v == DIFFERS for v in o.verdicts]] for o in outcomes if DIFFERS in o.verdicts}
    assert wrong == {}, "record these anew if their trials were meant to change: fedleak run NAME --record"
    verdicts = [v for o in outcomes for v in o.verdicts]
    assert verdicts.count(SAME) >= len(verdicts) / 2, "too many trials turn out differently for rounding to be why"


def recorded(**changes):
    row = {"net": "lenet", "size": 8, "lr": 0.1, "mean": 0.9, "low": 0.8, "high": 0.95, "n": 10, "b_err": 1e-5}
    return pd.DataFrame([{**row, **changes}, {**row, "net": "cnn", **changes}])


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, SAME),
        ({"mean": 0.9004}, SAME),
        ({"b_err": 5e-5}, SAME),  # a rounding error is the same to an order of magnitude
        ({"b_err": 5e-4}, CLOSE),
        ({"mean": 0.93, "low": 0.9}, CLOSE),
        ({"mean": 0.96}, DIFFERS),
        ({"mean": 0.79}, DIFFERS),
        ({"mean": np.nan}, DIFFERS),
        ({"lr": 0.2, "mean": 0.5}, DIFFERS),
        ({"net": "resnet18"}, DIFFERS),
        ({"n": 9}, DIFFERS),
        ({"size": 16}, DIFFERS),
    ],
)
def test_what_counts_as_the_same(changes, verdict):
    assert recheck.compare(recorded(), recorded(**changes).iloc[:1]) == [verdict]


def test_a_table_without_interval_is_the_same_or_differs():
    old = pd.DataFrame({"clients": [2, 5], "condition": [3e7, 2e9], "rank": [2, 5], "left": [np.nan, 1.0]})
    assert recheck.compare(old, old) == [SAME, SAME]
    assert recheck.compare(old, old.assign(condition=[6e7, 2e12])) == [SAME, DIFFERS]
    assert recheck.compare(old, old.assign(rank=[2, 4], left=[1.0, 1.0])) == [DIFFERS, DIFFERS]


def test_an_empty_text_is_what_a_file_reads_as_missing():
    new = pd.DataFrame({"trial": [0, 1], "iacc": [0.5, np.nan], "reason": ["", "too many samples"]})
    old = new.assign(reason=[np.nan, "too many samples"])
    assert recheck.compare(old, new) == [SAME, SAME]
    assert recheck.compare(old, new.assign(reason=["too few", ""])) == [DIFFERS, DIFFERS]


CELLS = {
    "parameters": "profile, device, seed, trials, data_root, record, scheduler = 'quick', 'cpu', 0, 0, '', False, ''",
    "setup": "import torch\nfrom fedleak.chapter import Chapter\n"
    "chapter = Chapter('tiny', profile, device, seed, trials, data_root, record, scheduler)",
    "unrelated": "raise AssertionError('no table needs this cell')",
    "data": "values = [1, 2]\nshift = 1",
    "helper": "def moved(x):\n    return sum(v for v in values) * x + shift",
    "again": "values = [v + 1 for v in values]",
    "first": "def trial(seeds, x):\n    return [{'seed': s, 'value': moved(x) + (s % 7) / 8} for s in seeds]\n\n\n"
    "def first_table():\n    rows = chapter.sweep(trial, {'x': [1, 2, 3]}, 4)\n"
    "    return rows.groupby('x')['value'].mean().reset_index()\n\n\nfirst = chapter.table('first', first_table)",
    "plot": "shift = len(first)",
    "second": "second = chapter.table(\n"
    "    'second', lambda: first_table().assign(value=lambda t: t['value'] + shift)\n)",
}


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A checkout with one small notebook, both tables of which are recorded."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    paths.source_notebook("tiny").parent.mkdir()
    made = [new_code_cell(text, id=name, metadata={"tags": [name]}) for name, text in CELLS.items()]
    nbformat.write(new_notebook(cells=made), paths.source_notebook("tiny"))
    for name in ("first", "second"):
        table = recheck.excerpt("tiny", name, {"seed": 3})
        facts = {"profile": "quick", "seed": 3, "trials": 0, "device": "cpu", "seconds": 1.0}
        report.record("tiny", name, table, facts)
    return recheck.records("tiny")


def test_only_the_cells_that_a_table_needs_are_executed_in_their_order(tiny):
    def ids(table):
        return [cell.id for cell in recheck.needed("tiny", table)]

    assert ids("first") == ["parameters", "setup", "data", "helper", "again", "first"]
    assert ids("second") == ["parameters", "setup", "data", "helper", "again", "first", "plot", "second"]
    with pytest.raises(ValueError, match="tiny has no table 'third'"):
        recheck.needed("tiny", "third")


def test_one_setting_of_each_grid_is_computed_with_all_its_trials(tiny):
    first = tiny[0]
    assert len(first.table) == 3
    outcomes = [recheck.spot_check([first], seed, 10, str)[0] for seed in range(12)]
    assert {len(one.rows) for one in outcomes} == {1}
    assert {one.rows["x"].item() for one in outcomes} == {1, 2, 3}
    assert {v for one in outcomes for v in one.verdicts} == {SAME}
    again = recheck.spot_check([first], 3, 10, str)[0]
    pd.testing.assert_frame_equal(again.rows, outcomes[3].rows)


def test_a_changed_trial_is_noticed(tiny, tmp_path):
    file = paths.source_notebook("tiny")
    file.write_text(file.read_text().replace("(s % 7) / 8", "(s % 7) / 7"))
    said = []
    (outcome,) = recheck.spot_check(tiny[:1], 0, 10, said.append)
    assert outcome.verdicts == [DIFFERS]
    assert said == ["tiny/first (quick): 1 of 3 rows: 1 differs"]
    done = CliRunner().invoke(app, ["recheck", "tiny", "--seed", "0"])
    assert done.exit_code == 1
    assert "what is recorded does not come out again: tiny/" in done.output


def test_the_budget_and_missing_data_leave_tables_out(tiny, monkeypatch):
    assert len(recheck.spot_check(tiny, 0, 2.0, str)) == 2
    assert len(recheck.spot_check(tiny, 0, 1.5, str)) == 1
    assert recheck.spot_check(tiny, 0, 0.5, str) == []

    def missing(*_):
        raise DataNotFound("mnist is not here\nmore")

    monkeypatch.setattr(recheck, "recompute", missing)
    said = []
    assert recheck.spot_check(tiny[:1], 0, 10, said.append) == []
    assert said == ["tiny/first (quick): passed over, mnist is not here"]
    done = CliRunner().invoke(app, ["recheck", "tiny"])
    assert done.exit_code == 1
    assert "nothing could be checked" in done.output
    assert "no recorded results of 'huge'" in CliRunner().invoke(app, ["recheck", "huge"]).output


def test_every_recorded_table_can_be_found_in_its_notebook():
    found = recheck.records()
    for record in found:
        assert recheck.needed(record.paper, record.artefact)[0].id == "parameters"
    assert {r.paper for r in found} >= {"llg", "lia_sa", "rlu", "gdbr"}
    for paper, artefact in recheck.TIMED:
        assert report.recorded(paper, artefact), "a timed table that is not recorded"
