"""The `fedleak` command: audits and data; in a checkout, also the commands of `fedleak_book`."""

import importlib.util
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fedleak.commands import audit, data
from fedleak.errors import Failed, MissingExtra

EXPECTED = (ValueError, FileExistsError, FileNotFoundError, PermissionError, ConnectionError, Failed, MissingExtra)


class _Commands(TyperGroup):
    """Commands whose expected failures are one line on standard error and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EXPECTED as error:
            typer.secho(f"fedleak: {error}", err=True, fg=typer.colors.RED)
            raise typer.Exit(1) from error


app = typer.Typer(
    name="fedleak",
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Measure how much a federated-learning update reveals: audit your own set-up, manage data sets; "
    "in a clone, run the chapters and build the book.",
    epilog="`fedleak COMMAND --help` explains a command and gives examples.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedleak {version('fedleak')}")
        raise typer.Exit


@app.callback()
def main(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Accept the options before a command."""


app.command("audit", epilog=audit.EPILOG)(audit.command)
app.add_typer(data.app, name="data")
if importlib.util.find_spec("fedleak_book") is not None:  # a checkout, which has the chapters
    from fedleak_book.commands import app as chapters

    app.add_typer(chapters)
