"""The units of a sweep on the workers of a Dask cluster."""

import asyncio
import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import cache, lru_cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

from tqdm import tqdm

import fedleak
import fedleak_book
from fedleak.errors import extra
from fedleak_book import paths
from fedleak_book.experiments.units import PACKAGES

with extra("cluster"):
    import cloudpickle
    from distributed import Client, Future, KilledWorker, Security, as_completed, get_worker, rpc

CONNECT = 5.0
"""Seconds after which a scheduler that does not answer is an error."""
PATIENCE = 3600.0
"""Seconds without a single worker after which a sweep gives up."""
LOOK = 1.0
"""Seconds between two looks at the workers."""
KEPT = "What is finished is kept: start the cluster, and run this again with the same parameters"


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

    A unit whose worker dies runs again on another one. A worker process runs one unit at a time, however many threads
    it has: trials draw from PyTorch's global generator. Raises `ConnectionError` as `reach` does, and if the scheduler
    goes away, or all workers do for longer than `PATIENCE`; `RuntimeError` if a worker runs other versions than this
    process, or a unit has killed every worker that tried it; and whatever a unit raises, with a note of the worker.
    """
    reach(scheduler)
    work, wanted = cloudpickle.dumps(run), versions()
    with Client(scheduler, timeout=CONNECT, set_as_default=False) as client:

        def submitted(key: Any) -> Future:
            sent = client.submit(bytes, work)  # a task of its own: sent once, not with every unit
            return client.submit(_run, sent, wanted, calls[key], key=f"{calls[key]} {uuid4().hex[:8]}")

        keys = {submitted(key): key for key in calls}
        done = as_completed(keys, loop=client.loop)
        for future in _finished(done, client, scheduler):
            key = keys.pop(future)  # and with it the result on the worker
            try:
                yield key, future.result(timeout=10)
            except (TimeoutError, CancelledError) as error:
                if future.status == "error":  # the unit's own
                    raise
                if isinstance(error, CancelledError):  # all are where the scheduler is gone, else one is lost for good
                    try:
                        reach(scheduler)
                    except ConnectionError:
                        raise ConnectionError(f"the scheduler at {scheduler} has gone away. {KEPT}") from None
                    future = submitted(key)
                keys[future] = key
                done.add(future)  # a result that was lost with its worker on the way here is being computed again
            except KilledWorker as error:
                raise RuntimeError(f"{error} As a rule it is out of memory.") from None


def _finished(done: as_completed, client: Client, scheduler: str) -> Iterator[Future]:
    looked, alone = time.monotonic(), 0.0
    while not done.is_empty():
        yield from done.next_batch(block=False)
        time.sleep(0.02)
        if (now := time.monotonic()) < looked + LOOK:
            continue
        looked = now
        if client.scheduler_info()["workers"]:
            alone = 0.0
        elif not alone:
            alone = now
            tqdm.write(f"{scheduler} has no worker; waiting for one, up to {PATIENCE:g} s")
        elif now - alone > PATIENCE:
            raise ConnectionError(f"{scheduler} has had no worker for {PATIENCE:g} s. {KEPT}")


# --- on the worker ------------------------------------------------------------------------------------------------

_one_at_a_time = Lock()
_unpacked = lru_cache(maxsize=2)(cloudpickle.loads)
"""The same function for the same bytes, so that what its chapter has loaded is there for the next unit."""


def _run(work: bytes, wanted: Mapping[str, str], call: tuple) -> Any:
    worker, installed = get_worker().address, versions()
    if differ := [
        f"{name} {installed[name]} instead of {wanted_version}"
        for name, wanted_version in wanted.items()
        if installed[name] != wanted_version
    ]:
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
