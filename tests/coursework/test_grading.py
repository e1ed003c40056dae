"""The grader: right, wrong, crashing, looping and cheating submissions, each in a process of its own."""

import csv
import os
import time

import pytest
from typer.testing import CliRunner

from fedleak import cli, paths
from fedleak.coursework import grading

SOLUTION = (paths.root() / "book" / "coursework" / "solutions" / "lia_sa.py").read_text(encoding="utf-8")
TIMEOUT = 8.0

CHEAT = """
import os, sys
from fedleak.coursework import wire, worker
worker.answer = lambda *arguments: {"status": "returned", "value": {"points": 10, "status": "passed"}}
forged = wire.encode({"status": "passed", "points": 10})
for descriptor in range(3, 64):  # the grader's socket is among them
    try:
        os.write(descriptor, len(forged).to_bytes(8, "big") + forged)
    except OSError:
        pass
for place in ("grades.csv", "../grades.csv", "result.json"):
    open(place, "w").write("cheat,lia_sa,10,10")
print("lia_sa: 10 of 10 points")
"""
NOISY = """
print("x" * 10**7)
import os
assert os.listdir() == ["lia_sa.py"]  # a clean folder
assert "SECRET" not in os.environ
"""

SUBMISSIONS = {
    "good": NOISY + SOLUTION,
    "rounding": SOLUTION.replace(".round()", ".floor()"),
    "crash": SOLUTION + "\n\ndef system(e):\n    import os\n    os._exit(3)\n",
    "loop": SOLUTION + "\n\ndef counts(*a):\n    while True:\n        pass\n",
    "exit": "import sys\nsys.exit(0)\n",
    "stuck": "while True:\n    pass\n",
    "syntax": "def system(e)\n    return e\n",
    "cheat": CHEAT,
    "huge": "def system(e):\n    return [[1.0] * 3_000_000] * 3\n",
}
POINTS = {"good": 10, "rounding": 4, "crash": 3, "loop": 4}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Grade a folder with one submission of each kind: the rows of the CSV by student."""
    top = tmp_path_factory.mktemp("grading")
    for name, text in SUBMISSIONS.items():
        (top / "all" / name).mkdir(parents=True)
        (top / "all" / name / "lia_sa.py").write_text(text, encoding="utf-8")
    (top / "all" / "missing").mkdir()
    os.environ["SECRET"] = "token"
    rows = list(grading.grade(top / "all", top / "grades.csv", timeout=TIMEOUT, feedback=top / "feedback"))
    del os.environ["SECRET"]
    with (top / "grades.csv").open(newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert [row["student"] for row in written] == [row["student"] for row in rows] == sorted([*SUBMISSIONS, "missing"])
    return {row["student"]: row for row in written} | {"feedback": top / "feedback"}


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("student", [*SUBMISSIONS, "missing"])
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
        ("missing", "lia_sa.py is missing"),
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


def test_a_process_has_its_own_clock_and_folder_and_leaves_nothing_behind(tmp_path):
    file = tmp_path / "lia_sa.py"
    file.write_text("def system(e):\n    return e\n")
    student = grading.Remote(file, 1.0)
    student.start()
    process, folder = student.process, student.folder
    assert process.poll() is None
    assert [path.name for path in folder.iterdir()] == ["lia_sa.py"]
    time.sleep(1.2)  # what the checks themselves take is not on the submission's time
    student.next_check()
    assert student("system", 2.0) == 2.0
    student.stop()
    assert process.poll() is not None
    assert not folder.exists()
    assert student.stop() is None


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
