"""`fedleak coursework`: the assignments in the form of other graders, and a repository for students."""

import secrets
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedleak_book.coursework import named

app = typer.Typer(no_args_is_help=True, help="Export the assignments to another grader, or to students.")


@app.command(epilog="Example:\n\n`fedleak coursework gradescope zips --assignment llg`")
def gradescope(
    folder: Annotated[Path, typer.Argument(help="Folder for ASSIGNMENT.zip.")],
    assignment: Annotated[
        list[str] | None, typer.Option(help="Assignment to export (repeatable). [default: all]")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the checks' random inputs. [default: a secret one]")] = None,
) -> None:
    """Write an autograder for Gradescope, a zip for each assignment; students hand in ASSIGNMENT.py."""
    chosen = [named(name) for name in assignment or ()]  # before anything that takes seconds to import
    from fedleak_book.coursework.gradescope import export

    for path in export(folder, chosen, secrets.randbits(32) if seed is None else seed):
        typer.echo(f"wrote {path}")


@app.command(epilog="Example:\n\n`fedleak coursework gradebook grades.csv canvas.csv --system canvas`")
def gradebook(
    grades: Annotated[Path, typer.Argument(help="CSV file that fedleak grade wrote.")],
    out: Annotated[Path, typer.Argument(help="CSV file to import.")],
    system: Annotated[Literal["canvas", "moodle"], typer.Option(help="Learning platform.")] = "canvas",
) -> None:
    """Write the grade book for the import of Canvas or Moodle: the folders' names are the students' logins there."""
    from fedleak_book.coursework.gradebook import write

    write(grades, system, out)
    typer.echo(f"wrote {out}")


@app.command(epilog="Example:\n\n`fedleak coursework students ../course`")
def students(folder: Annotated[Path, typer.Argument(help="Folder to create.")]) -> None:
    """Copy this repository without the coursework's solutions; `make book` in the copy builds the students' book."""
    from fedleak_book.coursework.students import copy

    typer.echo(f"wrote {copy(folder)} files to {folder}")
