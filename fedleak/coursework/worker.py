"""Run a submission's functions: in this process for the student, in a process that decides nothing for the grader."""

import contextlib
import os
import runpy
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedleak.coursework import wire
from fedleak.errors import line_of


def load(path: Path) -> dict[str, Any]:
    """Run a file under a name of its own, and return what it defines."""
    return runpy.run_path(str(path), run_name=f"submission_{path.stem}")


def failure(error: BaseException, path: Path) -> dict[str, Any]:
    """Return what was raised, in which line of the submission, and its text."""
    text = " ".join(str(error).split())[:200]
    return {"status": "error", "type": type(error).__name__, "line": line_of(error, path), "text": text}


def answer(functions: Mapping[str, Any], path: Path, function: str, arguments: list[Any]) -> dict[str, Any]:
    """Call a function of a submission; whatever it raises is an answer."""
    try:
        if not callable(functions.get(function)):
            return {"status": "no function"}
        value = functions[function](*arguments)
    except NotImplementedError:
        return {"status": "not written"}
    except (Exception, SystemExit) as error:
        return failure(error, path)
    try:
        return {"status": "returned", "value": wire.plain(value)}
    except Exception as error:
        return {"status": "unusable", "text": " ".join(str(error).split())[:200]}


def serve(link: socket.socket) -> None:
    """Take a submission from the grader, and run what it asks for; compare and decide nothing."""
    import scipy.optimize  # noqa: F401, what submissions import is there before their time runs

    import fedleak.coursework.given  # noqa: F401

    wire.send(link, "ready")
    sent = wire.receive(link)
    _limit_resources(sent["seconds"])
    path = Path(sent["name"])
    path.write_bytes(sent["source"].encode("latin-1"))
    try:
        functions = load(path)
    except (Exception, SystemExit) as error:
        wire.send(link, failure(error, path))
        return
    wire.send(link, "imported")
    while True:
        wire.send(link, answer(functions, path, *wire.receive(link)))


def _limit_resources(seconds: float) -> None:
    """Limit memory, file sizes, processor time, and, beside the threads that there are, processes."""
    import resource  # Windows has none; the functions above are used there, too

    running = sum(1 for _ in Path("/proc").glob("[0-9]*/task/*"))
    limits = {
        resource.RLIMIT_DATA: 4 * 2**30,
        resource.RLIMIT_FSIZE: 100 * 2**20,
        resource.RLIMIT_CPU: int(seconds) + 10,
        resource.RLIMIT_CORE: 0,
    } | ({resource.RLIMIT_NPROC: running + 64} if running else {})
    for what, most in limits.items():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (most, most))


if __name__ == "__main__":
    grader, nothing = socket.socket(fileno=os.dup(0)), os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    serve(grader)
