"""`fedleak audit`: from a file that describes a set-up to a report, and a verdict."""

import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedleak.audit import Report

EXAMPLE = Path(__file__).parents[1] / "audit" / "example.py"
EPILOG = (
    "Exit codes: 0 all limits are kept (without limits: there is a report); 1 a leak, above a limit; 2 an error, or a "
    "wrong call; 3 not measurable: no attack that can be relied on read half of the updates, labels are missing, or a "
    "limit is kept only under an assumption that no recorder measured and --assume does not accept.\n\n"
    "Examples:\n\n- `fedleak audit --example > my_setup.py`\n\n- `fedleak audit my_setup.py`\n\n"
    "- `fedleak audit my_setup.py --out report.html --out report.json --trials 50 --seed 1`\n\n"
    "- `fedleak audit RUN --setup my_setup.py --fail-above 0.6 --junit audit.xml --baseline report.json`"
)


def command(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="Python that defines `setup` (a Setup or a function), or a recorded run's folder."
        ),
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(help="Where to write the report: .html, .json, or .md (its figure beside it). May be repeated."),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Attack so many updates, instead of what the file says.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random, instead of what the file says.")] = None,
    setup: Annotated[
        Path | None, typer.Option(help="Of a recorded run: the file whose `setup` has its model, and data if you can.")
    ] = None,
    gaps: Annotated[bool, typer.Option("--gaps", help="Of a recorded run: accept missing rounds.")] = False,
    skip_nan: Annotated[
        bool, typer.Option("--skip-nan", help="Of a recorded run: leave out, and name, updates with NaN or infinity.")
    ] = False,
    fail_above: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Fail if an attack names a larger share of the labels, in the mean of a round."
        ),
    ] = None,
    fail_above_guess: Annotated[
        float | None,
        typer.Option(min=0, max=1, metavar="MARGIN", help="Fail if it is so much above the best guess there."),
    ] = None,
    fail_above_each: Annotated[
        float | None, typer.Option(min=0, max=1, help="Fail if it names a larger share of any one update's.")
    ] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Accept what no recorder measured of a recorded run's clients: 'step' (their steps are SGD's at the "
            "recorded rate), 'loss' (the mean cross-entropy), 'labels' (the recorded ones), or 'all'. Repeatable.",
        ),
    ] = None,
    fast: Annotated[
        bool,
        typer.Option(
            "--fast",
            help="Leave out attackers that are trained for the model, which take most of the time; the report names "
            "them [default: train them].",
        ),
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="Write the verdicts as JUnit's XML; needs a limit.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="An earlier report's .json, to compare with.")] = None,
    threads: Annotated[
        int, typer.Option(min=1, envvar="FEDLEAK_THREADS", help="Of PyTorch: with as many, the same results.")
    ] = 1,
    example: Annotated[bool, typer.Option("--example", help="Print a file to start from, no more.")] = False,
) -> None:
    """Measure what the updates of your own model give away, to whom, and what would reduce it.

    Runs FILE, which is your own code, and every attack that applies to what it describes; of the folder of a recorded
    run, every attack on every update in it. Without --out the report is printed as Markdown.
    """
    if example:
        typer.echo(EXAMPLE.read_text(encoding="utf-8"), nl=False)
        return
    with _errors_in_one_line(file, junit):
        import torch

        from fedleak.audit import guard
        from fedleak.audit.report import WORDS
        from fedleak.audit.writing import check_ending
        from fedleak.files import reserve

        if file is None:
            raise ValueError("say which file to audit; `fedleak audit --example` prints one to start from")
        limits = guard.Limits(fail_above, fail_above_guess, fail_above_each)
        limited = any(limit is not None for limit in limits)
        if junit is not None and not limited:
            raise ValueError("--junit needs --fail-above, --fail-above-guess or --fail-above-each: what a failure is")
        out = out or []
        for path in out:
            check_ending(path)
        for path in filter(None, [*out, junit]):
            reserve(path).unlink()  # what cannot be written is said before the work
        earlier = None if baseline is None else _earlier(baseline)
        torch.set_num_threads(threads)
        report = _report(file, setup, {"gaps": gaps, "skip_nan": skip_nan}, fast, trials=trials, seed=seed)
        report.baseline = earlier
        if limited:
            report.verdicts = guard.verdicts(report, limits, assume or ())
        headline = "\n\n".join(map("{}. {}".format, WORDS, report.headline()))
        typer.echo(f"{headline}\n" if out else report.to_markdown())
        for written in (written for path in out for written in report.save(path)):
            typer.echo(f"wrote {written}")
        if junit is not None:
            guard.write_junit(junit, report.facts["name"], report.verdicts)
        for verdict in report.verdicts:
            if verdict.status != "kept":
                typer.secho(f"fedleak: {verdict.status}: {verdict.case}: {verdict.why}", err=True, fg=typer.colors.RED)
        unlimited = guard.KEPT if report.measured else guard.NOT_MEASURABLE
    raise typer.Exit(guard.exit_code(report.verdicts) if limited else unlimited)


@contextmanager
def _errors_in_one_line(file: Path | None, junit: Path | None) -> Iterator[None]:
    """End at any error, also an unforeseen one, with a line about it and not as a leak does, with Python's own 1."""
    from fedleak.audit import guard

    try:
        yield
    except Exception as error:
        if not isinstance(error, ValueError | OSError | ImportError):
            traceback.print_exc()
        typer.secho(f"fedleak: {error}", err=True, fg=typer.colors.RED)
        if junit is not None and not isinstance(error, PermissionError):
            guard.write_junit(junit, str(file), [], f"{type(error).__name__}: {error}")
        raise typer.Exit(guard.ERROR) from error


def _earlier(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        attacks = [{key: row[key] for key in ("attack", "iacc", "applies")} for row in found["attacks"]]
        return {"name": found["name"], "attacks": attacks}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no report that `fedleak audit --out FILE.json` wrote: {error!r}") from error


def _report(file: Path, setup: Path | None, options: dict[str, bool], fast: bool, **asked: int | None) -> "Report":
    from fedleak.audit import audit, audit_run
    from fedleak.audit.setup import load

    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    if not file.is_dir():
        if setup is not None or any(options.values()):
            raise ValueError(f"--setup, --gaps and --skip-nan go with a recorded run's folder, and {file} is none")
        return audit(replace(load(file), **given), progress=True, fast=fast)
    if fast:
        raise ValueError("--fast goes with a set-up: for a recorded run no attacker is trained")
    if "trials" in given:
        raise ValueError("--trials goes with a set-up: of a recorded run every update is attacked")
    if given and setup is None:
        raise ValueError("--seed goes with --setup: without, nothing is random but the guess")
    known = None if setup is None else replace(load(setup), **given)
    return audit_run(file, known, progress=True, **options)
