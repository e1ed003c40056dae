"""`sweep`: reproducible rows, a cache that survives work on other code, and no loss when it is killed."""

import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch

from fedleak.experiments import cache, grid, seeds_of, sweep
from fedleak.experiments.cache import Changed

MODULE = """
import os, time
import torch

SCALE = 2
LOG = os.environ.get("SWEEP_LOG")


def noise(seed):
    # a number
    return torch.rand(1, generator=torch.Generator().manual_seed(seed)).item()


def unused():
    return 1


def trial(seed, a, b):
    if LOG:
        with open(LOG, "a") as log:
            log.write(f"{a} {b} {seed}\\n")
    time.sleep(float(os.environ.get("SWEEP_PAUSE", "0")))
    yield {"value": SCALE * noise(seed) + a, "name": b * 2}


def many(seeds, a, b):
    return [{"seed": s, **row} for s in seeds for row in trial(s, a, b)]
"""
GRID = {"a": [1, 2, 3], "b": ["x", "y"]}


def load(folder, source=MODULE, name="sweep_trials"):
    """Import a module from its text; the same name every time, as after an edit."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    import linecache

    linecache.checkcache(str(file))
    return module


@pytest.fixture
def log(tmp_path, monkeypatch):
    """The file that every computed trial is written to: ``a b seed``."""
    path = tmp_path / "log"
    path.touch()
    monkeypatch.setenv("SWEEP_LOG", str(path))
    yield lambda: path.read_text().split("\n")[:-1]
    sys.modules.pop("sweep_trials", None)


def run(module, out, trials=4, grid=GRID, trial="trial", **options):
    return sweep(getattr(module, trial), grid, trials, 7, out, progress=False, **{"name": "trial", **options})


# --- what comes out ----------------------------------------------------------------------------------------------


def test_rows_are_tidy_seeded_and_one_a_trial(tmp_path, log):
    table = run(load(tmp_path), tmp_path / "out")
    assert list(table.columns) == ["a", "b", "trial", "seed", "value", "name"]
    assert list(zip(table["a"], table["b"], strict=True)) == [
        s for s in itertools.product(*GRID.values()) for _ in "1234"
    ]
    assert table["trial"].tolist() == [0, 1, 2, 3] * 6
    assert table["seed"].tolist() == seeds_of(7, 4) * 6  # settings are compared on the same seeds
    for row in table.itertuples():
        expected = torch.rand(1, generator=torch.Generator().manual_seed(row.seed)).item()
        assert row.value == 2 * expected + row.a
        assert row.name == row.b * 2
    assert table.attrs["seconds"] > 0


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_a_vectorised_trial_gives_the_same_rows_in_any_chunks(tmp_path, log, chunk):
    module = load(tmp_path)
    one = run(module, tmp_path / "one")
    pd.testing.assert_frame_equal(run(module, tmp_path / "many", trial="many", chunk=chunk), one)
    pd.testing.assert_frame_equal(run(module, tmp_path / "many", trial="many", chunk=2), one)
    assert len(log()) == 48


def test_grids_add_up_and_settings_may_name_their_trials(tmp_path):
    def trial(seed, net, steps=1):
        return {"value": steps}

    settings = grid(net="lenet", steps=[1, 10]) + grid(net=["vgg", "resnet"], trials=3)
    assert settings[:2] == [{"net": "lenet", "steps": 1}, {"net": "lenet", "steps": 10}]
    assert grid(marks=(1, 2)) == [{"marks": (1, 2)}]
    table = sweep(trial, settings, 2, 0, tmp_path, progress=False)
    assert Counter(table["net"]) == {"lenet": 4, "vgg": 3, "resnet": 3}


def test_numbers_of_numpy_and_torch_become_plain_ones(tmp_path):
    def plain(seed):
        return {"t": torch.tensor(0.5), "n": np.int64(3), "nan": float("nan")}

    first = sweep(plain, {}, 2, 0, tmp_path, progress=False)
    assert first[["t", "n"]].to_numpy().tolist() == [[0.5, 3]] * 2
    assert first["nan"].isna().all()
    pd.testing.assert_frame_equal(first, sweep(plain, {}, 2, 0, tmp_path, progress=False))


def test_seeds_are_a_prefix_of_more_seeds_and_differ_between_sweeps():
    assert seeds_of(3, 5) == seeds_of(3, 50)[:5]
    assert len(set(seeds_of(3, 1000) + seeds_of(4, 1000))) == 2000
    assert all(0 <= s < 2**63 for s in seeds_of(0, 1000))


# --- the cache ---------------------------------------------------------------------------------------------------


def test_nothing_is_computed_twice_and_more_cost_only_the_new_ones(tmp_path, log):
    module = load(tmp_path)
    first = run(module, tmp_path / "out")
    assert len(log()) == len(set(log())) == 24
    second = run(module, tmp_path / "out")
    pd.testing.assert_frame_equal(first, second)
    assert second.attrs["seconds"] == first.attrs["seconds"]  # what the trials took, not the reading
    assert len(log()) == 24
    run(module, tmp_path / "out", trials=5)
    assert len(log()) == 24 + 6
    more = run(module, tmp_path / "out", grid={"a": [1, 2, 3, 4], "b": ["x", "y"]})
    assert len(log()) == 30 + 8
    pd.testing.assert_frame_equal(more[more["a"] < 4].reset_index(drop=True), first)


def test_finished_units_are_carried_to_another_folder(tmp_path, log):
    module = load(tmp_path)
    first = run(module, tmp_path / "out")
    shutil.copytree(tmp_path / "out", tmp_path / "elsewhere")
    pd.testing.assert_frame_equal(run(module, tmp_path / "elsewhere"), first)
    assert len(log()) == 24


@pytest.mark.parametrize("damage", [lambda b: b[:-20], lambda b: b.replace(b"value", b"valve", 1), lambda b: b + b"{}"])
def test_broken_lines_are_set_aside_and_computed_again(tmp_path, log, capsys, damage):
    module = load(tmp_path)
    first = run(module, tmp_path / "out")
    file = sorted((tmp_path / "out").glob("*.jsonl"))[0]
    file.write_bytes(damage(file.read_bytes()))
    pd.testing.assert_frame_equal(run(module, tmp_path / "out"), first)
    assert "set aside" in capsys.readouterr().out
    assert 24 <= len(log()) <= 25
    assert file.with_suffix(".corrupt").exists()


def test_a_failing_trial_leaves_the_finished_ones(tmp_path, log):
    broken = MODULE.replace("    time.sleep", "    assert a < 3, 'no'\n    time.sleep")
    with pytest.raises(AssertionError, match="no"):
        run(load(tmp_path, broken), tmp_path / "out")
    assert len(log()) == 17
    with pytest.raises(Changed):
        run(load(tmp_path), tmp_path / "out")


EDITS = {
    "the trial": (("+ a,", "- a,"), True),
    "what it calls": (("manual_seed(seed)", "manual_seed(seed + 1)"), True),
    "a constant it reads": (("SCALE = 2", "SCALE = 3"), True),
    "a comment": (("# a number", "# another"), False),
    "another function": (("return 1\n", "return 2\n"), False),
}


@pytest.mark.parametrize(("edit", "matters"), EDITS.values(), ids=EDITS)
def test_an_edit_of_what_ran_asks_for_a_new_version(tmp_path, log, edit, matters):
    run(load(tmp_path), tmp_path / "out")
    edited = load(tmp_path, MODULE.replace(*edit))
    assert MODULE.replace(*edit) != MODULE
    if not matters:
        run(edited, tmp_path / "out")
        assert len(log()) == 24
        return
    with pytest.raises(Changed, match=r"declare version=2"):
        run(edited, tmp_path / "out")
    assert len(log()) == 24  # nothing is computed, and nothing thrown away
    run(edited, tmp_path / "out", version=2)
    assert len(log()) == 48
    run(load(tmp_path), tmp_path / "out")
    assert len(log()) == 48


DECLARED = """
from fedleak.experiments import Chapter, grid
from fedleak.intervals import NUMBER

chapter = Chapter("paper", "quick", "cpu", 7, 2, "", False, kinds=dict(value=NUMBER, name=NUMBER))
one = grid(a=1, b="x")
trial = chapter.experiment("table", quick=one, paper=one, values=("value", "name"))(trial)
"""


def test_an_edit_of_a_declared_trial_is_noticed_though_the_experiment_has_taken_its_name(tmp_path, log, monkeypatch):
    monkeypatch.setenv("FEDLEAK_CACHE", str(tmp_path / "cache"))
    load(tmp_path, MODULE + DECLARED).trial.run(progress=False)
    load(tmp_path, MODULE + DECLARED).trial.run(progress=False)
    with pytest.raises(Changed, match=r"table: 2 finished units .* change of trial\. If"):
        load(tmp_path, MODULE.replace("+ a,", "- a,") + DECLARED).trial.run(progress=False)
    for _, units in cache.listed(tmp_path / "cache"):
        assert {":trial", ":noise"} == set(units.calls)  # what runs a trial is no part of it


def test_what_a_function_remembers_is_no_constant_of_it(tmp_path, log):
    weak = "SCALE = 2\nfrom weakref import WeakKeyDictionary\nKEPT = WeakKeyDictionary()"
    source = MODULE.replace("SCALE = 2", weak).replace("    # a number", "    KEPT[torch.Generator] = [seed]")
    for _ in range(2):
        run(load(tmp_path, source), tmp_path / "out")
    assert len(log()) == 24


def test_units_are_kept_where_a_change_is_accepted(tmp_path, log):
    first = run(load(tmp_path), tmp_path / "out" / "paper" / "trial")
    edited = load(tmp_path, MODULE.replace("2 * noise", "noise").replace("+ a,", "+ a + 0,"))
    for chapter, units in cache.listed(tmp_path / "out"):
        assert (chapter, units.name, len(units.units)) == ("paper", "trial", 4)
        units.accept(vars(edited))
    pd.testing.assert_frame_equal(run(edited, tmp_path / "out" / "paper" / "trial"), first)


def test_an_edit_of_another_attack_leaves_the_units(tmp_path, monkeypatch):
    from fedleak.attacks.labels import counts, idlg

    def trial(seed):
        return {"total": counts.whole_counts(torch.tensor([1.5, 2.5]), 4).sum()}

    sweep(trial, {}, 2, 0, tmp_path, progress=False)
    monkeypatch.setattr(idlg, "recover", lambda update, model: None)
    sweep(trial, {}, 2, 0, tmp_path, progress=False)
    monkeypatch.setattr(counts, "project", lambda values, total: values)
    with pytest.raises(Changed, match=r"counts\.project"):
        sweep(trial, {}, 2, 0, tmp_path, progress=False)


# --- what is wrong -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "at least 1"),
        ({"chunk": 0}, "at least 1"),
        ({"grid": {"a": [], "b": [1]}}, "empty"),
        ({"grid": {"seed": [1]}}, "cannot be axes"),
    ],
)
def test_bad_arguments(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        run(load(tmp_path), tmp_path / "out", **options)


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([{"seed": 1, "v": 0}], ValueError, "every one of its seeds"),
        ([{"v": 0}], ValueError, "every one of its seeds"),
        ([{"seed": s, "a": 0} for s in seeds_of(0, 2)], ValueError, "names of the grid's axes"),
        ([{"seed": s, "v": object()} for s in seeds_of(0, 2)], TypeError, "numbers, strings"),
    ],
)
def test_bad_rows(tmp_path, rows, error, message):
    def bad(seeds, a):
        return rows

    with pytest.raises(error, match=message):
        sweep(bad, {"a": [1]}, 2, 0, tmp_path, progress=False)


def test_an_output_folder_that_cannot_be_written(tmp_path, log):
    (tmp_path / "file").write_text("")
    with pytest.raises(PermissionError, match="cannot write results"):
        run(load(tmp_path), tmp_path / "file" / "out")
    assert log() == []


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_stopped(tmp_path, log):
    module = load(tmp_path)
    whole = run(module, tmp_path / "whole")
    done = len(log())
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import sweep_trials\nfrom fedleak.experiments import sweep\n"
        f"sweep(sweep_trials.trial, {GRID!r}, 4, 7, {str(tmp_path / 'out')!r}, name='trial')"
    )
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"SWEEP_PAUSE": "0.15"})
        before = len(log())
        deadline = time.monotonic() + 120
        while len(log()) < before + 4 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    pd.testing.assert_frame_equal(run(module, tmp_path / "out"), whole)
    times = Counter(log()[done:])
    assert sum(times.values()) <= 24 + 3, "no more than what was in flight is computed again"
    assert set(times) == set(log()[:done])
