"""The units of a sweep on the workers of a Dask cluster, and what happens when workers go."""

import asyncio
import hashlib
import platform
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from threading import Lock
from typing import Any, TypeVar

from dask.distributed import CancelledError, Client, Future, as_completed
from distributed import Security
from distributed.comm import connect as comm_connect
from distributed.comm.addressing import get_address_host_port
from distributed.scheduler import KilledWorker
from tqdm import tqdm

from fedleak.parcel import here, packed, unpacked
from fedleak.sweep import package_digest

Key = TypeVar("Key")
CONNECT = 10.0
"""Seconds after which a scheduler that does not answer is an error."""
LOSSES = 100
"""Results that may be lost with their workers before that is an error."""
PATIENCE = 3600.0
"""Seconds without a single worker after which a sweep gives up; it says that it waits after the first five."""
LOOK = 1.0
"""Seconds between two looks at the workers while no result comes in."""


def reach(scheduler: str) -> None:
    """Make sure that a Dask scheduler answers.

    Raises
    ------
    ValueError
        If `scheduler` is not an address such as ``tcp://host:8786``.
    ConnectionError
        If no Dask scheduler answers there within seconds.
    """
    advice = "Start one with `dask scheduler`, workers with `dask worker`, and give the address that it prints."
    try:
        host, port = get_address_host_port(scheduler)
    except (ValueError, NotImplementedError) as error:
        raise ValueError(f"{scheduler!r} is no scheduler's address, such as tcp://host:8786: {error}") from None
    try:
        socket.create_connection((host, port), timeout=CONNECT).close()
    except OSError as error:
        reason = error.strerror or error
        raise ConnectionError(f"nothing answers at {scheduler} ({reason}). {advice}") from None
    with ThreadPoolExecutor(1) as thread:  # a notebook's own thread has a running loop
        try:
            kind = thread.submit(asyncio.run, _greeted(scheduler)).result()
        except Exception as error:  # what is not Dask answers anything or nothing, and then Dask raises anything
            kind = f"it answers with {type(error).__name__}: {error}"
    if kind != "Scheduler":
        raise ConnectionError(f"what listens at {scheduler} is no Dask scheduler ({kind}). {advice}")


def connect(scheduler: str) -> Client:
    """Connect to a Dask scheduler; raises what `reach` does."""
    reach(scheduler)
    return Client(scheduler, timeout=CONNECT, set_as_default=False)


async def _greeted(scheduler: str) -> str:
    """Return what a Dask server says it is; `Client` by itself waits for ever for one that says nothing."""

    async def identity() -> str:
        comm = await comm_connect(scheduler, timeout=CONNECT, **Security().get_connection_args("client"))
        try:
            await comm.write({"op": "identity", "reply": True})
            return (await comm.read())["type"]
        finally:
            comm.abort()

    return await asyncio.wait_for(identity(), CONNECT)


def description(scheduler: str) -> str:
    """Return how many workers a cluster has now, for the provenance of what they have computed."""
    with connect(scheduler) as client:
        workers = client.scheduler_info()["workers"].values()
    threads, hosts = sum(w["nthreads"] for w in workers), {w["host"] for w in workers}
    return f"Dask: {len(workers)} worker processes, {threads} threads, {len(hosts)} hosts"


def compute(
    function: Callable[..., Any], calls: Mapping[Key, tuple[Any, ...]], scheduler: str
) -> Iterator[tuple[Key, Any]]:
    """Yield ``(key, function(*calls[key]))`` as the workers get done, in whatever order.

    A unit whose worker dies runs again on another one; a worker that joins gets its share. One process runs one unit at
    a time, however many threads it has: trials draw from PyTorch's global generator.

    Raises
    ------
    ValueError, ConnectionError
        See `reach`. Also a ConnectionError if the scheduler goes away, or all workers do for longer than `PATIENCE`.
    RuntimeError
        If a worker runs other versions than this process, or a unit has killed every worker that tried it.
    DataNotFound
        If a worker does not have a data set.
    Exception
        Whatever a unit raises.
    """
    work, wanted = packed(function), _versions()
    with connect(scheduler) as client:

        def submitted(keys: Iterable[Key]) -> dict[Future, Key]:
            # A task of its own: it travels once to a worker, not with every unit, and comes back if that one dies.
            sent = client.submit(_unchanged, work, key=f"fedleak-{hashlib.sha256(work).hexdigest()}")
            return {client.submit(run_unit, sent, wanted, calls[key], pure=False): key for key in keys}

        futures, lost = submitted(calls), 0
        done = as_completed(futures, loop=client.loop)
        for future in _finished(client, done, scheduler):
            key = futures[future]
            try:
                result = future.result(timeout=60)
            except TimeoutError:
                if future.status == "error":  # the unit's own
                    raise
                done.add(future)  # lost with its worker on the way here, and being computed again
                continue
            except CancelledError:
                # With the scheduler gone, all are cancelled; now and then it is one, whose worker died with the result.
                lost += 1
                if lost > LOSSES or not _answers(scheduler):
                    raise _gone(scheduler) from None
                again = submitted([key])
                futures |= again
                done.update(again)
                continue
            except KilledWorker as error:
                raise RuntimeError(
                    f"{error.allowed_failures + 1} workers have died with the unit {calls[key]} on them, the last one "
                    f"at {error.last_worker.address}: out of memory, as a rule; the workers' logs say more"
                ) from None
            yield key, result


def _unchanged(work: bytes) -> bytes:
    return work


def _finished(client: Client, done: as_completed, scheduler: str) -> Iterator[Future]:
    told, deserted, next_look = False, 0.0, 0.0
    while not done.is_empty():
        if ready := done.next_batch(block=False):
            yield from ready
            continue
        time.sleep(0.02)
        if time.monotonic() < next_look:
            continue
        next_look = time.monotonic() + LOOK
        if _has_workers(client, scheduler):
            told, deserted = False, 0.0
            continue
        deserted = deserted or time.monotonic()
        alone = time.monotonic() - deserted
        if alone > PATIENCE:
            raise ConnectionError(
                f"{scheduler} has had no worker for {PATIENCE:g} s. What is finished is kept: "
                "start workers, and run this again with the same parameters"
            )
        if alone > min(5.0, PATIENCE / 2) and not told:
            tqdm.write(f"{scheduler} has no worker; waiting for one, up to {PATIENCE:g} s")
            told = True


def _has_workers(client: Client, scheduler: str) -> bool:
    try:
        return bool(client.scheduler_info()["workers"])
    except (OSError, TimeoutError) as error:
        raise _gone(scheduler) from error


def _gone(scheduler: str) -> ConnectionError:
    return ConnectionError(
        f"the scheduler at {scheduler} has gone away. What is finished is kept: "
        "start the cluster, and run this again with the same parameters"
    )


def _answers(scheduler: str) -> bool:
    try:
        reach(scheduler)
    except ConnectionError:
        return False
    return True


# --- on the worker -----------------------------------------------------------------------------------------------

_one_at_a_time = Lock()


def run_unit(work: bytes, wanted: dict[str, str], call: tuple[Any, ...]) -> Any:
    """Run a unit on a worker, if the worker is what the sweep was started with."""
    found = _versions()
    if differ := [f"{name} {found[name]} instead of {wanted[name]}" for name in wanted if found[name] != wanted[name]]:
        raise RuntimeError(
            f"worker {here()} runs {', '.join(differ)}: start it in the environment and the checkout of the sweep"
        )
    with _one_at_a_time:
        return unpacked(work)(*call)


def _versions() -> dict[str, str]:
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "PyTorch": version("torch"),
        "NumPy": version("numpy"),
        "fedleak": version("fedleak"),
        "code of fedleak": package_digest()[:12],
    }
