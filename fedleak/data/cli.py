"""`fedleak data`: what there is, what is here, and how to get the rest."""

import os
from pathlib import Path
from typing import Annotated

import typer

from fedleak.data.catalogue import catalogue, entry
from fedleak.data.sources import ENVIRONMENT, Finding, check, examine
from fedleak.data.vision import download as fetch
from fedleak.errors import DataNotFound

Row = tuple[str, ...]

app = typer.Typer(no_args_is_help=True, help="List, download and check the data sets.")

Folder = Annotated[
    Path | None,
    typer.Option("--root", help=f"The folder to look in, instead of the one {ENVIRONMENT} names."),
]


@app.command("list")
def list_(root: Folder = None) -> None:
    """List all data sets: classes, size, licence, and whether they are here, whole or as a subset."""
    findings = {finding.name: finding for finding in check(root, sample=0)}
    rows: list[Row] = [("name", "classes", "size", "here", "licence")]
    for known in catalogue():
        finding = findings[known.name]
        here = {"missing": "no", "corrupt": "corrupt"}.get(finding.state, "subset" if finding.subset else "whole")
        if known.embedded:
            here = "embedded"
        size = "x".join(map(str, known.shape))
        rows.append((known.name, str(known.n_classes), size, here, known.licence))
    _print_table(rows)


@app.command()
def download(
    name: Annotated[str, typer.Argument(help="A name from `fedleak data list`.")],
    to: Annotated[
        Path | None,
        typer.Option("--to", help=f"The folder to put it in, instead of the one {ENVIRONMENT} names."),
    ] = None,
) -> None:
    """Download a data set in torchvision's layout, with progress and checksums.

    A set that is already there and whole is left alone. A download that breaks off leaves nothing behind.
    """
    try:
        known = entry(name)
        folder = to or (Path(chosen) if (chosen := os.environ.get(ENVIRONMENT)) else None)
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
        typer.echo(f"{known.name} is in {folder} now ({_counted(finding)}).")
    except (ValueError, DataNotFound) as problem:
        typer.echo(f"Error: {problem}", err=True)
        raise typer.Exit(1) from problem


@app.command("check")
def check_(root: Folder = None) -> None:
    """Read every data set that is here, verify checksums, decode a sample of the images.

    Exits with 1 if a file is corrupt. A data set that is missing is no error.
    """
    findings = check(root)
    rows: list[Row] = [("name", "state", "train", "test", "detail")]
    for finding in findings:
        state = "subset" if finding.state == "found" and finding.subset else finding.state
        counts = (str(finding.counts.get(split, "-")) for split in ("train", "test"))
        rows.append((finding.name, state, *counts, finding.detail))
    _print_table(rows)
    if any(finding.state == "corrupt" for finding in findings):
        raise typer.Exit(1)


def _counted(finding: Finding) -> str:
    return ", ".join(f"{count} {split}" for split, count in finding.counts.items())


def _print_table(rows: list[Row]) -> None:
    """Print rows in aligned columns, the first row being the head; the last column may be of any length."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        aligned = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        typer.echo("  ".join([*aligned, row[-1]]).rstrip())
