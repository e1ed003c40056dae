"""The process in which one submission runs: it answers calls, and decides nothing.

Run as ``python -P -m fedleak.coursework.worker SOCKET FILE``.
"""

import contextlib
import importlib.util
import socket
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from fedleak.coursework import wire


def load(path: Path) -> ModuleType:
    """Import a file under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"submission_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def failure(error: BaseException, path: Path) -> str:
    """Say in one line what was raised, and in which line of the submission."""
    places = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == path.name]
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).name == path.name:
        places.append(error.lineno)
    where = f" (line {places[-1]})" if places else ""
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}{where}: {text}" if text else f"{type(error).__name__}{where}"


def answer(module: ModuleType, path: Path, function: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Call a function of a submission; whatever it raises is an answer."""
    try:
        if not callable(getattr(module, function, None)):
            return {"status": "not written", "message": f"there is no function `{function}`"}
        return {"status": "returned", "value": wire.plain(getattr(module, function)(*arguments))}
    except NotImplementedError:
        return {"status": "not written", "message": f"`{function}` raises NotImplementedError"}
    except (Exception, SystemExit) as error:
        return {"status": "error", "message": f"`{function}` raised {failure(error, path)}"}


def limit_resources() -> None:
    """Give this process at most 4 GiB of data, files of at most 100 MiB and no core dumps, where the system can."""
    try:
        import resource
    except ImportError:
        return
    limits = ((resource.RLIMIT_DATA, 4 * 2**30), (resource.RLIMIT_FSIZE, 100 * 2**20), (resource.RLIMIT_CORE, 0))
    for what, most in limits:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (most, most))


def main(descriptor: int, path: Path) -> None:
    """Import the submission, say how that went, and answer calls until the grader hangs up."""
    link = socket.socket(fileno=descriptor)
    limit_resources()
    wire.send(link, {"status": "started"})  # the submission's time begins
    try:
        module = load(path)
    except (Exception, SystemExit) as error:
        wire.send(link, {"status": "error", "message": f"the file cannot be imported: {failure(error, path)}"})
        return
    wire.send(link, {"status": "ready"})
    while True:
        try:
            call = wire.receive(link)
        except wire.Closed:
            return
        wire.send(link, answer(module, path, call["function"], tuple(call["arguments"])))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
