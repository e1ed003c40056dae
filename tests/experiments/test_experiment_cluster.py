"""Sweeps on a Dask cluster: the same rows, whatever dies, and a clear word where that cannot be."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import cloudpickle
import pandas as pd
import pytest
import torch
from distributed import LocalCluster, get_worker

from fedleak.errors import DataNotFound
from fedleak_book.experiments import Context, Experiment, cluster, grid, running
from fedleak_book.experiments.kinds import NUMBER


def trial(ctx, seed, a):
    ctx.images("synthetic", count=10)
    return {"value": a * torch.rand(1, generator=torch.Generator().manual_seed(seed)).item()}


def rows(out, scheduler="", function=trial):
    axes = grid(a=[1, 2, 3, 4])
    experiment = Experiment("x", function, quick=axes, paper=axes, values={"value": NUMBER})
    how = {"seed": 7, "scheduler": scheduler, "folder": out}
    return running.run("llg", experiment, Context("cpu"), experiment.settings("quick"), **how)


@pytest.fixture(autouse=True)
def sent_by_value():
    """The functions of this file are in no module that a worker has, like those of a notebook."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_a_silent_scheduler_is_an_error_within_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT", 1.0)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent:
        for address in ("nonsense", "tcp://127.0.0.1:9", f"tcp://127.0.0.1:{silent.server_port}"):
            with pytest.raises(ConnectionError, match=address):
                rows(tmp_path, address)


@pytest.fixture(scope="module")
def scheduler():
    """The address of a cluster of one worker with four threads, in this process."""
    with LocalCluster(n_workers=1, threads_per_worker=4, processes=False, dashboard_address=None) as workers:
        yield workers.scheduler_address


def computed(scheduler, function, *calls):
    """What `cluster.compute` gives, by the number of the call."""
    return dict(cluster.compute(function, dict(enumerate(calls)), scheduler))


def test_rows_of_a_cluster_are_those_of_one_process(tmp_path, scheduler):
    local, remote = rows(tmp_path / "local"), rows(tmp_path / "remote", scheduler)
    pd.testing.assert_frame_equal(remote, local)
    assert remote.attrs["datasets"] == local.attrs["datasets"] != []
    pd.testing.assert_frame_equal(rows(tmp_path / "remote"), local)  # all from the cache, and by the same code


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_a_worker_keeps_freed_memory():
    """Eight MiB a hundred times are 2,048 new pages once, and not each time, though the environment asks for it."""
    faults = "resource.getrusage(resource.RUSAGE_SELF).ru_minflt"
    code = f"import resource; from fedleak.memory import keep_freed_memory; keep_freed_memory(); before = {faults}"
    code += f"\nfor _ in range(100): b'x' * 2**23\nprint({faults} - before)"
    environment = os.environ | {"MALLOC_TRIM_THRESHOLD_": "65536"}  # of Dask's workers
    ran = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=True)
    assert int(ran.stdout) < 10_000


@pytest.mark.slow
def test_a_worker_that_is_killed_in_a_trial_changes_no_row(tmp_path):
    killed = tmp_path / "killed"

    def deadly(ctx, seed, a):
        if a == 3 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return trial(ctx, seed, a)

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as workers:
        remote = rows(tmp_path / "remote", workers.scheduler_address, deadly)
    assert killed.exists()
    pd.testing.assert_frame_equal(remote, rows(tmp_path / "local"))


def test_one_trial_at_a_time_in_a_worker_process(scheduler):
    under_way = []

    def unit(number):
        under_way.append(number)
        assert f"({number},)" in get_worker().get_current_task(), "Dask names the unit that kills every worker"
        time.sleep(0.02)
        assert under_way == [number]
        return under_way.pop()

    assert computed(scheduler, unit, *[(number,) for number in range(8)]) == {n: n for n in range(8)}


def test_an_error_of_a_trial_comes_back_with_its_worker(scheduler, monkeypatch):
    monkeypatch.delenv("FEDLEAK_DATA", raising=False)
    context = Context("cpu")
    for call, error in (((lambda: context.images("mnist")), DataNotFound), ((lambda: [].pop()), IndexError)):
        with pytest.raises(error) as raised:
            computed(scheduler, call, ())
        assert raised.value.__notes__[0].startswith("on worker inproc://")
