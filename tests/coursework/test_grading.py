"""The grader: right, wrong, crashing, looping and cheating submissions, each in a process of its own."""

import csv
import os
import time
from pathlib import Path

import pytest
from forgeries import SOLUTION
from typer.testing import CliRunner

from fedleak import cli
from fedleak.coursework import grading
from fedleak.coursework.grading import Settings, Submission
from fedleak.coursework.sandbox import Remote

TIMEOUT = 8.0

NOISY = """
import os, sys
print("x" * 10**7)
print("y" * 10**7, file=sys.stderr)
os.write(1, b"z" * 10**7)
assert os.listdir() == ["lia_sa.py"]  # a clean folder
assert "SECRET" not in os.environ
"""

SUBMISSIONS = {
    "good": NOISY + SOLUTION,
    "rounding": SOLUTION.replace(".round()", ".floor()"),
    "crash": SOLUTION + "\n\ndef system(e):\n    import os\n    os._exit(3)\n",
    "loop": SOLUTION + "\n\ndef counts(*a):\n    while True:\n        pass\n",
    "exit": "import sys\nsys.exit(0)\n",
    "os_exit": "import os\nos._exit(0)\n",
    "stuck": "while True:\n    pass\n",
    "syntax": "def system(e)\n    return e\n",
    "huge": "def system(e):\n    return [[1.0] * 3_000_000] * 3\n",
    "notebook": '{"cells": [{"cell_type": "code", "execution_count": null}], "nbformat": 4}',
    "binary": "PK\x03\x04\x00\x00",
    "zzz_last": SOLUTION,  # behind all the others
}
POINTS = {"good": 10, "rounding": 4, "crash": 3, "loop": 4, "zzz_last": 10}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Grade a folder with one submission of each kind: the rows of the CSV by student."""
    top = tmp_path_factory.mktemp("grading")
    for name, text in SUBMISSIONS.items():
        (top / "all" / name).mkdir(parents=True)
        (top / "all" / name / "lia_sa.py").write_text(text, encoding="utf-8")
    (top / "all" / "missing").mkdir()
    (top / "all" / "as_notebook").mkdir()
    (top / "all" / "as_notebook" / "lia_sa.ipynb").write_text(SUBMISSIONS["notebook"])
    students = sorted([*SUBMISSIONS, "missing", "as_notebook"])
    os.environ["SECRET"] = "token"
    rows = list(grading.grade(top / "all", top / "grades.csv", (), Settings(TIMEOUT), top / "feedback", jobs=2))
    del os.environ["SECRET"]
    with (top / "grades.csv").open(newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert [row["student"] for row in written] == sorted(row["student"] for row in rows) == students
    return {row["student"]: row for row in written} | {"feedback": top / "feedback"}


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("student", [*SUBMISSIONS, "missing", "as_notebook"])
def test_points_are_what_the_functions_are_worth(graded, student):
    row = graded[student]
    assert int(row["points"]) == POINTS.get(student, 0), row
    assert int(row["max"]) == 10
    checks = [int(value) for name, value in row.items() if name.startswith("lia_sa.")]
    assert len(checks) == 4
    assert sum(checks) == int(row["points"])


def test_columns(graded):
    assert list(graded["good"]) == [
        *("student", "assignment", "points", "max", "seconds", "error", "similar", "imports", "file"),
        *(f"lia_sa.{name}" for name in ("system", "disaggregate", "counts", "measure")),
    ]
    assert graded["good"]["error"] == ""


@pytest.mark.parametrize(
    ("student", "what"),
    [
        ("rounding", "counts: other values than expected"),
        ("crash", "system: `system`, or the file's import, ended the process"),
        ("loop", "`counts` was stopped after "),
        ("exit", "the file cannot be imported: SystemExit"),
        ("stuck", "`system` was stopped after "),
        ("syntax", "SyntaxError (line 1)"),
        ("os_exit", "`system`, or the file's import, ended the process"),
        ("notebook", "the file cannot be imported: NameError (line 1)"),
        ("binary", "the file cannot be imported: "),
        ("missing", "lia_sa.py is missing"),
        ("as_notebook", "lia_sa.py is missing; a notebook lia_sa.ipynb is there"),
        ("huge", "`system` raised TypeError"),
    ],
)
def test_the_error_says_what_happened(graded, student, what):
    assert what in graded[student]["error"]


def test_no_submission_takes_longer_than_its_limit(graded):
    assert all(float(graded[student]["seconds"]) <= 2 * TIMEOUT for student in SUBMISSIONS)  # on a busy machine too
    assert float(graded["loop"]["seconds"]) > 1


def test_feedback_is_what_the_student_would_have_seen(graded):
    text = (graded["feedback"] / "rounding_lia_sa.txt").read_text(encoding="utf-8")
    assert "✓ 1/1  system" in text
    assert "hint: round to the NEAREST integer" in text
    assert text.rstrip().endswith("lia_sa: 4 of 10 points")


def test_a_single_assignment_can_be_one_file_a_student(tmp_path):
    (tmp_path / "ada.py").write_text(SOLUTION, encoding="utf-8")
    (found,) = grading.submissions(tmp_path, ["lia_sa"])
    assert tuple(found) == ("ada", "lia_sa", tmp_path / "ada.py")
    with pytest.raises(ValueError, match=r"ada.py is a single file: say which assignment"):
        grading.submissions(tmp_path)


def test_what_somebody_handed_in_is_expected_of_all(tmp_path):
    for student, name in (("ada", "llg"), ("ada", "rlu"), ("grace", "llg")):
        (tmp_path / student).mkdir(exist_ok=True)
        (tmp_path / student / f"{name}.py").write_text("")
    found = [s[:2] for s in grading.submissions(tmp_path)]
    assert found == [("ada", "llg"), ("ada", "rlu"), ("grace", "llg"), ("grace", "rlu")]


def test_bad_folders_and_options_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder"):
        grading.submissions(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"no submissions in .*: expected a folder for each student with llg.py"):
        grading.submissions(tmp_path)
    with pytest.raises(ValueError, match="unknown assignment 'x'"):
        grading.submissions(tmp_path, ["x"])
    for settings, jobs in ((Settings(0.0), 1), (Settings(), 0)):
        with pytest.raises(ValueError, match="the time limit and the jobs are positive"):
            next(grading.grade(tmp_path, tmp_path / "g.csv", settings=settings, jobs=jobs))


def test_the_checks_own_time_is_not_the_submissions():
    student = Remote("lia_sa.py", b"def system(e):\n    return e\n", 1.0)
    try:
        assert student("system", 2.0) == 2.0
        left = student.left
        time.sleep(1.2)
        student.next_check()
        assert student("system", 3.0) == 3.0
        assert 0 < student.left < left < 1.0
    finally:
        student.close()


@pytest.mark.parametrize("kind", ["link", "large", "pipe"])
def test_a_file_that_is_none_is_a_row(tmp_path, kind):
    file = tmp_path / "lia_sa.py"
    if kind == "link":
        file.symlink_to(tmp_path / "other.py")
        (tmp_path / "other.py").write_text(SOLUTION)
    elif kind == "large":
        file.write_text("#" * 2**21)
    else:
        os.mkfifo(file)
    result, _ = grading.grade_one(Submission("ada", "lia_sa", file))
    says = {"link": "lia_sa.py is a link", "large": "lia_sa.py has more than 1 MiB", "pipe": "lia_sa.py is missing"}
    assert {(o.status, o.message) for o in result.outcomes} == {("missing", says[kind])}


def test_every_student_has_inputs_of_their_own(tmp_path, monkeypatch):
    seeds = set()
    monkeypatch.setattr(grading, "run_check", lambda check, remote, seed: seeds.add(seed) or grading.Outcome(check, ""))
    for seed, student, name in ((1, "ada", "llg"), (1, "ada", "rlu"), (1, "grace", "llg"), (2, "ada", "llg")):
        (tmp_path / f"{name}.py").write_text("")
        grading.grade_one(Submission(student, name, tmp_path / f"{name}.py"), Settings(seed=seed))
    assert len(seeds) == 4


def test_a_run_is_resumed(tmp_path, monkeypatch):
    """Rows of unchanged files stay; changed files, cut rows and what the machine failed at are graded again."""
    made = []

    def every(found, settings, jobs):
        for one in found:
            made.append(one.student)
            text = grading.read(one.path).decode()
            status = grading.UNGRADED if "machine" in text and made.count(one.student) == 1 else "wrong"
            checks = grading.ASSIGNMENTS["lia_sa"].checks
            result = grading.Result("lia_sa", tuple(grading.Outcome(c, status, "no") for c in checks))
            yield one, grading.row_of(one, result, 1.0), f"{result}\n"

    monkeypatch.setattr(grading, "_all", every)
    for student in ("ada", "bob", "cut", "dan", "machine"):
        (tmp_path / "all" / student).mkdir(parents=True)
        (tmp_path / "all" / student / "lia_sa.py").write_text(f"x = '{student}'")
    out = tmp_path / "grades.csv"
    assert len(list(grading.grade(tmp_path / "all", out))) == 5
    lines = out.read_text(encoding="utf-8").splitlines(keepends=True)
    out.write_text("".join(line[:30] if line.startswith("cut") else line for line in lines), encoding="utf-8")
    (tmp_path / "all" / "dan" / "lia_sa.py").write_text("x = 'changed'")
    made.clear()
    made.append("machine")
    list(grading.grade(tmp_path / "all", out, resume=True))
    assert made == ["machine", "cut", "dan", "machine"]
    assert [line.split(",")[0] for line in out.read_text().splitlines()[1:]] == ["ada", "bob", "cut", "dan", "machine"]
    assert grading.UNGRADED not in out.read_text()


def _killed(submission, settings):
    if submission.student == "killer":
        os.kill(os.getpid(), 9)
    return {"student": submission.student}, ""


def test_a_grader_that_is_killed_costs_one_submission(monkeypatch):
    monkeypatch.setattr(grading, "_graded", _killed)
    found = [Submission(student, "lia_sa", Path("lia_sa.py")) for student in ("ada", "killer", "zoe")]
    rows = {one.student: row for one, row, _ in grading._all(found, Settings(), 1)}
    assert rows["ada"] == {"student": "ada"}
    assert rows["zoe"] == {"student": "zoe"}
    assert (rows["killer"]["points"], rows["killer"]["error"]) == (0, "the grader's process was ended from outside")


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub" / "ada").mkdir(parents=True)
    done = CliRunner().invoke(cli.app, ["grade", "sub", "--assignment", "defences", "--out", "out.csv"])
    assert done.exit_code == 0, done.output
    assert "defences.py is missing" in done.output
    assert (tmp_path / "out.csv").read_text(encoding="utf-8").startswith("student,assignment,points,max,seconds,error,")
    done = CliRunner().invoke(cli.app, ["grade", "nowhere"])
    assert done.exit_code == 1
    assert "fedleak: no folder 'nowhere'" in done.output
