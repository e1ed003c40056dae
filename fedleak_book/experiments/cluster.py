"""The units of a sweep on the workers of a Dask cluster."""

import asyncio
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import cache, lru_cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

import fedleak
import fedleak_book
from fedleak.errors import extra
from fedleak_book import paths
from fedleak_book.experiments.units import PACKAGES

with extra("cluster"):
    import cloudpickle
    from distributed import Client, KilledWorker, Security, as_completed, get_worker, rpc

CONNECT = 5.0
"""Seconds after which a scheduler that does not answer is an error."""


def reach(scheduler: str) -> None:
    """Make sure that a Dask scheduler answers: `ConnectionError` if nothing does in seconds, or something else does."""

    async def identity() -> str:
        async with rpc(scheduler, connection_args=Security().get_connection_args("client")) as server:
            return (await server.identity())["type"]

    with ThreadPoolExecutor(1) as thread:  # a notebook's own thread has a running loop
        try:  # `Client` by itself waits for ever for what listens and says nothing
            kind = thread.submit(asyncio.run, asyncio.wait_for(identity(), CONNECT)).result()
        except Exception as error:  # what is not Dask answers anything, and then Dask raises anything
            kind = str(error) or f"{type(error).__name__} after {CONNECT:g} s"
    if kind != "Scheduler":
        raise ConnectionError(
            f"no Dask scheduler answers at {scheduler} ({kind}). Start one with `dask scheduler`, workers with "
            "`dask worker`, and give the address that it prints, such as tcp://host:8786"
        )


def compute(run: Callable[..., Any], calls: Mapping[Any, tuple], scheduler: str) -> Iterator[tuple[Any, Any]]:
    """Yield ``(key, run(*calls[key]))`` as the workers get done, in whatever order.

    Dask runs a unit whose worker dies again on another one. A worker process runs one unit at a time, however many
    threads it has: trials draw from PyTorch's global generator. Raises `ConnectionError` as `reach` does, and if the
    scheduler goes away; `RuntimeError` if a worker runs other versions than this process, or a unit has killed every
    worker that tried it; and whatever a unit raises, with a note of the worker.
    """
    reach(scheduler)
    work, names = cloudpickle.dumps(run), [f"{call} {uuid4().hex[:8]}" for call in calls.values()]
    with Client(scheduler, timeout=CONNECT, set_as_default=False) as client:
        futures = client.map(_run, calls.values(), key=names, work=work, wanted=versions())
        keys = dict(zip(futures, calls, strict=True))
        try:
            for future, result in as_completed(futures, loop=client.loop, with_results=True):
                if isinstance(result, CancelledError):
                    raise ConnectionError(
                        f"the scheduler at {scheduler} has gone away. What is finished is kept: start the cluster, and "
                        "run this again with the same parameters"
                    )
                yield keys.pop(future), result
        except KilledWorker as error:
            raise RuntimeError(f"{error} As a rule it is out of memory.") from None


# --- on the worker ------------------------------------------------------------------------------------------------

_one_at_a_time = Lock()
_unpacked = lru_cache(maxsize=2)(cloudpickle.loads)
"""The same function for the same bytes, so that what its chapter has loaded is there for the next unit."""


def _run(call: tuple, work: bytes, wanted: Mapping[str, str]) -> Any:
    worker, installed = get_worker().address, versions()
    if differ := [f"{name} {installed[name]} instead of {v}" for name, v in wanted.items() if installed[name] != v]:
        advice = "start it in the environment and checkout used here"
        raise RuntimeError(f"worker {worker} runs {', '.join(differ)}: {advice}")
    with _one_at_a_time:
        try:
            return _unpacked(work)(*call)
        except Exception as error:
            error.add_note(f"on worker {worker}")
            raise


@cache
def versions() -> dict[str, str]:
    """Return the versions that a worker must share with the process that started the sweep."""
    ours = (Path(package.__file__ or "").parent.rglob("*.py") for package in (fedleak, fedleak_book))
    sources = [*chain(*ours), *(paths.root() / "notebooks").glob("*/*.py")]
    code = b"".join(path.read_bytes() for path in sorted(sources))
    packages = {"Python": "{}.{}".format(*sys.version_info)} | {package: version(package) for package in PACKAGES}
    return packages | {"code of fedleak": hashlib.sha256(code).hexdigest()[:12]}
