"""Wall time of 200 trials of LLG's Fig. 4 in this process and on a Dask cluster of 1, 2 and 4 workers of one thread.

Each round runs all of them, from an empty cache, and compares their rows; on the last cluster a worker is killed
midway. The workers have started and loaded the project before the clock runs, as on a cluster that is up.

    python benchmarks/sweep.py [--rounds 3] [--trials 200]
"""

import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated

os.environ["OMP_NUM_THREADS"] = "1"

import pandas as pd
import typer
from distributed import Client, LocalCluster

from fedleak_book.experiments import Context, running
from fedleak_book.experiments.units import processor
from notebooks.llg.experiments.fig4 import FIG4


def swept(trials: int, scheduler: str = "") -> tuple[float, pd.DataFrame]:
    """Return the seconds and the rows of a sweep from an empty cache, as many trials of each setting."""
    settings = FIG4.settings("quick", trials=1)
    settings = [{**setting, "trials": trials // len(settings)} for setting in settings]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        rows = running.run("llg", FIG4, Context("cpu"), settings, scheduler=scheduler, folder=Path(folder))
        return time.perf_counter() - start, rows


def clustered(trials: int, workers: int, kill_after: float = 0) -> tuple[float, pd.DataFrame]:
    """Return the seconds and the rows of a sweep on new workers, of which one is killed after some seconds."""
    quiet = dict(threads_per_worker=1, dashboard_address=None)
    with LocalCluster(n_workers=workers, **quiet) as cluster, Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(workers)
        client.run(lambda: __import__("notebooks.llg.experiments.fig4"))
        if kill_after:
            victim = next(iter(client.run(os.getpid).values()))
            threading.Timer(kill_after, os.kill, (victim, signal.SIGKILL)).start()
        return swept(trials, cluster.scheduler_address)


def main(
    rounds: Annotated[int, typer.Option(help="Rounds.")] = 3,
    trials: Annotated[int, typer.Option(help="Trials, over all settings.")] = 200,
) -> None:
    """Measure each cluster beside this process."""
    print(f"{processor()}, {os.cpu_count()} cores")
    swept(8)
    for _ in range(rounds):
        solo, rows = swept(trials)
        print(f"{trials} trials, this process: {solo:.1f} s", flush=True)
        for workers in (1, 2, 4):
            seconds, theirs = clustered(trials, workers)
            pd.testing.assert_frame_equal(rows, theirs)
            print(f"{workers} workers: {seconds:.1f} s, {solo / seconds:.2f} times as fast, rows identical", flush=True)
        seconds, theirs = clustered(trials, 4, kill_after=seconds / 2)
        pd.testing.assert_frame_equal(rows, theirs)
        print(f"4 workers, one killed midway: {seconds:.1f} s, rows identical", flush=True)


if __name__ == "__main__":
    typer.run(main)
