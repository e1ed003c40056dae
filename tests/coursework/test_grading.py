"""The grader: right, wrong, crashing, looping and cheating submissions, each in a process of its own."""

import csv
import os
import subprocess
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedleak import cli, paths
from fedleak.coursework import ASSIGNMENTS, grading
from fedleak.coursework.worker import Remote

SOLUTION = (paths.root() / "book" / "coursework" / "solutions" / "lia_sa.py").read_text(encoding="utf-8")
TIMEOUT = 8.0

FORGED = """
import atexit, glob, os
def forge():
    for number in range(3, 64):  # the link to the grader is among them
        try:
            os.write(number, b"PASSED lia_sa: 10 of 10 points")
        except OSError:
            pass
    report = '<testsuites><testcase name="test_check[counts]"><properties>'
    report += '<property name="status" value="passed"/></properties></testcase></testsuites>'
    for place in ("grades.csv", "report.xml", "../report.xml", "../grades.csv"):
        open(place, "w").write(report)
    print("lia_sa: 10 of 10 points")
atexit.register(forge)
forge()
"""
PATCHED = """
import pytest
from fedleak.coursework import assignment, suite, worker
from fedleak.coursework.checks import lia_sa
assignment.same = lia_sa.same = lia_sa.table = lambda *a, **k: None
assignment.run_check = suite.run_check = lambda check, *a: assignment.Outcome(check, "passed")
worker.answer = lambda *a: {"status": "returned", "value": {"points": 10, "status": "passed"}}
pytest.fail = lambda *a, **k: None
def system(e):
    return 0
"""
DELETES = """
import pathlib, shutil, fedleak
for path in pathlib.Path(fedleak.__file__).parent.rglob("*"):
    if path.is_file():
        path.unlink()
shutil.rmtree(pathlib.Path(fedleak.__file__).parent)
"""
KILLS = """
import os, signal
forged = '<testcase name="test_check[system]"><properties><property name="status" value="passed"/></properties>'
open("../report.xml", "w").write(f"<testsuites>{forged}</testcase></testsuites>")
os.killpg(0, signal.SIGKILL)
"""
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
    "leaves": SOLUTION + "\n\nimport subprocess\nsubprocess.Popen(['sleep', '987654'])\n",
    "exit": "import sys\nsys.exit(0)\n",
    "os_exit": "import os\nos._exit(0)\n",
    "stuck": "while True:\n    pass\n",
    "syntax": "def system(e)\n    return e\n",
    "forged": FORGED,
    "patched": PATCHED,
    "deletes": DELETES,
    "kills": KILLS,
    "huge": "def system(e):\n    return [[1.0] * 3_000_000] * 3\n",
    "notebook": '{"cells": [{"cell_type": "code", "execution_count": null}], "nbformat": 4}',
    "binary": "PK\x03\x04\x00\x00",
    "zzz_last": SOLUTION,  # behind all the others
}
POINTS = {"good": 10, "rounding": 4, "crash": 3, "loop": 4, "leaves": 10, "zzz_last": 10}


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
    rows = list(grading.grade(top / "all", top / "grades.csv", timeout=TIMEOUT, feedback=top / "feedback"))
    del os.environ["SECRET"]
    with (top / "grades.csv").open(newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert [row["student"] for row in written] == [row["student"] for row in rows] == students
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
        *("student", "assignment", "points", "max", "seconds", "error"),
        *(f"lia_sa.{name}" for name in ("system", "disaggregate", "counts", "measure")),
    ]
    assert graded["good"]["error"] == ""


@pytest.mark.parametrize(
    ("student", "what"),
    [
        ("rounding", "counts: expected"),
        ("crash", "exit code 3"),
        ("loop", "`counts` was stopped after 4 s"),
        ("exit", "the file cannot be imported: SystemExit"),
        ("stuck", "importing the file was stopped after 4 s"),
        ("syntax", "SyntaxError (line 1)"),
        ("os_exit", "importing the file ended the process (exit code 0)"),
        ("forged", "importing the file ended the process"),
        ("patched", "system: expected a tensor or a number, got a dict"),
        ("deletes", "there is no function `system`"),
        ("kills", "the checks were ended from outside (exit code -9)"),
        ("notebook", "the file cannot be imported: NameError (line 1): name 'null' is not defined"),
        ("binary", "the file cannot be imported: "),
        ("missing", "lia_sa.py is missing"),
        ("as_notebook", "lia_sa.py is missing; a notebook lia_sa.ipynb is there"),
        ("huge", "more than 100,000 entries"),
    ],
)
def test_the_error_says_what_happened(graded, student, what):
    assert what in graded[student]["error"]


def test_no_submission_takes_longer_than_its_limit(graded):
    assert all(float(graded[student]["seconds"]) <= TIMEOUT + 1 for student in SUBMISSIONS)
    assert float(graded["loop"]["seconds"]) > 4


def test_feedback_is_what_the_student_would_have_seen(graded):
    text = (graded["feedback"] / "rounding_lia_sa.txt").read_text(encoding="utf-8")
    assert "✓ 1/1  system" in text
    assert "hint: round to the NEAREST integer" in text
    assert text.rstrip().endswith("lia_sa: 4 of 10 points")


def test_a_single_assignment_can_be_one_file_a_student(tmp_path):
    (tmp_path / "ada.py").write_text(SOLUTION, encoding="utf-8")
    (found,) = grading.submissions(tmp_path, ["lia_sa"])
    assert (found.student, found.assignment.name, found.path) == ("ada", "lia_sa", tmp_path / "ada.py")
    with pytest.raises(ValueError, match=r"ada.py is a single file: say which assignment"):
        grading.submissions(tmp_path)


def test_what_somebody_handed_in_is_expected_of_all(tmp_path):
    for student, name in (("ada", "llg"), ("ada", "rlu"), ("grace", "llg")):
        (tmp_path / student).mkdir(exist_ok=True)
        (tmp_path / student / f"{name}.py").write_text("")
    found = [(s.student, s.assignment.name) for s in grading.submissions(tmp_path)]
    assert found == [("ada", "llg"), ("ada", "rlu"), ("grace", "llg"), ("grace", "rlu")]


def test_bad_folders_and_options_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder"):
        grading.submissions(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"no submissions in .*: expected a folder for each student with llg.py"):
        grading.submissions(tmp_path)
    with pytest.raises(ValueError, match="unknown assignment 'x'"):
        grading.submissions(tmp_path, ["x"])
    with pytest.raises(ValueError, match="positive number of seconds"):
        next(grading.grade(tmp_path, tmp_path / "g.csv", timeout=0))


def test_a_submission_leaves_no_process_behind(graded):
    listed = subprocess.run(["ps", "-A", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert graded["leaves"]["points"] == "10"
    assert "sleep 987654" not in listed


def test_nothing_is_deleted_but_the_submissions_own_copy(graded):
    assert graded["deletes"]["points"] == "0"
    assert Path(grading.__file__).is_file()


def test_the_checks_own_time_is_not_the_submissions(tmp_path):
    file = tmp_path / "lia_sa.py"
    file.write_text("def system(e):\n    return e\n")
    student = Remote(file, 1.0)
    assert student("system", 2.0) == 2.0
    left = student.left
    time.sleep(1.2)
    student.next_check()
    assert student("system", 3.0) == 3.0
    assert 0 < student.left < left < 1.0


def test_a_file_that_cannot_be_read_is_a_row(tmp_path, monkeypatch):
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada" / "lia_sa.py").write_text(SOLUTION)
    found = grading.submissions(tmp_path)[0]

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(grading.shutil, "copyfile", refuse)
    result, _ = grading.grade_one(found)
    assert {(o.status, o.message) for o in result.outcomes} == {
        ("error", "lia_sa.py cannot be read: Permission denied")
    }


def test_checks_that_never_end_are_stopped(tmp_path, monkeypatch):
    (tmp_path / "lia_sa.py").write_text(SOLUTION)
    monkeypatch.setattr(grading, "OURS", -7.9)  # PyTorch alone takes longer to start
    result, seconds = grading.grade_one(grading.Submission("ada", ASSIGNMENTS["lia_sa"], tmp_path / "lia_sa.py"), 8.0)
    assert {o.message for o in result.outcomes} == {"the checks were stopped after 0.1 s"}
    assert (result.points, seconds) == (0, 8.0)


def test_grading_without_pytest_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"pip install 'fedleak\[coursework\]'"):
        next(grading.grade(tmp_path, tmp_path / "g.csv"))


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
