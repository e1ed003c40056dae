"""Long jobs side by side: each in a process of its own, with its share of the cores."""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

from tqdm import tqdm


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(function: Callable[..., Any], calls: Mapping[str, Mapping[str, Any]], jobs: int, progress: bool) -> None:
    """Call a function for its effect, some calls at once.

    Parameters
    ----------
    function
        A function of a module; it gets a name and that call's options.
    calls
        The options by name.
    jobs
        How many at once, at least 1.
    progress
        Show a progress bar on standard error.

    Raises
    ------
    Exception
        The first that a call raises: those that run are finished before, the others are not begun.
    """
    with ProcessPoolExecutor(jobs, get_context("spawn"), _use_threads, (max(cores() // jobs, 1),)) as pool:
        runs = {pool.submit(function, name, **options): name for name, options in calls.items()}
        bar = tqdm(as_completed(runs), function.__name__, len(runs), disable=not progress)
        try:
            for run in bar:
                run.result()
                bar.set_postfix_str(f"{runs[run]} done")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _use_threads(count: int) -> None:
    """Let the processes that this one starts, such as a notebook's kernel, compute with so many threads."""
    os.environ["OMP_NUM_THREADS"] = str(count)
