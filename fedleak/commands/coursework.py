"""`fedleak coursework`: the assignments in the form of other graders."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Take the assignments to another grader.")


@app.callback()
def main() -> None:
    """Keep the name of the only command."""


@app.command(epilog="Example:\n\n`fedleak coursework gradescope zips --assignment llg --seed 2026`")
def gradescope(
    folder: Annotated[Path, typer.Argument(help="Where to write ASSIGNMENT.zip.")],
    assignment: Annotated[list[str] | None, typer.Option(help="Which one. May be repeated. [default: all]")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the checks' random inputs.")] = 0,
) -> None:
    """Write an autograder for Gradescope, a zip for each assignment; students hand in ASSIGNMENT.py."""
    from fedleak.coursework.gradescope import export

    for path in export(folder, assignment or (), seed):
        typer.echo(f"wrote {path}")
