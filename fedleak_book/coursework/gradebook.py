"""The grade book in the forms that Canvas and Moodle import: a row for each student, a column for each assignment."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

from fedleak import files

UNGRADED = "not graded"
"""What an entry's error begins with if the machine's fault kept it from being graded: it has no points, not zero."""
Points = dict[str, dict[str, str]]
"""By student, then by assignment."""


def _canvas(points: Points, most: dict[str, str]) -> list[list[str]]:
    """Return Canvas' rows; it finds students by login, and assignments by title."""
    head = ["Student", "ID", "SIS Login ID", "Section", *most]
    rows = [["", "", student, "", *(points[student].get(name, "") for name in most)] for student in points]
    return [head, ["Points Possible", "", "", "", *most.values()], *rows]


def _moodle(points: Points, most: dict[str, str]) -> list[list[str]]:
    """Return Moodle's rows, whose columns the import asks for."""
    return [["username", *most], *([student, *(row.get(name, "") for name in most)] for student, row in points.items())]


SYSTEMS: dict[str, Callable[[Points, dict[str, str]], list[list[str]]]] = {"canvas": _canvas, "moodle": _moodle}


def convert(grades: Path, system: str) -> str:
    """Return what a system imports of the CSV file that `fedleak grade` wrote; folders' names are students' logins.

    Raises `FileNotFoundError` if there is no such file; `ValueError` if it is another one, or for an unknown system.
    """
    if system not in SYSTEMS:
        raise ValueError(f"no form for {system!r}; there are: {', '.join(SYSTEMS)}")
    if not grades.is_file():
        raise FileNotFoundError(f"no file {str(grades)!r}")
    with grades.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if missing := {"student", "assignment", "points", "max", "error"} - set(reader.fieldnames or ()):
            raise ValueError(
                f"{grades.name} is not what `fedleak grade` writes: no column {', '.join(sorted(missing))}"
            )
        rows = list(reader)
    points: Points = {row["student"]: {} for row in rows}
    for row in rows:
        points[row["student"]][row["assignment"]] = "" if row["error"].startswith(UNGRADED) else row["points"]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        SYSTEMS[system](points, {row["assignment"]: row["max"] for row in rows})
    )
    return text.getvalue()


def write(grades: Path, system: str, out: Path) -> None:
    """Write what `convert` returns to a file."""
    files.write_text(out, convert(grades, system))
