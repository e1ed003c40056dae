"""Sweeps on a Dask cluster: the same rows, whatever dies, and a clear word where that cannot be."""

import functools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter

import cloudpickle
import dask
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from fedleak import cluster, data, notebooks, parcel, recheck, sweep
from fedleak.chapter import Chapter
from fedleak.cli import app
from fedleak.errors import DataNotFound

LOG = ""
PAUSE = 0.0
DEADLY = -1
AXIS = {"a": [1, 2, 3, 4, 5, 6, 7, 8]}


def trial(seeds, a):
    with open(LOG, "a") as log:
        log.write(f"{os.getpid()} {a}\n")
    if a == DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(PAUSE)
    return [{"seed": s, "value": a * torch.rand(1, generator=torch.Generator().manual_seed(s)).item()} for s in seeds]


def rows(out, scheduler=None, function=trial):
    return sweep(function, AXIS, 2, 7, out, scheduler, progress=False)


@pytest.fixture(autouse=True)
def sent_by_value():
    """The functions of this file are in no module that a worker has, like those of a notebook."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def log(tmp_path, monkeypatch):
    """What was started so far: [process, a]."""
    monkeypatch.setattr(sys.modules[__name__], "LOG", str(tmp_path / "log"))
    (tmp_path / "log").touch()
    return lambda: [[int(word) for word in line.split()] for line in (tmp_path / "log").read_text().splitlines()]


# --- what is sent ------------------------------------------------------------------------------------------------

NOTEBOOK = """
from functools import cache
FACTOR = 3

def scale(x):
    return FACTOR * x

@cache
def tower(k):
    CALLS.append(k)
    return 0 if k == 0 else scale(1) + tower(k - 1)

CALLS = []

def trial(seeds):
    return [{"seed": s, "tower": tower(5), "pixels": float(IMAGES.x.sum())} for s in seeds]
"""


def notebook(**values):
    """What a kernel makes of a cell."""
    import linecache

    linecache.cache["<cell>"] = (len(NOTEBOOK), None, NOTEBOOK.splitlines(keepends=True), "<cell>")
    namespace = {"__name__": "__main__", **values}
    exec(compile(NOTEBOOK, "<cell>", "exec"), namespace)
    return namespace


def test_a_notebooks_function_works_in_another_process_with_its_caches_its_source_and_its_data(tmp_path, monkeypatch):
    images = data.load("synthetic", count=4000)
    cells = notebook(IMAGES=images)
    assert len(parcel.packed(cells["trial"])) > images.x.nbytes  # not known to be loadable: sent as it is
    monkeypatch.setattr(parcel, "_loaded", {})
    parcel.loadable(images, "synthetic", "train", "", {"count": 4000})
    work = parcel.packed(cells["trial"])
    assert len(work) < 10_000
    (tmp_path / "work").write_bytes(work)
    code = (
        "import inspect, pathlib; from fedleak import parcel\n"
        f"trial = parcel.unpacked(pathlib.Path({str(tmp_path / 'work')!r}).read_bytes())\n"
        "print(trial([1, 2])); tower = trial.__globals__['tower']\n"
        "print(trial.__globals__['CALLS'], tower.cache_info().hits, inspect.getsource(tower.__wrapped__)[:20])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    expected = [{"seed": s, "tower": 15, "pixels": float(images.x.sum())} for s in (1, 2)]
    assert done.splitlines()[0] == str(expected)
    assert done.splitlines()[1].startswith("[5, 4, 3, 2, 1, 0] 1 @cache")  # one cache, filled once
    assert cells["CALLS"] == []


def test_cached_functions_of_modules_are_not_copied():
    for function in (parcel._load_once, parcel.unpacked):
        assert parcel.unpacked(parcel.packed(function)) is function


def test_the_same_work_is_unpacked_once():
    work = parcel.packed(functools.partial(rows, "somewhere"))
    assert parcel.unpacked(work) is parcel.unpacked(bytes(bytearray(work)))


def test_a_chapter_is_sent_without_what_it_has_loaded():
    chapter = Chapter("llg", "quick", "cpu", 0, 0, "", False)
    chapter.load("synthetic")
    copy = parcel.unpacked(parcel.packed(functools.partial(rows, chapter))).args[0]
    assert repr(copy) == repr(chapter)
    assert (copy._used, list(chapter._used)) == ({}, ["synthetic/train"])


def test_a_worker_whose_data_are_others_or_missing(monkeypatch):
    images = data.load("synthetic", count=100)
    monkeypatch.setattr(parcel, "_loaded", {})
    parcel.loadable(images, "synthetic", "train", "", {"count": 200})
    with pytest.raises(RuntimeError, match=rf"synthetic/train on worker .* is Images.*its checksum is {images.digest}"):
        parcel.unpacked(parcel.packed(functools.partial(rows, images)))
    monkeypatch.delenv("FEDLEAK_DATA", raising=False)
    parcel.loadable(images, "mnist", "train", "", {})
    with pytest.raises(DataNotFound, match=r"on worker .*: mnist.*FEDLEAK_DATA"):
        parcel.unpacked(parcel.packed(functools.partial(rows, (images, images))))


def test_a_worker_with_other_versions():
    here = cluster._versions()
    assert cluster.run_unit(parcel.packed(len), here, ("four",)) == 4
    with pytest.raises(RuntimeError, match=r"worker .* runs PyTorch 2\.\S+ instead of 1\.0: start it in the envir"):
        cluster.run_unit(b"", here | {"PyTorch": "1.0"}, ())


# --- a scheduler that is not there -------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["nonsense", "http://host:80", "tcp://127.0.0.1"])
def test_what_is_no_address(address):
    with pytest.raises(ValueError, match=r"is no scheduler's address, such as tcp://host:8786"):
        cluster.connect(address)


def test_a_scheduler_that_is_not_there_is_an_error_at_once(tmp_path, monkeypatch):
    began = time.monotonic()
    for attempt in (
        lambda: rows(tmp_path, "tcp://127.0.0.1:9"),
        lambda: Chapter("llg", "quick", "cpu", 0, 0, "", False, "tcp://127.0.0.1:9"),
    ):
        with pytest.raises(ConnectionError, match=r"nothing answers at tcp://127.0.0.1:9 .*Start one with `dask sch"):
            attempt()
    monkeypatch.setattr(notebooks, "execute", pytest.fail)
    done = CliRunner().invoke(app, ["run", "llg", "--scheduler", "tcp://127.0.0.1:9"])
    assert done.exit_code == 1
    assert "fedleak: nothing answers at tcp://127.0.0.1:9" in done.output
    assert time.monotonic() - began < 10


def test_something_else_that_listens(monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=rf"what listens at {address} is no Dask scheduler"):
            cluster.connect(address)


def test_the_command_hands_the_scheduler_to_the_notebook(monkeypatch):
    given = {}
    monkeypatch.setattr(cluster, "reach", lambda address: None)
    monkeypatch.setattr(notebooks, "execute", lambda name, **options: given.update(options))
    done = CliRunner().invoke(app, ["run", "llg", "--scheduler", "tcp://node7:8786"])
    assert done.exit_code == 0, done.output
    assert given["parameters"] == {"scheduler": "tcp://node7:8786"}


# --- two worker processes ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_processes():
    """A Dask cluster of two worker processes on this machine; a unit may kill one worker, not two."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        dask.distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as found,
    ):
        yield found


@pytest.fixture
def workers(two_processes):
    """The cluster, with both workers there, whatever an earlier test has done to them."""
    with cluster.connect(two_processes.scheduler_address) as client:
        client.wait_for_workers(2, timeout=300)
    return two_processes


def when(condition, act):
    """Do something in a thread as soon as a condition holds."""

    def watch():
        deadline = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.mark.slow
def test_the_rows_are_those_of_this_process_and_more_workers_take_part(tmp_path, log, workers):
    here = rows(tmp_path / "here")
    there = rows(tmp_path / "there", workers.scheduler_address)
    pd.testing.assert_frame_equal(there, here)
    started = log()
    assert len({process for process, _ in started} - {os.getpid()}) == 2
    pd.testing.assert_frame_equal(rows(tmp_path / "there", workers.scheduler_address), here)
    assert log() == started  # all from the cache
    assert cluster.description(workers.scheduler_address) == "Dask: 2 worker processes, 2 threads, 1 hosts"


@pytest.mark.slow
@pytest.mark.parametrize("victims", [1, 2])
def test_workers_killed_in_the_middle_of_a_trial_change_nothing(tmp_path, log, workers, monkeypatch, victims):
    here = rows(tmp_path / "here")
    first = len(log())
    monkeypatch.setattr(sys.modules[__name__], "PAUSE", 0.4)
    killed = []

    def kill():
        killed.extend(dict.fromkeys(process for process, _ in log()[:first:-1]))
        del killed[victims:]
        for process in killed:
            os.kill(process, signal.SIGKILL)

    thread = when(lambda: len(log()) >= first + 4 and len({process for process, _ in log()[first:]}) == 2, kill)
    there = rows(tmp_path / "there", workers.scheduler_address)
    thread.join()
    assert len(killed) == victims
    pd.testing.assert_frame_equal(there, here)
    runs = Counter(a for _, a in log()[first:])
    assert set(runs) == set(AXIS["a"])
    # what was in flight ran twice, and perhaps what was done and not fetched yet, but nothing else
    assert 1 <= runs.total() - len(runs) <= 2 * victims


@pytest.mark.slow
def test_a_trial_that_kills_every_worker_is_named(tmp_path, log, workers, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "DEADLY", 3)
    with pytest.raises(
        RuntimeError, match=r"2 workers have died with the unit \(\{'a': \d\}, .*, the last one at tcp://"
    ):
        rows(tmp_path / "out", workers.scheduler_address)


@pytest.mark.slow
def test_a_trial_that_the_workers_cannot_import_is_an_error_and_no_endless_wait(tmp_path, workers):
    (tmp_path / "only_here.py").write_text("def trial(seeds, a):\n    return []\n")
    sys.path.insert(0, str(tmp_path))
    try:
        import only_here

        with pytest.raises(ModuleNotFoundError, match="only_here"):
            rows(tmp_path / "out", workers.scheduler_address, only_here.trial)
    finally:
        sys.path.remove(str(tmp_path))
        del sys.modules["only_here"]


@pytest.mark.slow
@pytest.mark.parametrize(("notebook", "artefact"), [("rlu", "fig2"), ("gdbr", "dummies")])
def test_a_table_of_a_notebook_comes_out_the_same(workers, monkeypatch, notebook, artefact):
    """Trained networks kept on disk, cached functions that call each other, data by name, and parts of data."""
    sizes, pack = [], cluster.packed
    monkeypatch.setattr(cluster, "packed", lambda function: sizes.append(len(pack(function))) or pack(function))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as many as a worker has: sums in the same order
    try:
        here, there = (
            recheck.excerpt(notebook, artefact, {"trials": 1, "device": "cpu", "scheduler": address})
            for address in ("", workers.scheduler_address)
        )
    finally:
        torch.set_num_threads(threads)
    pd.testing.assert_frame_equal(there, here)
    assert sizes
    assert max(sizes) < 20e6


@pytest.mark.slow
def test_without_any_worker_the_sweep_waits_says_so_and_gives_up_with_what_is_done_kept(
    tmp_path, log, workers, monkeypatch, capsys
):
    here = rows(tmp_path / "here")
    monkeypatch.setattr(sys.modules[__name__], "PAUSE", 0.4)
    monkeypatch.setattr(cluster, "PATIENCE", 2.0)
    monkeypatch.setattr(cluster, "LOOK", 0.1)
    address, out = workers.scheduler_address, tmp_path / "out"
    thread = when(lambda: list(out.glob("*.json")), lambda: workers.scale(0))
    with pytest.raises(ConnectionError, match=r"has had no worker for 2 s. What is finished is kept"):
        rows(out, address)
    thread.join()
    assert f"{address} has no worker; waiting for one, up to 2 s" in capsys.readouterr().out
    kept = list(out.glob("*.json"))
    assert 1 <= len(kept) < 8
    before = len(log())
    monkeypatch.setattr(cluster, "PATIENCE", 200.0)
    workers.scale(2)
    pd.testing.assert_frame_equal(rows(out, address), here)
    assert len(log()) == before + 8 - len(kept)


@pytest.mark.slow
def test_a_scheduler_that_goes_away_is_an_error(tmp_path, log, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PAUSE", 0.4)
    with dask.distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as short:
        thread = when(lambda: list((tmp_path / "out").glob("*.json")), short.close)
        with pytest.raises(ConnectionError, match=r"the scheduler at tcp://.* has gone away. What is finished is kept"):
            rows(tmp_path / "out", short.scheduler_address)
        thread.join()
