"""What was tried to get points without the functions, and to get something out: what is kept out, in which way."""

import os
import socket
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from forgeries import FORGERIES, MARK, SOLUTION
from test_assignments import functions_of, solution

from fedleak_book.coursework import NAMES, grading, sandbox
from fedleak_book.coursework.assignment import run_check
from fedleak_book.coursework.checking import assignment, local
from fedleak_book.coursework.grading import Settings, Submission
from fedleak_book.coursework.sandbox import Remote

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ways():
    """Return the ways to start a submission's process that work here."""
    available = []
    for way in sandbox.ways():
        remote = Remote("probe.py", b"def f():\n    return 1\n", 30.0, way=way)
        with closing(remote), suppress(ChildProcessError):
            available += [way] * remote("f")
    return available


def sleeping():
    pids = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            pids += [place.name] * (place / "cmdline").read_bytes().startswith(b"sleep\0%d" % MARK)
    return pids


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_worth_what_its_functions_are(name, tmp_path):
    if name == "the package's answers" and not sandbox.isolation().unshare:
        pytest.skip("without namespaces files can be read, as teachers.md says")
    for student, text in (("forger", FORGERIES[name][0]), ("good", SOLUTION)):
        (tmp_path / "all" / student).mkdir(parents=True)
        (tmp_path / "all" / student / "lia_sa.py").write_text(text, encoding="utf-8")
    submission = Submission("forger", "lia_sa", tmp_path / "all" / "forger" / "lia_sa.py")
    begun = time.monotonic()
    result, seconds = grading.grade_one(submission, Settings(20.0, 5, (tmp_path / "all",)))
    assert result.points == FORGERIES[name][1], str(result)
    assert seconds < 21
    assert time.monotonic() - begun < 120
    assert sleeping() == []


LOOKS = b"""
import os, socket
def tried(do):
    try:
        do()
    except OSError:
        return False
    return True
def look(grader, port, secret):
    places = [f"/proc/{grader}/{name}" for name in ("environ", "mem", "maps", "fd/0")]
    return {
        "grader": any(tried(lambda: open(place, "rb").read(1)) for place in places if not place.endswith("mem"))
        or tried(lambda: os.open(places[1], os.O_RDWR)),
        "listed": tried(lambda: os.listdir(f"/proc/{grader}/fd")),
        "killed": tried(lambda: os.kill(grader, 0)),
        "network": tried(lambda: socket.create_connection(("127.0.0.1", port), 2)),
        "written": tried(lambda: open(secret + "/new", "w")),
        "seen": tried(lambda: open(secret + "/seed").read()),
        "environment": "SECRET" in os.environ,
        "root": os.getuid() == 0 and os.system("umount -l /tmp 2>/dev/null || mount -o remount,rw / 2>/dev/null") == 0,
    }
"""


def test_what_each_way_keeps_out(ways, tmp_path, monkeypatch):
    """The table of teachers.md: the grader's memory and environment, the network, and files."""
    monkeypatch.setenv("SECRET", "token")
    tmp_path.chmod(0o755)
    (tmp_path / "seed").write_text("2026")
    with socket.create_server(("127.0.0.1", 0)) as server:
        for way in ways:
            with closing(Remote("look.py", LOOKS, 20.0, (tmp_path,), way)) as student:
                reached = student("look", os.getpid(), server.getsockname()[1], str(tmp_path))
            out = {"environment"}
            out |= {"grader", "listed", "killed", "written", "root"} if way.user is not None or way.unshare else set()
            out |= {"network", "seen"} if way.unshare else set()
            assert not [name for name in out if reached[name]], (way.says, reached)
            if not way.unshare:  # what teachers.md admits
                assert reached["network"], way.says


def test_the_feedback_has_none_of_the_submissions_words(tmp_path):
    """Exceptions' names and texts, printed text and returned values carry nothing back; nor do the inputs."""
    text = (
        "import os\nclass S3cret(Exception):\n    pass\n"
        "def system(e):\n    print('s3cret')\n    raise S3cret('s3cret')\n"
        "def disaggregate(e, w, b):\n    raise ValueError('s3cret')\n"
        "def counts(b, l, n):\n    return b * 0 + 987.654\n"
        "def measure(seed):\n    return [{'s3cret': 1}]\n"
    )
    (tmp_path / "lia_sa.py").write_text(text)
    result, _ = grading.grade_one(Submission("ada", "lia_sa", tmp_path / "lia_sa.py"), Settings(20.0, 77))
    feedback = str(result) + str(grading.row_of(Submission("ada", "lia_sa", Path()), result, 1.0))
    assert "`system` raised an exception of its own (line 6)" in feedback
    assert "`disaggregate` raised ValueError (line 8)" in feedback
    for word in ("s3cret", "S3cret", "987", "[", "77"):
        assert word not in str(result), word
    assert "counts before rounding: other values than expected" in feedback


def test_a_process_that_does_not_start_is_ungraded(tmp_path, monkeypatch):
    (tmp_path / "lia_sa.py").write_text(SOLUTION)
    monkeypatch.setattr(sandbox, "isolation", lambda: sandbox.Way("", (), ("false",)))
    result, _ = grading.grade_one(Submission("ada", "lia_sa", tmp_path / "lia_sa.py"), Settings())
    assert {o.status for o in result.outcomes} == {grading.UNGRADED}
    assert grading.row_of(Submission("ada", "lia_sa", tmp_path), result, 0.0)["error"].startswith("not graded")


@pytest.mark.parametrize("name", NAMES)
def test_a_table_of_another_seed_is_refused(name):
    """Right functions with the constants of seed 1: all points but those of the measurement."""
    functions = functions_of(solution(name))
    table = functions["measure"](1)
    (measure,) = [check for check in assignment(name).checks if check.name == "measure"]
    assert run_check(measure, local(functions), 3).status == "passed"
    refused = run_check(measure, local(functions | {"measure": lambda seed: table}), 3)
    assert refused.status == "wrong"
    assert "is not what your functions give on the inputs of this seed" in refused.message
