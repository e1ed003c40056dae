"""The checks of an assignment as pytest's tests of one submission; what the grader runs."""

import json
import os
from collections.abc import Callable
from importlib import import_module
from multiprocessing import forkserver
from pathlib import Path

import pytest

from fedleak.coursework.assignment import Assignment, Check, run_check
from fedleak.coursework.worker import Remote

ASKED = json.loads(os.environ["FEDLEAK_GRADE"])
"""Which assignment and file, the seed, and the seconds that the submission may take."""
forkserver.ensure_running()  # it imports what submissions need while this process imports the checks
ASSIGNMENT: Assignment = import_module(f"fedleak.coursework.checks.{ASKED['assignment']}").ASSIGNMENT


@pytest.fixture(scope="module")
def student() -> Remote:
    """Return the submission."""
    return Remote(Path(ASKED["file"]), ASKED["timeout"])


@pytest.mark.parametrize("check", ASSIGNMENT.checks, ids=lambda check: check.name)
def test_check(check: Check, student: Remote, record_property: Callable[[str, object], None]) -> None:
    """Run one check, and leave its outcome in the report."""
    student.next_check()
    before = student.left
    outcome = run_check(check, student, ASKED["seed"])
    for name in ("status", "message", "hint"):
        record_property(name, getattr(outcome, name))
    record_property("seconds", before - student.left)
    if outcome.status != "passed":
        pytest.fail(str(outcome), pytrace=False)
