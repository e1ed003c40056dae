"""The grader's end of a submission in a separate process, isolated as far as this machine allows.

The grader sends the file and the arguments of each call and reads plain values. It decides by inputs that it alone
knows, so that the other process can only change its answers. What else it can do depends on the machine, see `ways`.
"""

import contextlib
import ctypes
import functools
import importlib.metadata
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fedleak
from fedleak_book import paths
from fedleak_book.coursework import wire
from fedleak_book.coursework.outcomes import Trouble
from fedleak_book.coursework.worker import value_of

START = 300.0
"""Seconds that PyTorch may take to start; they are not the submission's."""
SHARE = 1 / 2
"""What one check may take of the time: a function that never returns does not cost the points of the others."""
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
_JAIL = str(Path(__file__).with_name("jail.py"))
_HIDDEN = tuple(map(Path, ("/tmp", "/var/tmp", "/dev/shm", "/run", "/mnt")))
"""Where sockets and others' files are; a machine need not have all of them."""
_SOLVING = ("fedleak.attacks", "fedleak_book.coursework.checks", "fedleak.audit")
"""Packages that solve assignments."""


def _packages() -> list[Path]:
    """Return the folders of the two packages, wherever they are imported from."""
    return [Path(__file__).parents[1], Path(fedleak.__file__).parent]


def _hidden() -> list[Path]:
    """Return the folders that a submission must not see: shared ones, the home, the checkout, what solves assignments.

    Raises `FileNotFoundError` if one that solves assignments is not where the package says.
    """
    places: list[str | Path] = [place for place in (*_HIDDEN, Path.home()) if place.is_dir() and place != Path("/")]
    with contextlib.suppress(FileNotFoundError):
        places.append(paths.root())
    for package in _packages():
        places += [folder for folder in package.parents if (folder / "_toc.yml").is_file()]  # the packages' checkout
    for name in _SOLVING:
        spec = importlib.util.find_spec(name)
        places += spec.submodule_search_locations or [] if spec else [Path(name)]
    return _existing(places)


def _existing(places: Iterable[str | Path]) -> list[Path]:
    resolved = [Path(place).resolve() for place in places]
    if missing := [str(place) for place in resolved if not place.is_dir()]:
        raise FileNotFoundError(f"to be hidden from submissions, and not there: {', '.join(missing)}")
    return resolved


def _needed() -> list[Path]:
    """Return the folders that a submission's process does not start without: the interpreter and what is installed.

    Each as it is named and where its links lead.
    """
    places = {Path(sys.prefix), Path(sys.base_prefix), *_packages()}
    executable = Path(sys.executable)
    while executable.is_symlink():  # from a virtual environment to the interpreter that made it
        executable = executable.parent / executable.readlink()
        places.add(executable.parent)
    installed = {Path(str(one.locate_file(""))) for one in importlib.metadata.distributions()}
    places |= {place for place in installed if not (place / "_toc.yml").is_file()}
    return sorted({*places, *(place.resolve() for place in places)})


class Slow(ChildProcessError):
    """A process did not start in time, which says nothing about the way to start it."""


class Way(NamedTuple):
    """A way to start a submission's process."""

    says: str
    """What it keeps out, beside what the grader alone decides."""
    unshare: tuple[str, ...] = ()
    setpriv: tuple[str, ...] = ()
    user: int | None = None
    stronger: tuple[str, ...] = ()
    """Why each stronger way does not work here."""

    @property
    def name(self) -> str:
        """What a grade book calls it."""
        return "namespaces" if self.unshare else "another user" if self.says else "your rights"


def ways() -> list[Way]:
    """Return the ways that there are for this user, the strongest first."""
    namespaces = ("unshare", "--net", "--pid", "--ipc", "--mount", "--mount-proc", "--fork", "--kill-child")
    strip = ("setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")
    what = "no network, read-only files without shared folders, homes and attacks, processes that end together"
    if sys.platform != "linux":
        return [Way("")]
    if os.geteuid() != 0:
        return [Way(what, (*namespaces, "--user", "--map-root-user"), strip), Way("")]
    user = 61184 + os.getpid() % 4000  # nobody's, and another one for graders side by side
    other = (*strip, f"--reuid={user}", f"--regid={user}", "--clear-groups")
    return [Way(f"another user, {what}", namespaces, other, user), Way("another user", (), other, user), Way("")]


@functools.cache
def isolation() -> Way:
    """Return the strongest way that works on this machine, and why the stronger ones do not."""
    probe = b"import os\nfrom importlib.util import find_spec\n"
    probe += b"def f(folder):\n    return [os.access(folder, os.W_OK), find_spec('torch') is not None]\n"
    reasons: tuple[str, ...] = ()
    for way in ways():
        try:
            with contextlib.closing(Remote("probe.py", probe, START, way=way)) as remote:
                remote.imports = []  # PyTorch takes seconds
                if not way.says or remote("f", str(_packages()[0])) == [False, True]:
                    return way._replace(stronger=reasons)
            reason = "the package's files can be written to, or PyTorch's not be read"
        except Slow:
            raise
        except (ChildProcessError, Trouble) as error:
            reason = str(error)
        reasons += (f"{way.name}: {reason}",)
    raise ChildProcessError(f"a submission's process cannot be started here: {'; '.join(reasons)}")


class Remote:
    """A submission's file in another process, which is started again when it has ended; a `Student`.

    `limit` are the seconds for importing it and running its functions, in all checks together; `hidden` folders that it
    need not see; `way` how to start it, by default the strongest. ``imports`` are there before its time runs.
    """

    def __init__(self, name: str, source: bytes, limit: float, hidden: Sequence[Path] = (), way: Way | None = None):
        self.name, self.source, self.limit, self.seconds_left, self.share = name, source, limit, limit, limit * SHARE
        self.way, self.hidden = way or isolation(), hidden
        self.imports = _imports(name, source)
        self.process: subprocess.Popen | None = None

    def next_check(self) -> None:
        """Begin a check: it has its own share of the time."""
        self.share = self.limit * SHARE

    def __call__(self, function: str, *arguments: Any) -> Any:
        """Run a function of the submission, or raise `Trouble`; `ChildProcessError` if its process does not start."""
        allowed = min(self.seconds_left, self.share)
        if allowed <= 0:
            raise Trouble("the time limit is used up", status="stopped")
        if self.process is None:
            self._start()
        begun = time.monotonic()
        try:
            wire.send(self.link, [function, wire.plain(arguments)], begun + allowed)
            return value_of(wire.receive(self.link, begun + allowed), function, self.name)
        except TimeoutError:
            self.close()
            hint = "is there a loop without end?"
            raise Trouble(f"`{function}` was stopped after {allowed:.3g} s", hint, "stopped") from None
        except (EOFError, OSError, ValueError):  # it is gone, or has sent something else
            self.close()
            raise Trouble(f"`{function}`, or the file's import, ended the process", status="stopped") from None
        finally:
            spent = time.monotonic() - begun
            self.seconds_left, self.share = self.seconds_left - spent, self.share - spent

    def _start(self) -> None:
        if sys.platform == "linux":
            libc = ctypes.CDLL(None)
            libc.prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: what a submission leaves becomes a child of ours, see `close`
            libc.prctl(4, 0)  # PR_SET_DUMPABLE: our memory and environment are not for others of the same user
        self.work, self.before = Path(tempfile.mkdtemp(prefix="fedleak-")).resolve(), _children()
        if self.way.user is not None:
            os.chown(self.work, self.way.user, self.way.user)
        hidden = {*_hidden(), *_existing(self.hidden)}
        needed = [place for place in _needed() if place not in hidden]
        path = [str(package.parent) for package in _packages()] + [e for e in sys.path if Path(e) in needed]
        command = [*self.way.setpriv, sys.executable, "-m", "fedleak_book.coursework.worker"]
        if self.way.unshare:
            plan = {"work": str(self.work), "hidden": [*map(str, hidden)], "needed": [*map(str, needed)]}
            command = [*self.way.unshare, sys.executable, "-I", "-S", _JAIL, json.dumps(plan), *command]
        environment = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
        environment |= dict.fromkeys(("HOME", "TMPDIR", "MPLCONFIGDIR"), str(self.work))
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONSAFEPATH"), "1")
        environment |= {
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "USER": "student",
        }
        self.link, theirs = socket.socketpair()
        errors = tempfile.TemporaryFile()  # noqa: SIM115, until the process closes it, before it runs the submission
        try:
            with theirs:
                streams: Any = {"stdin": theirs, "stdout": subprocess.DEVNULL, "stderr": errors}
                self.process = subprocess.Popen(
                    command, cwd=self.work, env=environment, start_new_session=True, **streams
                )
            until = time.monotonic() + START
            wire.send(self.link, [self.name, self.source.decode("latin-1"), self.limit, self.imports], until)
            if wire.receive(self.link, until) == "ready":
                return
        except TimeoutError:
            self.close()
            raise Slow(f"a submission's process does not start within {START:g} s: is the machine busy?") from None
        except (EOFError, OSError, ValueError):
            pass
        finally:
            errors.seek(0)
            last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
            errors.close()
        self.close()
        raise ChildProcessError(f"a submission's process does not start: {last[0] if last else 'it says no reason'}")

    def close(self) -> None:
        """End the process, and all that it has started."""
        if self.process:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.link.close()
            for _ in range(1000):  # a killed process leaves its own children to us
                if not (processes := _children() - self.before):
                    break
                for number in processes:
                    with contextlib.suppress(ProcessLookupError, PermissionError, ChildProcessError):
                        os.kill(number, signal.SIGKILL)
                        os.waitpid(number, 0)
            shutil.rmtree(self.work, ignore_errors=True)
            self.process = None


def _imports(name: str, source: bytes) -> list[str]:
    """Return the modules that a submission imports, and that take long."""
    modules = ["fedleak_book.coursework.given"]
    modules += ["scipy.optimize"] * (b"scipy" in source) + ["matplotlib.pyplot"] * (b"matplotlib" in source)
    if name.endswith(".ipynb") or b"get_ipython" in source:
        modules += ["IPython.core.interactiveshell", "nbformat"]
    return modules


def _children() -> set[int]:
    lists = Path("/proc/self/task").glob("*/children")
    return {int(number) for text in lists for number in text.read_text().split()}
