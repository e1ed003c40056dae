"""`fedleak data`: what there is, what is here, and how to get the rest."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="List, download and check the data sets.")
INSTEAD = "instead of the one FEDLEAK_DATA names."
Folder = Annotated[Path | None, typer.Option("--root", help=f"The folder to look in, {INSTEAD}")]


@app.command("list")
def list_(root: Folder = None) -> None:
    """List all data sets: classes, size, licence, and whether they are here, whole or as a subset."""
    from fedleak.data import catalogue, check

    rows = [("name", "classes", "size", "here", "licence")]
    for known, finding in zip(catalogue(), check(root, sample=0), strict=True):
        here = {"missing": "no", "corrupt": "corrupt"}.get(finding.state, "subset" if finding.subset else "whole")
        size = "x".join(map(str, known.shape))
        here = "embedded" if known.embedded else here
        rows.append((known.name, str(known.n_classes), size, here, known.licence))
    _print_table(rows)


@app.command()
def download(
    name: Annotated[str, typer.Argument(help="A name from `fedleak data list`.")],
    to: Annotated[Path | None, typer.Option("--to", help=f"The folder to put it in, {INSTEAD}")] = None,
) -> None:
    """Download a data set in torchvision's layout, with progress and checksums.

    A set that is already there and whole is left alone. A download that breaks off leaves nothing behind.
    """
    from fedleak.data.catalogue import entry
    from fedleak.data.sources import ENVIRONMENT, examine, fetch, folder_of

    known, folder = entry(name), folder_of(to)
    if known.embedded:
        typer.echo(f"{known.name} is embedded: nothing to download.")
        return
    if folder is None:
        raise ValueError(f"say where to: give --to FOLDER, or set {ENVIRONMENT}")
    finding = examine(known, folder)
    # A subset is no reason not to fetch the whole; a damaged copy is replaced.
    if finding.whole:
        typer.echo(f"{known.name} is in {folder} already ({finding.detail}).")
        return
    fetch(known.name, folder)
    finding = examine(known, folder)
    if not finding.whole:
        raise ValueError(f"{known.name} was downloaded, but is {finding.state}: {finding.detail}")
    counts = ", ".join(f"{count} {split}" for split, count in finding.counts.items())
    typer.echo(f"{known.name} is in {folder} now ({counts}).")


@app.command("check")
def check_(root: Folder = None) -> None:
    """Read every data set that is here, verify checksums, decode a sample of the images.

    Exits with 1 if a file is corrupt. A data set that is missing is no error.
    """
    from fedleak.data import check

    findings = check(root)
    rows = [("name", "state", "train", "test", "detail")]
    for finding in findings:
        state = "subset" if finding.state == "found" and finding.subset else finding.state
        train, test = (str(finding.counts.get(split, "-")) for split in ("train", "test"))
        rows.append((finding.name, state, train, test, finding.detail))
    _print_table(rows)
    if any(finding.state == "corrupt" for finding in findings):
        raise typer.Exit(1)


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in aligned columns, the first row being the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(map(str.ljust, row, widths)).rstrip())
