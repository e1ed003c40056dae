"""`fedleak record`, `fedleak claims`, `fedleak recheck` and `fedleak scoreboard`."""

import json
from datetime import date
from typing import Annotated

import typer

from fedleak_book import parameters, paths
from fedleak_book.evidence import scoreboard


def record(
    name: Annotated[str, typer.Argument(help="Chapter, such as llg, rlu, lia_sa, gdbr, agic, arena or learned.")],
    artefact: Annotated[list[str] | None, typer.Argument(help="Experiments of the chapter. [default: all]")] = None,
    profile: Annotated[str, typer.Option(help="Settings: quick or paper.")] = "paper",
    device: Annotated[str, typer.Option(help="Device: auto, cpu or cuda.")] = "auto",
    scheduler: Annotated[str, typer.Option(metavar="ADDRESS", help="Run on the workers of this Dask scheduler.")] = "",
    reuse_cache: Annotated[
        bool, typer.Option("--reuse-cache", help="Reuse cached and recorded results of other code.")
    ] = False,
) -> None:
    """Run declared experiments, without their chapter's pages, and record each as it is done.

    A run that was killed goes on where it stopped. The claims are measured anew on what is recorded.
    """
    names = paths.experiment_names(name)  # before anything that takes seconds to import
    for experiment in artefact or ():
        paths.require_experiment(name, experiment, sorted(names))
    parameters.check({"profile": profile, "device": device})
    from fedleak_book.evidence.results import Results
    from fedleak_book.experiments import running

    chosen = [running.named(name, each).name for each in artefact or running.declared(name)]
    others = "use" if reuse_cache else "refuse"
    results = Results(name, profile, device, record=True, scheduler=scheduler, others=others)
    for name_of in chosen:
        results.rows(name_of)
        typer.echo(f"recorded {name}/{name_of} ({profile})")
    if profile == "paper":
        claims(name)


def claims(
    name: Annotated[
        str | None,
        typer.Argument(help="Chapter, such as llg, rlu, lia_sa, gdbr, agic, arena or learned. [default: all]"),
    ] = None,
) -> None:
    """Measure the claims of a chapter or of all anew, on the recorded rows, and write data/verdicts.csv.

    After an edit of claims, of what is published, or of a record. Settings that a paper does not print, and that have
    neither choices nor a reason, are named.
    """
    if name is not None:
        paths.with_experiments(name)
    from fedleak_book.evidence import completeness, judged, published
    from fedleak_book.evidence.results import Results

    for chapter in paths.chapters_with_claims() if name is None else [name]:
        if measured := Results(chapter, device="cpu").measure():
            judged.keep(chapter, measured)
        typer.echo(f"measured the claims of {chapter}")
        for setting in completeness.unlisted(published.load(chapter)):
            typer.echo(f"undeclared: {setting}")


def recheck(
    name: Annotated[str | None, typer.Argument(help="Chapter to draw tables from. [default: all]")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed of the draw. [default: the date]")] = None,
    budget: Annotated[int, typer.Option(min=1, help="Recorded computing time of the drawn settings, in seconds.")] = 60,
) -> None:
    """Compute randomly drawn recorded results again, and compare."""
    if name is not None:
        paths.with_experiments(name)
    from fedleak_book.experiments import recheck as again

    seed = date.today().toordinal() if seed is None else seed
    typer.echo(f"drawn with --seed {seed}")
    outcomes = again.spot_check(name, seed, budget, typer.echo)
    if not outcomes:
        raise ValueError(f"nothing could be checked: no setting took less than --budget {budget} s, on available data")
    if differing := [name for name, rows in outcomes.items() if {again.DIFFERS, again.MISSING} & {*rows["verdict"]}]:
        raise ValueError(f"what is recorded does not come out again: {', '.join(differing)}")


def scoreboard_command(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the counts per chapter and in total as one JSON object.")
    ] = False,
) -> None:
    """Count the papers' values by verdict and grade of the evidence, from what is recorded; no notebook is run.

    A: at the paper's own settings. B: at every plausible choice of what the paper does not print. C: with fewer images,
    whose effect was measured elsewhere. D: at other settings.
    """
    chapters = scoreboard.overview()
    typer.echo(json.dumps(chapters, indent=1) if as_json else scoreboard.table(chapters))
