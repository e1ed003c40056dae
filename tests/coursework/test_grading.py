"""The grader: right, wrong, crashing, looping and cheating submissions, each in a process of its own."""

import csv
import json
import os
import time
from contextlib import closing
from pathlib import Path

import pytest
from forgeries import SOLUTION

from fedleak_book import coursework, paths
from fedleak_book.coursework import checking, grading, sandbox
from fedleak_book.coursework.grading import Settings, Submission
from fedleak_book.coursework.sandbox import Remote, isolation

TIMEOUT = 8.0

NOISY = """
import os, sys
print("x" * 10**7)
print("y" * 10**7, file=sys.stderr)
os.write(1, b"z" * 10**7)
assert os.listdir() == ["lia_sa.py"]  # a clean folder
assert "SECRET" not in os.environ
"""

LINE = "from fedleak_book.coursework import check\nassert check('lia_sa', 'lia_sa.py').passed\n"
CELLS = [{"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [], "source": s}
         for s in ("%matplotlib inline\n!exit 1", SOLUTION, LINE.replace("'lia_sa.py'", "globals()"))]  # fmt: skip
NOTEBOOK = json.dumps({"cells": CELLS, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})

SUBMISSIONS = {
    "good": (NOISY + SOLUTION, 10, ""),
    "ipynb": (NOTEBOOK, 10, ""),
    "rounding": (SOLUTION.replace(".round()", ".floor()"), 4, "counts: other values than expected"),
    "crash": (f"{SOLUTION}\ndef system(e):\n    import os\n    os._exit(3)\n", 3, "import, ended the process"),
    "loop": (f"{SOLUTION}\ndef counts(*a):\n    while True:\n        pass\n", 4, "`counts` was stopped after "),
    "syntax": ("def system(e)\n    return e\n", 0, "SyntaxError (line 1)"),
    "huge": ("def system(e):\n    return [[1.0] * 3_000_000] * 3\n", 0, "`system` raised TypeError"),
    "binary": ("PK\x03\x04\x00\x00", 0, "lia_sa.py does not run: "),
    "missing": (None, 0, "lia_sa.py is missing"),
    "zzz_last": (SOLUTION, 10, ""),  # behind all the others
}
"""Source, points, and what the column `error` says."""


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Grade a folder with one submission of each kind: the rows of the CSV by student."""
    top = tmp_path_factory.mktemp("grading")
    for name, (text, *_) in SUBMISSIONS.items():
        (top / "all" / name).mkdir(parents=True)
        if text is not None:
            suffix = ".ipynb" if name == "ipynb" else ".py"
            (top / "all" / name / f"lia_sa{suffix}").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET", "token")
        rows = list(grading.grade(top / "all", top / "grades.csv", Settings(TIMEOUT), (), top / "feedback", 2))
    with (top / "grades.csv").open(newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert [row["student"] for row in written] == sorted(row["student"] for row in rows) == sorted(SUBMISSIONS)
    return {row["student"]: row for row in written} | {"feedback": top / "feedback"}


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("student", SUBMISSIONS)
def test_a_row_has_the_functions_points_and_the_error(graded, student):
    row, (_, points, error) = graded[student], SUBMISSIONS[student]
    assert list(row) == [
        *("student", "assignment", "points", "max", "seconds", "error", "isolation", "file"),
        *(f"lia_sa.{name}" for name in ("system", "disaggregate", "reader", "counts", "measure")),
    ]
    assert (int(row["points"]), int(row["max"])) == (points, 10), row
    assert sum(int(value) for name, value in row.items() if name.startswith("lia_sa.")) == points
    assert error in row["error"]
    assert bool(row["error"]) == (points < 10)
    assert row["isolation"] == isolation().name
    assert float(row["seconds"]) <= 2 * TIMEOUT  # on a busy machine too


def test_the_clone_is_hidden_and_its_packages_are_shown():
    hidden, needed = sandbox._hidden(), sandbox._needed()
    assert paths.root() in hidden
    assert paths.root() not in needed
    assert {paths.root() / "fedleak", paths.root() / "fedleak_book"} <= {*needed}
    assert {paths.root() / "fedleak" / "attacks", Path(coursework.__file__).parent / "checks"} <= {*hidden}


def test_the_checks_own_time_is_not_the_submissions():
    with closing(Remote("lia_sa.py", b"def system(e):\n    return e\n", 1.0)) as student:
        assert student("system", 2.0) == 2.0
        seconds_before = student.seconds_left
        time.sleep(1.2)
        student.next_check()
        assert student("system", 3.0) == 3.0
        assert 0 < student.seconds_left < seconds_before < 1.0


def test_a_run_is_resumed(tmp_path, monkeypatch):
    """Rows of unchanged files stay; changed files, cut rows and what the machine failed at are graded again."""
    graded = []

    def every(submissions, settings, jobs):
        for submission in submissions:
            graded.append(submission.student)
            text = grading.read(submission.path).decode()
            status = grading.UNGRADED if "machine" in text and graded.count(submission.student) == 1 else "wrong"
            checks = checking.assignment("lia_sa").checks
            result = grading.Result("lia_sa", tuple(grading.Outcome(c, status, "no") for c in checks))
            yield submission, grading.row_of(submission, result, 1.0), f"{result}\n"

    monkeypatch.setattr(grading, "_all", every)
    for student in ("ada", "bob", "cut", "dan", "machine"):
        (tmp_path / "all" / student).mkdir(parents=True)
        (tmp_path / "all" / student / "lia_sa.py").write_text(f"x = '{student}'")
    out = tmp_path / "grades.csv"
    assert len(list(grading.grade(tmp_path / "all", out, Settings()))) == 5
    lines = out.read_text(encoding="utf-8").splitlines(keepends=True)
    out.write_text("".join(line[:30] if line.startswith("cut") else line for line in lines), encoding="utf-8")
    (tmp_path / "all" / "dan" / "lia_sa.py").write_text("x = 'changed'")
    graded.clear()
    graded.append("machine")
    list(grading.grade(tmp_path / "all", out, Settings(), resume=True))
    assert graded == ["machine", "cut", "dan", "machine"]
    assert [line.split(",")[0] for line in out.read_text().splitlines()[1:]] == ["ada", "bob", "cut", "dan", "machine"]
    assert grading.UNGRADED not in out.read_text()


def _killed(submission, settings):
    if submission.student == "killer":
        os.kill(os.getpid(), 9)
    return {"student": submission.student}, ""


def test_a_grader_that_is_killed_costs_one_submission(monkeypatch):
    monkeypatch.setattr(grading, "_graded", _killed)
    submissions = [Submission(student, "lia_sa", Path("lia_sa.py")) for student in ("ada", "killer", "zoe")]
    rows = {submission.student: row for submission, row, _ in grading._all(submissions, Settings(), 1)}
    assert rows["ada"] == {"student": "ada"}
    assert rows["zoe"] == {"student": "zoe"}
    assert (rows["killer"]["points"], rows["killer"]["error"]) == (0, "the grader's process was ended from outside")
