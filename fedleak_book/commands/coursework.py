"""`fedleak coursework`: the assignments in the form of other graders, and a repository for students."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

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
    from fedleak_book.coursework.gradescope import export

    for path in export(folder, assignment or (), secrets.randbits(32) if seed is None else seed):
        typer.echo(f"wrote {path}")


@app.command(epilog="Example:\n\n`fedleak coursework students ../course`")
def students(folder: Annotated[Path, typer.Argument(help="Folder to create.")]) -> None:
    """Copy this repository without the coursework's solutions; `make book` in the copy builds the students' book."""
    from fedleak_book.coursework.students import copy

    typer.echo(f"wrote {copy(folder)} files to {folder}")
