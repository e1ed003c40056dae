"""The units of a sweep on the workers of a Dask cluster."""

import asyncio
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

from fedleak.errors import extra
from fedleak.memory import keep_freed_memory
from fedleak_book import paths
from fedleak_book.experiments.units import PACKAGES

with extra("cluster"):
    import cloudpickle
    from distributed import Client, Security, as_completed, get_worker, rpc

CONNECT = 5.0  # seconds after which a scheduler that does not answer is an error


def reach(scheduler: str) -> None:
    """Make sure that a Dask scheduler answers: `ConnectionError` if nothing does in seconds, or something else does."""

    async def identity() -> str:
        async with rpc(scheduler, connection_args=Security().get_connection_args("client")) as server:
            return (await server.identity())["type"]

    with ThreadPoolExecutor(1) as thread:  # a notebook's own thread has a running loop
        # `Client` by itself waits for ever for what listens and says nothing; what is not Dask makes it raise anything
        answer = thread.submit(asyncio.run, asyncio.wait_for(identity(), CONNECT))
    if (error := answer.exception()) or answer.result() != "Scheduler":
        start = "start `dask scheduler` and `dask worker`, and give its address, such as tcp://host:8786"
        raise ConnectionError(f"no Dask scheduler answers at {scheduler} ({error!r}): {start}")


def compute(run: Callable[..., Any], calls: Mapping[Any, tuple], scheduler: str) -> Iterator[tuple[Any, Any]]:
    """Yield ``(key, run(*calls[key]))`` in any order; Dask runs a unit whose worker dies again on another worker.

    Raises `ConnectionError` as `reach` does, `RuntimeError` for a worker of other versions, Dask's `KilledWorker` for a
    unit that kills every worker, and whatever a unit raises, with a note of the worker.
    """
    reach(scheduler)
    how = {"key": [f"{call} {uuid4().hex[:8]}" for call in calls.values()], "work": cloudpickle.dumps(run)}
    with Client(scheduler, timeout=CONNECT, set_as_default=False) as client:
        keys = dict(zip(client.map(_run, calls.values(), wanted=versions(), **how), calls, strict=True))
        for future, result in as_completed([*keys], loop=client.loop, with_results=True):
            if isinstance(result, CancelledError):
                raise ConnectionError(f"the scheduler at {scheduler} has gone away: start it, and run this again")
            yield keys.pop(future), result


_one_at_a_time = Lock()  # however many threads a worker has: trials draw from PyTorch's global generator
_unpacked = lru_cache(maxsize=2)(cloudpickle.loads)  # so that what a chapter has loaded is there for the next unit


def _run(call: tuple, work: bytes, wanted: Mapping[str, str]) -> Any:
    worker, installed = get_worker().address, versions()
    if differ := [f"{name} {installed[name]} instead of {v}" for name, v in wanted.items() if installed[name] != v]:
        raise RuntimeError(f"worker {worker} runs {', '.join(differ)}: start it in the environment and checkout here")
    keep_freed_memory()  # Dask has its workers return every block, and new pages took a fifth of a trial's time
    with _one_at_a_time:
        try:
            return _unpacked(work)(*call)
        except Exception as error:
            error.add_note(f"on worker {worker}")
            raise


@cache
def versions() -> dict[str, str]:
    """Return the versions that a worker must share with the process that started the sweep."""
    ours = (Path(paths.__file__).parents[1] / name for name in ("fedleak", "fedleak_book"))
    sources = sorted(path for folder in (*ours, paths.root() / "notebooks") for path in folder.rglob("*.py"))
    code = b"".join(path.read_bytes() for path in sources)
    packages = {"Python": "{}.{}".format(*sys.version_info)} | {package: version(package) for package in PACKAGES}
    return packages | {"code of fedleak": hashlib.sha256(code).hexdigest()[:12]}
