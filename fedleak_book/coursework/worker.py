"""Run a submission's functions: in this process for the student, in a process that decides nothing for the grader."""

import builtins
import contextlib
import functools
import os
import runpy
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedleak.errors import line_of
from fedleak_book.coursework import wire
from fedleak_book.coursework.assignment import Trouble


def load(path: Path) -> dict[str, Any]:
    """Run a file as a separate module, and return its definitions."""
    return runpy.run_path(str(path), run_name=f"submission_{path.stem}")


def answer(source: Callable[[], Mapping[str, Any]], path: Path, function: str, arguments: list[Any]) -> dict[str, Any]:
    """Call a function of a submission, which `source` returns; an exception is an answer too."""
    functions = None
    try:
        functions = source()
        if not callable(functions.get(function)):
            raise NotImplementedError
        return {"value": wire.plain(functions[function](*arguments))}
    except (Exception, SystemExit) as error:
        kind = "NotImplementedError" if isinstance(error, NotImplementedError) else type(error).__name__
        text = " ".join(str(error).split())[:200]
        return {"raised": kind, "line": line_of(error, path), "text": text, "importing": functions is None}


def value_of(reply: Any, function: str) -> Any:
    """Return the value that a submission's process reports for a function; raise `Trouble` for any other outcome."""
    match reply:
        case {"value": value}:
            return value
        case {"raised": "NotImplementedError"}:
            raise Trouble(f"`{function}` is not there, or raises NotImplementedError", status="not written")
        case {"raised": str(kind), "line": int() | None as line, "text": str(text), "importing": bool(importing)}:
            is_builtin = isinstance(
                getattr(builtins, kind, None), type
            )  # a name of the submission's own is not repeated
            what = "the file cannot be imported:" if importing else f"`{function}` raised"
            place = f" (line {line})" if line is not None and 0 < line < 10_000 else ""
            message = f"{what} {kind if is_builtin else 'an exception of its own'}{place}"
            raise Trouble(message, status="error", detail=text if is_builtin else f"{kind} {text}")
    raise Trouble("no readable answer", status="error")


def serve(link: socket.socket) -> None:
    """Take a submission from the grader and run the requested calls; nothing is compared or decided here."""
    import scipy.optimize  # noqa: F401, what submissions import is there before their time runs

    import fedleak_book.coursework.given  # noqa: F401

    wire.send(link, "ready")
    name, text, seconds = wire.receive(link)
    _limit_resources(seconds)
    path = Path(name)
    os.mkdir("own")  # PyTorch leaves a cache where it starts
    os.chdir("own")
    path.write_bytes(text.encode("latin-1"))
    source = functools.cache(lambda: load(path))
    while True:
        wire.send(link, answer(source, path, *wire.receive(link)))


def _limit_resources(seconds: float) -> None:
    """Limit memory, files, processor time, and processes beside those that run; Windows, without a grader, has none."""
    import resource

    running = sum(1 for _ in Path("/proc").glob("[0-9]*/task/*")) or 4096
    limits = {"DATA": 4 * 2**30, "FSIZE": 100 * 2**20, "CPU": int(seconds) + 10, "CORE": 0, "NPROC": running + 64}
    for what, most in limits.items():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, f"RLIMIT_{what}"), (most, most))


if __name__ == "__main__":
    grader, nothing = socket.socket(fileno=os.dup(0)), os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    serve(grader)
