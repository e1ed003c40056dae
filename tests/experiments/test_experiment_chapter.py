"""A declared experiment: run, recorded, shown beside its record, claimed, compared; and what is wrong is said."""

import json
from dataclasses import replace

import nbformat
import pandas as pd
import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook
from torch import nn
from typer.testing import CliRunner

from fedleak import paths
from fedleak.cli import app
from fedleak.errors import DataNotFound
from fedleak.experiments import NOW, RECORDED, recheck, scoreboard, show, trained_once
from fedleak.experiments.cache import Changed
from fedleak.experiments.declared import declared

TABLES = """
title = "Tiny"
key = "tiny"

[table1]
anchor = "tab"
item = "Table 1, {net}"
claim = "{net}"
where = "Table 1"
id = "tab1-{net}"
keys = ["net"]
values = { iacc = "iAcc" }
direction = "higher"
attack = true
fixed = { images = 100.0, steps = 1 }
tolerance = [{ is = 0.05, why = "w" }]

[fig1]
keys = ["net"]
axes = { net = ["a", "b"] }
fixed = { side = 32 }
"""
CLAIM = """
[[claim]]
id = "{id}"
item = "Fig. 1"
anchor = "fig"
claim = "b is ahead"
where = "Sec. 1"
metric = "m"
direction = "higher"
kind = "at least"
published = 0.0
tolerance = 0.0
why = "w"
table = "{table}"
"""
SETUP = """
from fedleak.experiments import Chapter, grid
from fedleak.intervals import MEAN
chapter = Chapter("tiny", profile, device, seed, trials, data_root, record, scheduler, dict(iacc=MEAN))
SHIFT = 0.4
"""
EXPERIMENT = """
@chapter.experiment(
    "table1",
    quick=grid(net=["a", "b"]),
    paper=grid(net=["a", "b"], trials=12),
    trials=(2, 3),
    values="iacc",
    facts="images",
    fixed=dict(side=16, steps=1),
    tables=("table1", "fig1"),
)
def trial(seed, net):
    yield {"iacc": SHIFT + 0.1 * (net == "b") + seed % 7 / 100, "images": 100}
"""
CLAIMS = """
chapter.claim("ahead", lambda t: t["b"] - t["a"], of=trial)
chapter.compare()
"""
PARAMETERS = "profile, device, seed, trials, data_root, record, scheduler = 'quick', 'cpu', 0, 0, '', False, ''"


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A checkout with a notebook and its paper."""
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    folder = tmp_path / "data" / "published" / "tiny"
    folder.mkdir(parents=True)
    (folder / "tables.toml").write_text(TABLES)
    (folder / "table1.csv").write_text("net,iacc\na,0.43\nb,0.9\n")
    (folder / "claims.toml").write_text(CLAIM.format(id="ahead", table="fig1"))
    write(EXPERIMENT)
    return tmp_path


def write(experiment):
    cells = [("parameters", PARAMETERS), ("setup", SETUP), ("experiment", experiment), ("other", "raise RuntimeError")]
    made = [new_code_cell(text, id=name, metadata={"tags": [name]}) for name, text in cells]
    paths.source_notebook("tiny").parent.mkdir(exist_ok=True)
    nbformat.write(new_notebook(cells=made), paths.source_notebook("tiny"))


def claimed(**parameters):
    """The chapter with its experiment recorded, its claims and its comparison."""
    chapter = declared("tiny", profile="paper", **parameters)
    chapter.record = True
    exec(CLAIMS, {"chapter": chapter, "trial": chapter.experiments["table1"]})
    return chapter


# --- parameters ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"profile": "fast"}, "profile is 'quick' or 'paper', not 'fast'"),
        ({"trials": -1}, "trials is 0 .* or more, got -1"),
        ({"device": "tpu"}, "PyTorch cannot use device='tpu' here: 'cpu', 'cuda' or 'auto'"),
        ({"speed": 1}, "tiny has no parameter speed"),
    ],
)
def test_bad_parameters(tiny, changes, message):
    with pytest.raises(ValueError, match=message):
        declared("tiny", **changes)


def test_a_gpu_that_is_not_there(tiny, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="torch sees no GPU here"):
        declared("tiny", device="cuda")
    assert declared("tiny", device="auto").device == "cpu"


# --- an experiment ------------------------------------------------------------------------------------------------


def test_only_what_declares_is_executed_and_an_experiment_runs_when_it_is_asked(tiny):
    chapter = declared("tiny")
    experiment = chapter.experiments["table1"]
    assert [s["trials"] for s in experiment.settings()] == [2, 2]
    assert [s["trials"] for s in experiment.settings("paper")] == [12, 12]
    assert declared("tiny", trials=7).experiments["table1"].settings("paper")[0]["trials"] == 7
    assert not paths.units().exists()
    assert experiment.now[["net", "n", "images", "side"]].to_numpy().tolist() == [["a", 2, 100, 16], ["b", 2, 100, 16]]
    assert set(experiment.table["source"]) == {NOW}


def test_a_record_stands_beside_this_run_and_says_where_it_comes_from(tiny):
    chapter = claimed()
    facts = json.loads((paths.recorded("tiny") / "table1.json").read_text())
    assert facts["seconds"] > 0
    assert facts["device"] == "cpu"
    assert facts["declared"]["fixed"] == {"side": 16, "steps": 1}
    assert {"commit", "processor", "memory", "numpy", "scipy", "torchvision"} <= facts.keys()
    assert facts["datasets"] == []
    later = declared("tiny").experiments["table1"]
    assert list(later.table["source"]) == [NOW, NOW, RECORDED, RECORDED]
    assert set(later.best["n"]) == {12}
    pd.testing.assert_frame_equal(later.recorded, chapter.experiments["table1"].now, check_dtype=False, rtol=1e-6)


def test_a_trial_is_held_to_its_declaration(tiny):
    write(EXPERIMENT.replace('facts="images"', 'facts=("images", "held")'))
    with pytest.raises(ValueError, match="names held, which no trial yields"):
        declared("tiny").experiments["table1"].run()
    write(EXPERIMENT.replace('    facts="images",\n', ""))
    with pytest.raises(ValueError, match="yields images, which the declaration does not name"):
        declared("tiny").experiments["table1"].run()
    write(EXPERIMENT * 2)
    with pytest.raises(ValueError, match="declares the experiment 'table1' twice"):
        declared("tiny")


def test_fixed_settings_reach_the_trial_that_asks_for_them(tiny):
    write(EXPERIMENT.replace("def trial(seed, net)", "def trial(seed, net, side)").replace("SHIFT", "side / 40"))
    assert declared("tiny").experiments["table1"].now["iacc"].min() >= 0.4


# --- claims, comparison, scoreboard -------------------------------------------------------------------------------


def test_the_scoreboard_is_what_the_notebook_compares(tiny):
    claimed()
    found = {row["id"]: row for row in scoreboard.rows("tiny")}
    compared = json.loads(paths.executed_comparison("tiny").read_text())["rows"]
    assert {row["id"]: row["status"] for row in compared} == {key: row["status"] for key, row in found.items()}
    assert found["tab1-a"]["status"] == "✓ match"
    assert found["tab1-b"]["status"] == "✗ differs"
    ahead = found["ahead"]
    assert ahead["ours"] == pytest.approx(0.1)
    assert (ahead["low"], ahead["n"], ahead["status"]) == (pytest.approx(0.1), 12, "◌ agrees")
    assert ahead["differences"] == ["side 16, paper 32"]
    counts = scoreboard.overview()["tiny"]
    assert (counts["match"], counts["differs"], counts["scaled_agrees"], counts["total"]) == (1, 1, 1, 3)
    shown = json.loads(CliRunner().invoke(app, ["scoreboard", "--json"]).output)
    assert shown["all"] == counts == shown["tiny"]


def test_claims_of_other_records_are_refused(tiny):
    chapter = claimed()
    chapter.experiments["table1"].record(chapter.experiments["table1"].rows.head(3))
    with pytest.raises(ValueError, match="measured before table1 changed"):
        scoreboard.rows("tiny")


def test_a_quick_run_counts_nothing_and_a_missing_setting_stops_nothing(tiny):
    chapter = declared("tiny")
    experiment = chapter.experiments["table1"]
    chapter.claim("ahead", lambda t: t["c"], of=experiment)
    assert {row["status"] for row in chapter.compare()} == {"— not attempted"}
    chapter.claim("ahead", lambda t: t["b"] - t["a"], of=experiment)
    rows = {row["id"]: row for row in chapter.compare()}
    assert rows["ahead"]["status"] == "— not attempted"
    assert rows["ahead"]["now"] == pytest.approx(0.1)
    chapter.claim("no-such-claim", 1.0)
    with pytest.raises(ValueError, match="no-such-claim"):
        chapter.compare()


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("claims.toml", 'table = "fig1"\n', "", "table names one of"),
        ("claims.toml", "fig1", "fig7", "table names one of"),
        ("claims.toml", "why", "because", "unexpected keyword|missing"),
        ("claims.toml", "ahead", "tab1-a", "two values"),
        ("claims.toml", "at least", "about", "does not go with"),
        ("tables.toml", "is = 0.05", "is = -1", "not negative"),
    ],
)
def test_bad_published_numbers(tiny, file, old, new, message):
    path = tiny / "data" / "published" / "tiny" / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        scoreboard.published.load("tiny")


# --- recheck ------------------------------------------------------------------------------------------------------


def test_recorded_settings_come_out_again_and_a_changed_trial_is_noticed(tiny):
    claimed()
    (record,) = recheck.recorded("tiny")
    outcomes = [recheck.spot_check([record], seed, 10, str)[0] for seed in range(6)]
    assert {net for one in outcomes for net in one.rows["net"]} == {"a", "b"}
    assert all(one.verdicts == [recheck.SAME] * 12 for one in outcomes)
    write(EXPERIMENT.replace("/ 100", "/ 90 + 0.3"))
    said = []
    (outcome,) = recheck.spot_check([record], 0, 10, said.append)
    assert outcome.verdicts == [recheck.DIFFERS] * 12
    assert said == ["tiny/table1 (paper): 12 of 24 rows: 12 differs"]
    done = CliRunner().invoke(app, ["recheck", "tiny", "--seed", "0"])
    assert done.exit_code == 1


def test_a_setting_that_was_added_since_is_new(tiny):
    claimed()
    (record,) = recheck.recorded("tiny")
    write(EXPERIMENT.replace('["a", "b"]', '["c"]'))
    assert recheck.spot_check([record], 0, 10, str)[0].verdicts == [recheck.NEW] * 12


def test_a_recheck_takes_the_threads_of_the_record(tiny, monkeypatch):
    claimed()
    (record,) = recheck.recorded("tiny")
    before, seen, sweep = torch.get_num_threads(), [], recheck.sweep
    monkeypatch.setattr(recheck, "sweep", lambda *a, **k: seen.append(torch.get_num_threads()) or sweep(*a, **k))
    other = 1 if before > 1 else 2
    for threads in (other, [other, before]):
        recheck.spot_check([replace(record, facts={**record.facts, "threads": threads})], 0, 10, str)
    assert (seen, torch.get_num_threads()) == ([other, other], before)


def test_means_within_the_interval_rounding_and_times():
    old = pd.DataFrame({"net": "a", "trial": range(4), "iacc": [0.1, 0.2, 0.3, 0.4], "error": 1e-9, "s": 1.0})
    kinds = {value: {"name": "number"} for value in ("iacc", "error", "s")}
    what = {"axes": ["net"], "by": [], "values": list(kinds), "kinds": kinds, "fixed": {}}
    what |= {"times": ["s"], "rounding": ["error"]}
    assert set(recheck.compare(old, old.assign(error=5e-9, s=9), what)) == {recheck.SAME}
    assert set(recheck.compare(old, old.assign(iacc=[0.4, 0.3, 0.2, 0.1]), what)) == {recheck.CLOSE}
    assert recheck.DIFFERS in recheck.compare(old, old.assign(iacc=0.9), what)
    assert set(recheck.compare(old, old.assign(net="b"), what)) == {recheck.NEW}
    two = old.head(2).assign(iacc=[0.90, 0.92])  # too few for an interval: to a tenth of the largest
    assert set(recheck.compare(two, two.assign(iacc=[0.85, 0.89]), what)) == {recheck.CLOSE}
    assert set(recheck.compare(two, two.assign(iacc=[0.75, 0.85]), what)) == {recheck.DIFFERS}
    wide = old.head(2).assign(net=["a", "b"], iacc=[2.0, 1e6])  # no rates: each to a tenth of its own
    assert recheck.compare(wide, wide.assign(iacc=[2.1, 1e6]), what) == [recheck.CLOSE, recheck.SAME]
    assert recheck.compare(wide, wide.assign(iacc=[3.0, 1e6]), what) == [recheck.DIFFERS, recheck.SAME]


def test_each_row_has_its_own_verdict():
    old = pd.DataFrame({"net": ["b", "a"], "by": "x", "trial": 0, "iacc": [0.5, 0.25]})
    what = {"axes": ["net"], "by": ["by"], "values": ["iacc"], "times": [], "rounding": [], "fixed": {}}
    what |= {"kinds": {"iacc": {"name": "mean"}}}
    rows = pd.concat([old.assign(by="y"), old.assign(iacc=[0.5, 0.75])], ignore_index=True)
    assert recheck.compare(old, rows, what) == [recheck.NEW, recheck.NEW, recheck.SAME, recheck.DIFFERS]


def test_the_budget_and_missing_data_leave_tables_out(tiny, monkeypatch):
    claimed()
    (record,) = recheck.recorded("tiny")
    assert recheck.spot_check([record], 0, record.facts["seconds"] / 4, str) == []

    def missing(*_):
        raise DataNotFound("mnist is not here\nmore")

    monkeypatch.setattr(recheck, "recompute", missing)
    said = []
    assert recheck.spot_check([record], 0, 10, said.append) == []
    assert said == ["tiny/table1 (paper): passed over, mnist is not here"]


# --- what trials start from -------------------------------------------------------------------------------------


def test_data_and_models_are_noted_on_the_chapters_device(tiny):
    write(
        EXPERIMENT.replace(
            "    yield", "    chapter.build('lenet', chapter.images('mnist5k').shape, 10, seed=seed)\n    yield"
        )
    )
    chapter = declared("tiny")
    rows = chapter.experiments["table1"].run()
    (used,) = rows.attrs["notes"]["data"].values()
    assert (used["name"], used["images"]) == ("mnist5k/train", len(chapter.images("mnist5k")))
    assert rows.attrs["stamps"][0]["device"] == "cpu"


def step(model, size, seed):
    with torch.no_grad():
        model.weight += size * torch.randn(model.weight.shape, generator=torch.Generator().manual_seed(seed))


def fresh(seed=0):
    torch.manual_seed(seed)
    return nn.Linear(3, 2)


def test_trained_weights_are_kept_and_never_taken_for_anothers(tmp_path, monkeypatch, capsys):
    first = trained_once(step, fresh(), tmp_path, size=0.5, seed=1)
    (kept,) = tmp_path.glob("*.pt")
    before = kept.stat().st_mtime_ns
    assert torch.equal(first.weight, trained_once(step, fresh(), tmp_path, size=0.5, seed=1).weight)
    assert kept.stat().st_mtime_ns == before
    trained_once(step, fresh(), tmp_path, size=0.25, seed=1)
    trained_once(step, fresh(7), tmp_path, size=0.5, seed=1)
    trained_once(step, fresh(), tmp_path, version=2, size=0.5, seed=1)
    assert len(list(tmp_path.glob("*.pt"))) == 4
    kept.write_bytes(kept.read_bytes()[:100])
    assert torch.equal(first.weight, trained_once(step, fresh(), tmp_path, size=0.5, seed=1).weight)
    assert "set aside" in capsys.readouterr().out
    monkeypatch.setitem(globals(), "step", lambda model, size, seed: None)
    renamed = type(step)(step.__code__, globals(), "step")
    with pytest.raises(Changed, match="version=2"):
        trained_once(renamed, fresh(), tmp_path, size=0.5, seed=1)


def test_trained_weights_are_not_those_of_another_activation(tmp_path):
    """A Tanh has no weights: networks that differ in it alone begin with the same ones."""

    def nudged(activation):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), activation, torch.nn.Linear(3, 2))
        return trained_once(through, model, tmp_path, seed=1)

    first, second = nudged(torch.nn.ReLU()), nudged(torch.nn.Tanh())
    assert len(list(tmp_path.glob("*.pt"))) == 2
    assert not torch.equal(first[2].weight, second[2].weight)


def through(model, seed):
    """One step on random inputs, whose gradient passes every layer."""
    x = torch.randn(8, 2, generator=torch.Generator().manual_seed(seed))
    model(x).square().mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= parameter.grad


def test_tables_are_shown_the_same_every_time(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda thing: shown.append(thing.data))
    cells = pd.DataFrame(
        {"lr": [0.1, 0.1], "rule": ["x", "y"], "iacc": [0.5, 0.25], "iacc low": [0.4, None], "iacc high": [0.6, None]}
    )
    for _ in range(2):
        show(cells, "Caption", "lr", value="iacc", wide="rule")
    assert shown[0] == shown[1]
    for text in ("Caption", "learning rate", "0.500 [0.400, 0.600]", ">0.250<"):
        assert text in shown[0]
    show(pd.DataFrame({"x": 1, "B": [1, 16, 4], "iacc": 0.5}), "Wide", "x", value="iacc", wide="B")
    assert [shown[-1].index(f"B = {size}<") for size in (1, 4, 16)] == sorted(
        shown[-1].index(f"B = {size}<") for size in (1, 4, 16)
    )
