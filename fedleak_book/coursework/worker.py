"""Run a submission's functions: in this process for the student, in a process that decides nothing for the grader."""

import builtins
import contextlib
import importlib
import os
import socket
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from fedleak_book.coursework import notebook, wire
from fedleak_book.coursework.outcomes import Result, Trouble


class Submission:
    """A file or notebook with functions, which runs once, as a separate module, when the first of them is called.

    `data` are the file's bytes; with `functions` they are there already.
    """

    def __init__(self, path: Path, data: bytes = b"", functions: Mapping[str, Any] | None = None):
        self.path, self.data, self.functions = path, data, functions
        self.error: BaseException | None = None
        self.failure: BaseException | None = None
        """The first error of a notebook's cells."""

    def run(self) -> Mapping[str, Any]:
        """Return the definitions; an exception of the file's first run is raised again each time."""
        if self.error:
            raise self.error
        if self.functions is None:
            module = ModuleType(f"submission_{self.path.stem}")
            module.__file__, sys.modules[module.__name__] = str(self.path), module
            try:
                self.failure = notebook.run(self.path, self.data, module)
            except (Exception, SystemExit) as error:
                self.error = error
                raise
            self.functions = vars(module)
        return self.functions

    def answer(self, function: str, arguments: list[Any]) -> dict[str, Any]:
        """Call a function; an exception is an answer, too, and so is which arguments it changed, counted from 1."""
        chosen = None
        try:
            chosen = self.run().get(function)
            if not callable(chosen):
                raise self.failure or NotImplementedError
            before = [wire.encode(argument) for argument in arguments]
            value = wire.plain(chosen(*arguments))
            pairs = enumerate(zip(arguments, before, strict=True), 1)
            return {"value": value, "changed": [number for number, (now, was) in pairs if wire.encode(now) != was]}
        except (Exception, SystemExit) as error:
            *_, (frame, _) = traceback.walk_tb(error.__traceback__)
            raised_here = frame.f_code in (Submission.answer.__code__, getattr(chosen, "__code__", None))
            bare = isinstance(error, NotImplementedError) and not error.args  # not one of PyTorch's own
            cell, line = notebook.place_of(error, self.path)
            return {
                "raised": type(error).__name__,
                "missing": bare and raised_here,
                "cell": cell,
                "line": line,
                "text": " ".join(str(error).split())[:200],
                "unreadable": isinstance(error, notebook.Unreadable),
                "importing": error is self.error or error is self.failure,
            }


def value_of(reply: Any, function: str, file: str = "the file") -> Any:
    """Return the value that a process reports for a function of a file; raise `Trouble` for any other outcome."""
    match reply:
        case {"value": value, "changed": []}:
            return value
        case {"changed": [int(first), *_]}:
            hint = "leave the arguments as they are: work on a copy, such as `x.clone()`"
            raise Trouble(f"`{function}` changes its argument {first}", hint)
        case {"missing": True}:
            raise Trouble(f"`{function}` is not there, or raises NotImplementedError", status="not written")
        case {"unreadable": True}:
            raise Trouble(f"{file} is not a notebook that can be read", status="error")
        case {"raised": str(kind), "line": int() | None as line, "cell": int(cell), "text": str(text)}:
            is_builtin = isinstance(
                getattr(builtins, kind, None), type
            )  # a name of the submission's own is not repeated
            what = f"{file} does not run:" if reply.get("importing") is True else f"`{function}` raised"
            places = [f"cell {cell}"] * (0 < cell < 10_000)
            places += [f"line {line}"] * (line is not None and 0 < line < 10_000)
            place = f" ({', '.join(places)})" if places else ""
            message = f"{what} {kind if is_builtin else 'an exception of its own'}{place}"
            raise Trouble(message, status="error", detail=text if is_builtin else f"{kind} {text}")
    raise Trouble("no readable answer", status="error")


def serve(link: socket.socket) -> None:
    """Take a submission from the grader and run the requested calls; nothing is compared or decided here."""
    from fedleak_book import coursework

    name, text, seconds, modules = wire.receive(link)
    for module in modules:
        importlib.import_module(module)
    os.dup2(1, 2)  # until here the grader reads why a process does not start
    wire.send(link, "ready")
    _limit_resources(seconds)
    path, data = Path(name), text.encode("latin-1")
    os.mkdir("own")  # PyTorch leaves a cache where it starts
    os.chdir("own")
    path.write_bytes(data)
    vars(coursework)["check"] = lambda name, *_, **__: Result(name, ())  # submissions keep what their authors tried
    submission = Submission(path, data)
    while True:
        wire.send(link, submission.answer(*wire.receive(link)))


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
    for number in range(2):
        os.dup2(nothing, number)
    serve(grader)
