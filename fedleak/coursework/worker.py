"""Run a submission's functions: in this process for the student, each call in a process of its own for the grader."""

import contextlib
import multiprocessing
import runpy
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fedleak.coursework import wire
from fedleak.coursework.assignment import Trouble
from fedleak.errors import line_of

CONTEXT = multiprocessing.get_context("forkserver")
"""Processes that start from a clean one: it has imported what submissions import, and nothing of the checks."""
CONTEXT.set_forkserver_preload(
    [__name__, "pytest", "scipy.optimize", *(f"fedleak.{name}" for name in ("data", "federated", "metrics", "models"))]
)
SHARE = 1 / 2
"""What one check may take of the time: a function that never returns does not cost the points of the others."""


def load(path: Path) -> dict[str, Any]:
    """Run a file under a name of its own, and return what it defines."""
    return runpy.run_path(str(path), run_name=f"submission_{path.stem}")


def failure(error: BaseException, path: Path) -> str:
    """Say in one line what was raised, and in which line of the submission."""
    line, text = line_of(error, path), " ".join(str(error).split())[:200]
    where = f" (line {line})" if line else ""
    return f"{type(error).__name__}{where}: {text}" if text else f"{type(error).__name__}{where}"


def answer(functions: Mapping[str, Any], path: Path, function: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Call a function of a submission; whatever it raises is an answer."""
    try:
        if not callable(functions.get(function)):
            return {"status": "not written", "message": f"there is no function `{function}`"}
        return {"status": "returned", "value": wire.plain(functions[function](*arguments))}
    except NotImplementedError:
        return {"status": "not written", "message": f"`{function}` raises NotImplementedError"}
    except (Exception, SystemExit) as error:
        return {"status": "error", "message": f"`{function}` raised {failure(error, path)}"}


def value_of(reply: Any) -> Any:
    """Return what a function returned, or raise what it did instead as `Trouble`."""
    match reply:
        case {"status": "returned", "value": value}:
            return value
        case {"status": "not written" | "error" as status, "message": str(message)} if message:
            raise Trouble(message[:300], status=status)
    raise Trouble("no readable answer", status="error")


class Remote:
    """A submission of which every call runs in a process of its own; a `Student`.

    Parameters
    ----------
    path
        The file.
    limit
        Seconds, for importing the file and running its functions, in all checks together.
    """

    def __init__(self, path: Path, limit: float):
        self.path, self.limit, self.left = path, limit, limit
        self.share = limit * SHARE

    def next_check(self) -> None:
        """Begin a check: it has its own share of the time."""
        self.share = self.limit * SHARE

    def __call__(self, function: str, *arguments: Any) -> Any:
        """Run a function of the submission, or raise `Trouble`."""
        allowed = min(self.left, self.share)
        if allowed <= 0:
            raise Trouble(f"the time limit of {self.limit:g} s is used up", status="stopped")
        link, theirs = CONTEXT.Pipe()
        child = CONTEXT.Process(target=_serve, args=(theirs, self.path, function, wire.encode(arguments)))
        child.start()  # waits for PyTorch when it is the first
        theirs.close()
        begun = time.monotonic()
        try:
            for what in ("importing the file", f"`{function}`"):
                if not link.poll(max(begun + allowed - time.monotonic(), 0)):
                    hint = "is there a loop without end?"
                    raise Trouble(f"{what} was stopped after {allowed:.3g} s", hint, "stopped")
                reply = wire.decode(link.recv_bytes(wire.LIMIT))
                if reply is not None:  # the import went well
                    break
            return value_of(reply)
        except (EOFError, OSError, ValueError):  # it is gone, or has sent something else
            child.join(1)  # a process that has ended keeps its own exit code
            raise Trouble(f"{what} ended the process (exit code {child.exitcode})", status="stopped") from None
        finally:
            spent = time.monotonic() - begun
            self.left, self.share = self.left - spent, self.share - spent
            child.kill()
            child.join()


def _serve(link: Connection, path: Path, function: str, arguments: bytes) -> None:
    """Import the submission, say how that went, run a function, and send what it returned; decide nothing."""
    _limit_resources()
    try:
        functions = load(path)
    except (Exception, SystemExit) as error:
        reply = {"status": "error", "message": f"the file cannot be imported: {failure(error, path)}"}
    else:
        link.send_bytes(wire.encode(None))
        reply = answer(functions, path, function, wire.decode(arguments))
    link.send_bytes(wire.encode(reply))


def _limit_resources() -> None:
    """Give this process at most 4 GiB of data and files of at most 100 MiB, where the system can."""
    import resource  # Windows has none; the functions above are used there, too

    for what, most in ((resource.RLIMIT_DATA, 4 * 2**30), (resource.RLIMIT_FSIZE, 100 * 2**20)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (most, most))
