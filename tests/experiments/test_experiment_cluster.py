"""Sweeps on a Dask cluster: the same rows, whatever dies, and a clear word where that cannot be."""

import os
import signal
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import cloudpickle
import dask
import pandas as pd
import pytest
import torch
from distributed import Client, KilledWorker, LocalCluster

from fedleak.errors import DataNotFound
from fedleak_book.experiments import Context, Experiment, cluster, grid, running
from fedleak_book.experiments.kinds import NUMBER

LOG, PAUSE, TOGETHER, HERE, DEADLY = "", 0.0, 0, os.getpid(), -1
AXIS = [1, 2, 3, 4, 5, 6, 7, 8]


def started(a):
    with open(LOG, "a") as log:
        log.write(f"{os.getpid()} {a}\n")


def met(processes):
    """Wait until some processes have begun a trial: on a busy machine one worker may finish all before another."""
    deadline = time.monotonic() + 200
    while processes:
        with open(LOG) as log:
            if len({line.split()[0] for line in log} - {str(HERE)}) >= processes:
                return
        assert time.monotonic() < deadline, f"fewer than {processes} workers took part"
        time.sleep(0.01)


def trial(ctx, seed, a):
    started(a)
    if a == DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    met(TOGETHER)
    time.sleep(PAUSE)
    ctx.images("synthetic", count=10)
    return {"value": a * torch.rand(1, generator=torch.Generator().manual_seed(seed)).item()}


def rows(out, scheduler="", function=trial, axis=AXIS):
    experiment = Experiment("x", function, quick=grid(a=axis), paper=grid(a=axis), values={"value": NUMBER})
    how = {"seed": 7, "scheduler": scheduler, "folder": out}
    return running.run("llg", experiment, Context("cpu"), experiment.settings("quick"), **how)


@pytest.fixture(autouse=True)
def sent_by_value():
    """The functions of this file are in no module that a worker has, like those of a notebook."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def log(tmp_path, monkeypatch):
    """What was started so far: [process, a]."""
    monkeypatch.setitem(globals(), "LOG", str(tmp_path / "log"))
    (tmp_path / "log").touch()
    return lambda: [[int(word) for word in line.split()] for line in (tmp_path / "log").read_text().splitlines()]


# --- a scheduler that is not there -------------------------------------------------------------------------------


def test_a_silent_scheduler_is_an_error_within_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT", 1.0)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent:
        for address in ("nonsense", "tcp://127.0.0.1:9", f"tcp://127.0.0.1:{silent.server_port}"):
            with pytest.raises(ConnectionError, match=address):
                rows(tmp_path, address)


# --- a worker in this process ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def in_threads():
    """A cluster of one worker with four threads, in this process."""
    with LocalCluster(n_workers=1, threads_per_worker=4, processes=False, dashboard_address=None) as workers:
        yield workers.scheduler_address


def computed(scheduler, function, *calls):
    """What `cluster.compute` gives, by the number of the call."""
    return dict(cluster.compute(function, dict(enumerate(calls)), scheduler))


def test_one_trial_at_a_time_in_a_worker_process(in_threads):
    under_way = []

    def unit(number):
        under_way.append(number)
        time.sleep(0.02)
        assert under_way == [number]
        return under_way.pop()

    assert computed(in_threads, unit, *[(number,) for number in range(8)]) == {n: n for n in range(8)}


def test_an_error_of_a_trial_comes_back_with_its_worker(in_threads, monkeypatch):
    monkeypatch.delenv("FEDLEAK_DATA", raising=False)
    context = Context("cpu")
    for call, error in (((lambda: context.images("mnist")), DataNotFound), ((lambda: [].pop()), IndexError)):
        with pytest.raises(error) as raised:
            computed(in_threads, call, ())
        assert raised.value.__notes__[0].startswith("on worker inproc://")


# --- two worker processes ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_processes():
    """A Dask cluster of two worker processes on this machine; a unit may lose two workers, not three."""
    # by default the cluster gives up a killed worker that is not back in 15 s, too short for a busy machine
    patient = {"distributed.scheduler.allowed-failures": 2, "distributed.deploy.lost-worker-timeout": "300s"}
    with (
        dask.config.set(patient),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as workers,
    ):
        yield workers


@pytest.fixture
def workers(two_processes):
    """The cluster, with both workers there, whatever an earlier test has done to them."""
    two_processes.scale(2)
    with Client(two_processes.scheduler_address, set_as_default=False) as client:
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
def test_a_killed_worker_changes_no_row(tmp_path, log, workers, monkeypatch):
    local_rows = rows(tmp_path / "here")
    first, killed = len(log()), []
    monkeypatch.setitem(globals(), "TOGETHER", 2)
    monkeypatch.setitem(globals(), "PAUSE", 0.4)

    def kill():
        killed.extend([*dict.fromkeys(process for process, _ in reversed(log()[first:]))][:1])
        for process in killed:
            os.kill(process, signal.SIGKILL)

    thread = when(lambda: len(log()) >= first + 4 and len({process for process, _ in log()[first:]}) == 2, kill)
    cluster_rows = rows(tmp_path / "there", workers.scheduler_address)
    thread.join()
    assert len(killed) == 1
    pd.testing.assert_frame_equal(cluster_rows, local_rows)
    assert cluster_rows.attrs["datasets"] == local_rows.attrs["datasets"] != []
    runs = Counter(a for _, a in log()[first:])
    assert set(runs) == set(AXIS)
    # what was in flight ran twice, and perhaps what was done and not fetched yet, but nothing else
    assert 1 <= runs.total() - len(runs) <= 2
    begun = log()
    pd.testing.assert_frame_equal(rows(tmp_path / "there"), local_rows)
    assert log() == begun  # all from the cache, and by the same code


@pytest.mark.slow
def test_a_trial_that_kills_every_worker_is_named(tmp_path, log, workers, monkeypatch):
    monkeypatch.setitem(globals(), "DEADLY", 3)
    with pytest.raises(KilledWorker, match=r"\{'a': 3\}"):
        rows(tmp_path / "out", workers.scheduler_address, axis=[3])
