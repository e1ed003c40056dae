"""`sweep`: reproducible rows, a cache that is right about what may be reused, and no loss when it is killed."""

import importlib.util
import inspect
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from fedleak import sweep
from fedleak.sweep import fingerprint, seeds_of

MODULE = """
import os, signal, time
from functools import cache, partial
import torch

SCALE = 2
LOG = os.environ.get("SWEEP_LOG")
PAUSE = float(os.environ.get("SWEEP_PAUSE", "0"))
DEADLY = os.environ.get("SWEEP_DEADLY")


def noise(seed):
    return torch.rand(1, generator=torch.Generator().manual_seed(seed)).item()


def trial(seeds, a, b):
    if LOG:
        with open(LOG, "a") as log:
            log.write("".join(f"{a} {b} {s}\\n" for s in seeds))
    if DEADLY and not os.path.exists(DEADLY):
        open(DEADLY, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(PAUSE)
    return [{"seed": s, "value": SCALE * noise(s) + a, "name": b * 2} for s in seeds]
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
    return module


@pytest.fixture
def log(tmp_path, monkeypatch):
    """The file that every computed trial is written to: ``a b seed``."""
    path = tmp_path / "log"
    path.touch()
    monkeypatch.setenv("SWEEP_LOG", str(path))
    yield lambda: path.read_text().split("\n")[:-1]
    sys.modules.pop("sweep_trials", None)


def run(module, out, trials=4, grid=GRID, **options):
    return sweep(module.trial, grid, trials, 7, out, progress=False, **{"chunk": 2, **options})


# --- what comes out ----------------------------------------------------------------------------------------------


def test_rows_are_tidy_seeded_and_one_a_trial(tmp_path, log):
    table = run(load(tmp_path), tmp_path / "out")
    assert list(table.columns) == ["a", "b", "trial", "seed", "value", "name"]
    assert len(table) == 3 * 2 * 4
    assert list(zip(table["a"], table["b"], strict=True)) == [
        s for s in itertools.product(*GRID.values()) for _ in "1234"
    ]
    assert table["trial"].tolist() == [0, 1, 2, 3] * 6
    assert table["seed"].tolist() == seeds_of(7, 4) * 6  # settings are compared on the same seeds
    for row in table.itertuples():
        expected = torch.rand(1, generator=torch.Generator().manual_seed(row.seed)).item()
        assert row.value == 2 * expected + row.a
        assert row.name == row.b * 2
    assert table.attrs["seconds"] >= 0


def test_rows_do_not_depend_on_the_chunks_nor_on_the_cache(tmp_path, log):
    module = load(tmp_path)
    tables = [run(module, tmp_path / f"out{chunk}", chunk=chunk) for chunk in (None, 1, 3, 4, 100)]
    tables.append(run(module, tmp_path / "out1", chunk=1))  # all of it from the cache
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0])


def test_settings_can_be_listed_and_may_differ_in_their_axes(tmp_path):
    def two(seeds, a, extra=0):
        return pd.DataFrame({"seed": seeds * 2, "part": [0, 1] * len(seeds), "value": a + extra})

    table = sweep(two, [{"a": 1}, {"a": 2, "extra": 5}], 2, 0, tmp_path, progress=False)
    assert table["value"].tolist() == [1] * 4 + [7] * 4
    assert table["extra"].isna().sum() == 4
    assert len(table) == 8  # two rows a trial


def test_numbers_of_numpy_and_torch_become_plain_ones(tmp_path):
    def plain(seeds):
        return [{"seed": s, "t": torch.tensor(0.5), "n": np.int64(3), "nan": float("nan")} for s in seeds]

    first = sweep(plain, {}, 2, 0, tmp_path, progress=False)
    assert first[["t", "n"]].to_numpy().tolist() == [[0.5, 3]] * 2
    assert first["nan"].isna().all()
    pd.testing.assert_frame_equal(first, sweep(plain, {}, 2, 0, tmp_path, progress=False))


def test_seeds_are_a_prefix_of_more_seeds_and_differ_between_sweeps():
    assert seeds_of(3, 5) == seeds_of(3, 50)[:5]
    assert len(set(seeds_of(3, 1000) + seeds_of(4, 1000))) == 2000
    assert all(0 <= s < 2**63 for s in seeds_of(0, 1000))
    assert seeds_of(3, 0) == []


# --- the cache ---------------------------------------------------------------------------------------------------


def test_nothing_is_computed_twice(tmp_path, log):
    module = load(tmp_path)
    first = run(module, tmp_path / "out")
    assert len(log()) == len(set(log())) == 24
    second = run(module, tmp_path / "out")
    assert len(log()) == 24
    pd.testing.assert_frame_equal(first, second)
    assert second.attrs["seconds"] == first.attrs["seconds"]  # what the trials took, not the reading


def test_more_trials_reuse_the_earlier_chunks(tmp_path, log):
    module = load(tmp_path)
    few = run(module, tmp_path / "out", trials=4)
    many = run(module, tmp_path / "out", trials=10)
    assert len(log()) == len(set(log())) == 3 * 2 * 10
    merged = many[many["trial"] < 4].reset_index(drop=True)
    pd.testing.assert_frame_equal(merged, few)


def test_a_new_value_on_an_axis_reuses_the_others(tmp_path, log):
    module = load(tmp_path)
    run(module, tmp_path / "out")
    run(module, tmp_path / "out", grid={"a": [3, 9], "b": ["x", "y"]})
    assert len(log()) == len(set(log())) == 24 + 8


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    "damage",
    [
        flip,
        lambda path: path.write_bytes(path.read_bytes()[:-9]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:30]),
        lambda path: path.write_bytes(b"\xff\xfe\x00garbage"),
    ],
    ids=["flipped", "truncated", "empty", "checksum only", "garbage"],
)
def test_a_corrupt_file_is_noticed_set_aside_and_computed_again(tmp_path, log, capsys, damage):
    module, out = load(tmp_path), tmp_path / "out"
    first = run(module, out)
    victim = sorted(out.glob("*.json"))[2]
    damage(victim)
    damaged = victim.read_bytes()
    second = run(module, out)
    pd.testing.assert_frame_equal(first, second)
    assert len(log()) == 24 + 2  # the two trials of one unit
    assert victim.with_suffix(".corrupt").read_bytes() == damaged
    assert f"{victim.name} in out is corrupt: set aside as {victim.stem}.corrupt" in capsys.readouterr().out
    run(module, out)
    assert len(log()) == 24 + 2


def test_what_a_killed_writer_left_does_no_harm(tmp_path, log):
    module, out = load(tmp_path), tmp_path / "out"
    first = run(module, out)
    (out / "abc.tmp").write_text("half a fi")
    pd.testing.assert_frame_equal(run(module, out), first)
    assert len(log()) == 24


def test_a_failing_trial_leaves_the_finished_ones(tmp_path, log):
    breaking = MODULE.replace("    time.sleep(PAUSE)", "    if a == 3 and LIMIT:\n        raise RuntimeError('boom')")
    module = load(tmp_path, breaking.replace("SCALE = 2", "SCALE = 2\nLIMIT = os.environ.get('SWEEP_LIMIT')"))
    module.LIMIT = None
    whole = run(module, tmp_path / "whole")
    done = len(log())
    # The same code with the limit on: its own key, so all is computed until it fails.
    module.LIMIT = "on"
    for _ in range(2):
        with pytest.raises(RuntimeError, match="boom"):
            run(module, tmp_path / "out")
    assert len(log()) == done + 16 + 2 + 2  # a = 1 and 2 once; the first unit of a = 3 twice
    assert len(whole) == 24


# --- what the key depends on -------------------------------------------------------------------------------------

EDITS = {
    "its own source": ("+ a,", "+ a + 1,"),
    "a helper": ("torch.rand(1", "torch.randn(1"),
    "a constant": ("SCALE = 2", "SCALE = 3"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edit_is_noticed_and_the_same_text_is_the_same(tmp_path, log, edit):
    out = tmp_path / "out"
    old = run(load(tmp_path / "old"), out)
    run(load(tmp_path / "copy"), out)
    assert len(log()) == 24
    changed = MODULE.replace(*edit)
    assert changed != MODULE
    new = run(load(tmp_path / "new", changed), out)
    assert len(log()) == 48
    assert not old["value"].equals(new["value"])


def test_an_edit_of_what_the_trial_does_not_use_is_no_change(tmp_path, log):
    run(load(tmp_path / "old"), tmp_path / "out")
    unrelated = MODULE + "\n\ndef unused():\n    return 5\n\n\nOTHER = 8\n"
    run(load(tmp_path / "new", unrelated), tmp_path / "out")
    assert len(log()) == 24


def test_setting_seed_and_version_are_part_of_the_key(tmp_path, log, monkeypatch):
    module, out = load(tmp_path), tmp_path / "out"
    grid = {"a": [1], "b": ["x"]}
    run(module, out, grid=grid)
    for number, change in enumerate(
        [{"a": [2], "b": ["x"]}, {"a": [1], "b": ["y"]}, {"a": ["1"], "b": ["x"]}], start=1
    ):
        if change["a"] == ["1"]:
            with pytest.raises(TypeError):
                run(module, out, grid=change)  # 1 and "1" are different settings
        else:
            run(module, out, grid=change)
            assert len(log()) == 4 * (number + 1)
    before = len(log())
    sweep(module.trial, grid, 4, 8, out, chunk=2, progress=False)
    assert len(log()) == before + 4
    monkeypatch.setattr(sys.modules["fedleak.sweep"], "version", lambda _: "0.0.0")
    run(module, out, grid=grid)
    assert len(log()) == before + 8


# Each variant differs from the first in one thing that a trial reads in some indirect way.
INDIRECT = """
from functools import cache, partial, wraps
import torch
TABLE = torch.zeros(5000)
NET = torch.nn.Linear(2, 2, bias=False)
torch.nn.init.zeros_(NET.weight)
NAMES = {"k": [1, 2, 3]}
DEFAULT = 1
def plain(x): return x + 1
def deep(x): return deeper(x)
def deeper(x): return x + 10
@cache
def cached(): return 100
def decorated(f):
    @wraps(f)
    def inner(*a): return f(*a)
    return inner
@decorated
def wrapped(x): return x + 1000
bound = partial(plain, 5)
class Tool:
    def use(self): return 10000
    @staticmethod
    def other(): return 20000
def outer(y):
    def trial(seeds): return [y for s in seeds]
    return trial
def in_comprehension(seeds): return [plain(s) * DEFAULT for s in seeds]
def in_lambda(seeds): return list(map(lambda s: plain(s), seeds))
def in_inner(seeds):
    def inner(s): return plain(s)
    return inner(0)
def transitive(seeds): return deep(0)
def uses_cached(seeds): return cached()
def uses_wrapped(seeds): return wrapped(0)
def uses_partial(seeds): return bound()
def uses_class(seeds): return Tool().use() + Tool.other()
def uses_table(seeds): return TABLE.sum()
def uses_net(seeds): return NET(torch.ones(2))
def uses_names(seeds): return NAMES["k"]
def uses_default(seeds, x=DEFAULT): return x
closure = outer(3)
given = partial(plain, 3)
"""


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("in_comprehension", "return x + 1\n", "return x + 2\n"),
        ("in_comprehension", "DEFAULT = 1", "DEFAULT = 2"),
        ("in_lambda", "return x + 1\n", "return x + 2\n"),
        ("in_inner", "return x + 1\n", "return x + 2\n"),
        ("transitive", "x + 10\n", "x + 11\n"),
        ("uses_cached", "return 100\n", "return 101\n"),
        ("uses_wrapped", "x + 1000", "x + 1001"),
        ("uses_partial", "partial(plain, 5)", "partial(plain, 6)"),
        ("uses_partial", "return x + 1\n", "return x + 2\n"),
        ("uses_class", "return 10000", "return 10001"),
        ("uses_class", "return 20000", "return 20001"),
        ("uses_table", "torch.zeros(5000)", "torch.zeros(5000).index_fill(0, torch.tensor(2500), 1)"),
        ("uses_net", "torch.nn.init.zeros_", "torch.nn.init.ones_"),
        ("uses_names", "[1, 2, 3]", "[1, 2, 4]"),
        ("uses_default", "DEFAULT = 1", "DEFAULT = 2"),
        ("closure", "outer(3)", "outer(4)"),
        ("given", "partial(plain, 3)", "partial(plain, 4)"),
        ("given", "return x + 1\n", "return x + 2\n"),
    ],
)
def test_indirect_changes_are_noticed(tmp_path, name, old, new):
    assert old in INDIRECT
    one, same, other = (
        fingerprint(getattr(load(tmp_path / folder, text, "indirect"), name))
        for folder, text in (("one", INDIRECT), ("same", INDIRECT), ("other", INDIRECT.replace(old, new)))
    )
    assert one == same
    assert one != other
    del sys.modules["indirect"]


def test_functions_that_call_each_other_are_no_endless_loop(tmp_path):
    text = "def a(seeds): return b(seeds)\ndef b(seeds): return a(seeds)\n"
    assert fingerprint(load(tmp_path, text, "mutual").a)
    del sys.modules["mutual"]


def test_large_values_are_described_in_full():
    described = sys.modules["fedleak.sweep"].described
    zeros = np.zeros(5000)
    one = zeros.copy()
    one[2500] = 1
    assert repr(zeros) == repr(one)
    for kind in (np.asarray, torch.as_tensor, pd.Series, lambda v: pd.DataFrame({"v": v}), lambda v: {"k": [v]}):
        assert described(kind(zeros)) == described(kind(zeros.copy()))
        assert described(kind(zeros)) != described(kind(one))
    assert described(torch.zeros(2, 3)) != described(torch.zeros(3, 2))
    assert described(torch.zeros(2)) != described(torch.zeros(2).double())


# --- bad input ---------------------------------------------------------------------------------------------------


def nothing(seeds, **setting):
    return [{"seed": s} for s in seeds]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "trials and chunk are at least 1, got 0 and None"),
        ({"trials": -2}, "trials and chunk are at least 1, got -2 and None"),
        ({"chunk": 0}, "trials and chunk are at least 1, got 2 and 0"),
        ({"grid": {"a": []}}, "the grid is empty: an axis without values leaves nothing to run"),
        ({"grid": []}, "the grid is empty"),
        ({"grid": {"seed": [1]}}, r"\['seed'\] are columns of the result and cannot be axes"),
        ({"grid": [{"a": 1}, {"trial": 1}]}, r"\['trial'\] are columns of the result and cannot be axes"),
    ],
)
def test_bad_arguments(tmp_path, options, message):
    options = {"grid": {"a": [1]}, "trials": 2, "chunk": None, **options}
    with pytest.raises(ValueError, match=message):
        sweep(nothing, options["grid"], options["trials"], 0, tmp_path, chunk=options["chunk"], progress=False)


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (
            lambda seeds: [{"value": 1} for _ in seeds],
            ValueError,
            "rows for every one of its seeds, each with its 'seed'",
        ),
        (lambda seeds: [{"seed": seeds[0]}], ValueError, "rows for every one of its seeds"),
        (lambda seeds: [{"seed": s + 1} for s in seeds], ValueError, "rows for every one of its seeds"),
        (
            lambda seeds: [{"seed": s, "a": 1} for s in seeds],
            ValueError,
            r"columns \['a'\] are names of the grid's axes",
        ),
        (lambda seeds: [{"seed": s, "trial": 1} for s in seeds], ValueError, r"columns \['trial'\]"),
        (lambda seeds: [{"seed": s, "v": object()} for s in seeds], TypeError, "row holds a object; use numbers"),
    ],
)
def test_bad_rows(tmp_path, rows, error, message):
    with pytest.raises(error, match=message):
        sweep(lambda seeds, a: rows(seeds), {"a": [1]}, 2, 0, tmp_path, progress=False)
    assert not list(tmp_path.glob("*.json"))


def test_an_output_folder_that_cannot_be_written(tmp_path, log):
    blocked = tmp_path / "file"
    blocked.write_text("")
    module = load(tmp_path)
    for out in (blocked, blocked / "below"):
        with pytest.raises(PermissionError, match=r"cannot write results to .*file"):
            run(module, out)
    assert log() == []  # it is tried before anything is computed


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_read_only_output_folder(tmp_path, log):
    out = tmp_path / "out"
    out.mkdir(mode=0o555)
    with pytest.raises(PermissionError, match=r"cannot write results to .*Permission denied"):
        run(load(tmp_path), out)
    assert log() == []


# --- killed, and on several machines -----------------------------------------------------------------------------

CHILD = """
import sys
sys.path.insert(0, {folder!r})
import sweep_trials
from fedleak import sweep
sweep(sweep_trials.trial, {grid!r}, 4, 7, {out!r}, chunk=2, progress=False)
"""


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_stopped(tmp_path, log):
    module = load(tmp_path)
    whole = run(module, tmp_path / "whole")
    before = len(log())
    out = tmp_path / "out"
    code = CHILD.format(folder=str(tmp_path), grid=GRID, out=str(out))
    child = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "SWEEP_PAUSE": "0.4"})
    # PAUSE is a value that the trial reads, so the resuming process must have the same.
    try:
        deadline = time.monotonic() + 120
        while len(list(out.glob("*.json"))) < 4:
            assert child.poll() is None, "the sweep ended before it could be killed"
            assert time.monotonic() < deadline, "the sweep does not get on"
            time.sleep(0.02)
        child.send_signal(signal.SIGKILL)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == -signal.SIGKILL
    there = {path: path.read_bytes() for path in out.glob("*.json")}
    assert 4 <= len(there) < 12
    in_child = log()[before:]
    module.PAUSE = 0.4
    resumed = run(module, out)
    pd.testing.assert_frame_equal(resumed, whole)
    again = log()[before + len(in_child) :]
    assert len(again) == 24 - 2 * len(there)  # two trials a unit: what was there is not computed again
    done = {row["seed"] for content in there.values() for row in json.loads(content.split(b"\n", 1)[1])["rows"]}
    assert done  # the files were whole
    counts = Counter(in_child + again)
    assert len(counts) == 24
    assert sum(counts.values()) <= 24 + 2  # at most the one unit that was in flight ran twice
    for path, content in there.items():
        assert path.read_bytes() == content


@pytest.fixture
def cluster(tmp_path, monkeypatch, log):
    """A Dask cluster of two worker processes on this machine; the trial module is sent to them by value."""
    import cloudpickle
    from dask.distributed import LocalCluster

    monkeypatch.setenv("SWEEP_DEADLY", "")
    module = load(tmp_path)
    cloudpickle.register_pickle_by_value(module)
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as found:
        yield module, found.scheduler_address
    cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_rows(tmp_path, log, cluster):
    module, address = cluster
    here = run(module, tmp_path / "here")
    there = run(module, tmp_path / "there", scheduler=address)
    pd.testing.assert_frame_equal(there, here)
    assert len(log()) == 48
    pd.testing.assert_frame_equal(run(module, tmp_path / "there", scheduler=address), here)
    assert len(log()) == 48  # all from the cache


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(tmp_path, log, cluster):
    module, address = cluster
    here = run(module, tmp_path / "here")
    module.DEADLY = str(tmp_path / "somebody died")  # the first worker to run a trial kills itself
    there = run(module, tmp_path / "there", scheduler=address)
    assert (tmp_path / "somebody died").exists()
    pd.testing.assert_frame_equal(there, here)


@pytest.mark.slow
def test_a_trial_that_the_workers_cannot_import_is_an_error_and_no_endless_wait(tmp_path, log, cluster):
    _, address = cluster
    elsewhere = load(tmp_path, "def trial(seeds, a, b):\n    return []\n", "only_here")
    with pytest.raises(ModuleNotFoundError, match="only_here"):
        run(elsewhere, tmp_path / "out", scheduler=address)
    del sys.modules["only_here"]


def test_a_scheduler_that_is_not_there(tmp_path):
    import dask

    with dask.config.set({"distributed.comm.timeouts.connect": "100ms"}), pytest.raises(OSError, match="Timed out"):
        sweep(nothing, {"a": [1]}, 1, 0, tmp_path, "tcp://127.0.0.1:9", progress=False)


def test_progress_is_shown_on_demand(tmp_path, capsys):
    trial = partial(nothing)
    sweep(trial, {"a": [1, 2]}, 1, 0, tmp_path)
    assert "2/2" in capsys.readouterr().err
    sweep(trial, {"a": [1, 2]}, 1, 0, tmp_path, progress=False)
    assert capsys.readouterr().err == ""


def test_the_trials_source_is_really_what_is_hashed():
    assert inspect.getsource(nothing).startswith("def nothing")
    assert fingerprint(nothing) == fingerprint(nothing)
