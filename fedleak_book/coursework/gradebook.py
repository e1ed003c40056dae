"""The grade book in the forms that Canvas and Moodle import: a row for each student, a column for each assignment."""

from pathlib import Path

from fedleak import files

UNGRADED = "not graded"
"""What an entry's error begins with if the machine's fault kept it from being graded: it has no points, not zero."""
NEEDED = {"student", "assignment", "points", "max", "error"}


def write(grades: Path, system: str, out: Path) -> None:
    """Write what ``"canvas"`` or ``"moodle"`` imports of the CSV file that `fedleak grade` wrote.

    Folders' names are students' logins. Canvas finds assignments by title; Moodle's import asks for the columns. Raises
    `FileNotFoundError` if there is no such file; `ValueError` if it is another one.
    """
    if not grades.is_file():
        raise FileNotFoundError(f"no file {str(grades)!r}")
    import pandas as pd  # takes a second, and the grader needs none of it

    try:
        rows = pd.read_csv(grades, dtype=str, keep_default_na=False)
    except ValueError as error:  # pandas' parser's, and of a file that is no text
        raise ValueError(f"{grades.name} is not what `fedleak grade` writes: no table can be read in it") from error
    if missing := NEEDED - {*rows}:
        raise ValueError(f"{grades.name} is not what `fedleak grade` writes: no column {', '.join(sorted(missing))}")
    if twice := rows[rows.duplicated(["student", "assignment"])]["student"].tolist():
        raise ValueError(f"{grades.name} has two rows for one assignment of {', '.join(twice)}")
    rows["points"] = rows["points"].mask(rows["error"].str.startswith(UNGRADED), "")
    points = rows.pivot(index="student", columns="assignment", values="points").fillna("")
    points = points.loc[rows["student"].unique(), rows["assignment"].unique()]
    table = points.rename_axis("username").reset_index()
    if system == "canvas":
        most = rows.drop_duplicates("assignment").set_index("assignment")["max"]
        table, head = pd.concat([most.to_frame("").T, points]), ["Points Possible"] + [""] * len(points)
        students = {"Student": head, "ID": "", "SIS Login ID": table.index, "Section": ""}
        table = pd.DataFrame(students, table.index).join(table)
    files.write_text(out, table.to_csv(index=False))
