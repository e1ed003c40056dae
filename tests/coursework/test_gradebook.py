"""The grade book for Canvas and Moodle."""

import csv

import pandas as pd
import pytest
from typer.testing import CliRunner

from fedleak import cli
from fedleak_book.coursework.grading import Settings, grade
from fedleak_book.coursework.sandbox import Way

GRADES = """student,assignment,points,max,seconds,error
ada,llg,8,10,1.0,
ada,rlu,0,10,0.0,rlu.py is missing
grace,llg,0,10,0.0,not graded: a submission's process does not start
"""


def rows_for(system, tmp_path):
    (tmp_path / "grades.csv").write_text(GRADES)
    words = ["coursework", "gradebook", str(tmp_path / "grades.csv"), str(tmp_path / "out.csv"), "--system", system]
    assert CliRunner().invoke(cli.app, words).exit_code == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        return list(csv.reader(file))


def test_canvas_finds_students_by_login_and_assignments_by_title(tmp_path):
    head, most, *students = rows_for("canvas", tmp_path)
    assert head == ["Student", "ID", "SIS Login ID", "Section", "llg", "rlu"]
    assert most == ["Points Possible", "", "", "", "10", "10"]
    assert [(row[2], *row[4:]) for row in students] == [("ada", "8", "0"), ("grace", "", "")]


def test_moodle_gets_a_column_of_user_names(tmp_path):
    assert rows_for("moodle", tmp_path) == [["username", "llg", "rlu"], ["ada", "8", "0"], ["grace", "", ""]]


def test_another_file_is_refused(tmp_path):
    (tmp_path / "grades.csv").write_text("a,b\n1,2\n")
    done = CliRunner().invoke(cli.app, ["coursework", "gradebook", str(tmp_path / "grades.csv"), "out.csv"])
    assert done.exit_code == 1
    assert "not what `fedleak grade` writes" in done.stderr


@pytest.mark.usefixtures("alone")
def test_grades_of_other_assignments_and_students_stay(tmp_path):
    out, settings = tmp_path / "grades.csv", Settings(5.0, way=Way(""))
    for student, name in (("ada", "llg"), ("ada", "lia_sa"), ("grace", "lia_sa")):
        folder = tmp_path / student
        (folder / student).mkdir(parents=True, exist_ok=True)  # nothing is handed in, so that nothing runs
        assert len(list(grade(folder, out, settings, [name, name], resume=True))) == 1
    rows = pd.read_csv(out, dtype=str)
    assert [*(rows["student"] + " " + rows["assignment"])] == ["ada llg", "ada lia_sa", "grace lia_sa"]
    assert {"llg", "lia_sa"} <= {name.partition(".")[0] for name in rows}
    out.write_bytes(b"\xfc")
    with pytest.raises(ValueError, match=r"grades\.csv is no grade book"):
        list(grade(tmp_path / "ada", out, settings, ["llg"], resume=True))
