"""The autograder for Gradescope, run as Gradescope runs it: its results for a solution, a stub and no file."""

import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest
from typer.testing import CliRunner

from fedleak import cli
from fedleak_book import paths
from fedleak_book.coursework import NAMES
from fedleak_book.coursework.checking import assignment
from fedleak_book.coursework.students import stub

COURSEWORK = paths.root() / "book" / "coursework"


@pytest.fixture(scope="module")
def autograder(tmp_path_factory):
    """A container's folder after its set-up: the zip unpacked, and an interpreter that finds the package in it."""
    top = tmp_path_factory.mktemp("autograder")
    done = CliRunner().invoke(cli.app, ["coursework", "gradescope", str(top / "zips"), "--assignment", "lia_sa"])
    assert done.exit_code == 0, done.output
    assert [path.name for path in (top / "zips").iterdir()] == ["lia_sa.zip"]
    shutil.unpack_archive(top / "zips" / "lia_sa.zip", top / "source")
    python = top / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH={top / "source"} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (top / "submission").mkdir()
    return top


def grade(top):
    environment = {**os.environ, "AUTOGRADER": str(top)}
    subprocess.run(["bash", top / "source" / "run_autograder"], env=environment, cwd="/", check=True)
    return json.loads((top / "results" / "results.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "passed"), [("solution", True), ("stub", False), (None, False)])
def test_a_submission_gets_its_points(autograder, kind, passed):
    submitted = autograder / "submission" / "lia_sa.py"
    submitted.unlink(missing_ok=True)
    if kind:
        solution = (COURSEWORK / "solutions" / "lia_sa.py").read_text(encoding="utf-8")
        submitted.write_text(stub(solution) if kind == "stub" else solution, encoding="utf-8")
    result = grade(autograder)
    checks = assignment("lia_sa").checks
    assert [test["name"].split(":")[0] for test in result["tests"]] == [check.name for check in checks]
    assert [test["max_score"] for test in result["tests"]] == [check.points for check in checks]
    assert {test["status"] for test in result["tests"]} == {"passed" if passed else "failed"}
    assert result["score"] == sum(test["score"] for test in result["tests"]) == (10 if passed else 0)
    if not passed:
        assert all(test["output"] for test in result["tests"])


def test_the_zip_installs_what_grading_needs(tmp_path):
    assert CliRunner().invoke(cli.app, ["coursework", "gradescope", str(tmp_path)]).exit_code == 0
    assert {path.stem for path in tmp_path.iterdir()} == set(NAMES)
    with zipfile.ZipFile(tmp_path / "llg.zip") as archive:
        names = archive.namelist()
        assert {"setup.sh", "run_autograder", "pyproject.toml", "requirements.lock"} <= set(names)
        assert "fedleak_book/coursework/checks/llg.py" in names
        assert not [name for name in names if "solutions" in name]
        for script in ("setup.sh", "run_autograder"):
            assert archive.getinfo(script).external_attr >> 16 == 0o755
            subprocess.run(["bash", "-n"], input=archive.read(script), check=True)
