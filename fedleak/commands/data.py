"""`fedleak data`: list, download and check data sets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="List, download and check the data sets.")
INSTEAD = "[default: FEDLEAK_DATA]"
Folder = Annotated[Path | None, typer.Option("--root", help=f"Folder of the data sets, {INSTEAD}")]


@app.command("list")
def list_(root: Folder = None) -> None:
    """List all data sets: classes, size, licence, and whether they are available, complete or as a subset."""
    from fedleak.data import catalogue, check

    rows = [("name", "classes", "size", "here", "licence")]
    for dataset, finding in zip(catalogue(), check(root, sample=0), strict=True):
        location = {"missing": "no", "corrupt": "corrupt"}.get(finding.state, "subset" if finding.subset else "whole")
        size = "x".join(map(str, dataset.shape))
        location = "embedded" if dataset.embedded else location
        rows.append((dataset.name, str(dataset.n_classes), size, location, dataset.licence))
    _print_table(rows)


@app.command()
def download(
    name: Annotated[str, typer.Argument(help="Name from `fedleak data list`.")],
    to: Annotated[Path | None, typer.Option("--to", help=f"Target folder, {INSTEAD}")] = None,
) -> None:
    """Download a data set in torchvision's layout, with progress and checksums.

    A complete data set is not downloaded again. An interrupted download leaves no files.
    """
    from fedleak.data.catalogue import entry

    dataset = entry(name)
    if dataset.embedded:
        typer.echo(f"{dataset.name} is embedded: nothing to download.")
        return
    from fedleak.data.sources import ENVIRONMENT, examine, fetch, folder_of

    folder = folder_of(to)
    if folder is None:
        raise ValueError(f"say where to: give --to FOLDER, or set {ENVIRONMENT}")
    finding = examine(dataset, folder)
    # A subset is no reason not to fetch the whole; a damaged copy is replaced.
    if finding.whole:
        typer.echo(f"{dataset.name} is in {folder} already ({finding.detail}).")
        return
    fetch(dataset.name, folder)
    finding = examine(dataset, folder)
    if not finding.whole:
        raise ValueError(f"{dataset.name} was downloaded, but is {finding.state}: {finding.detail}")
    counts = ", ".join(f"{count} {split}" for split, count in finding.counts.items())
    typer.echo(f"{dataset.name} is in {folder} now ({counts}).")


@app.command("check")
def check_(root: Folder = None) -> None:
    """Read every available data set, verify checksums, decode a sample of the images.

    Exits with 1 if a file is corrupt. A missing data set is not an error.
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
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(map(str.ljust, row, widths)).rstrip())
