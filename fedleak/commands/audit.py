"""`fedleak audit`: from a file that describes a set-up to a report."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedleak.audit import Report

EXAMPLE = Path(__file__).parents[1] / "audit" / "example.py"
EPILOG = (
    "Examples:\n\n- `fedleak audit --example > my_setup.py`\n\n- `fedleak audit my_setup.py`\n\n"
    "- `fedleak audit my_setup.py --out report.html --trials 50 --seed 1`\n\n"
    "- `fedleak audit RUN --setup my_setup.py --fail-above 0.6 --junit audit.xml`"
)


def command(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="Python that defines `setup` (a Setup or a function), or a recorded run's folder."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the report: .html, or .md (with its figure beside it).")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Attack so many updates, instead of what the file says.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random, instead of what the file says.")] = None,
    setup: Annotated[
        Path | None, typer.Option(help="Of a recorded run: the file whose `setup` has its model, and data if you can.")
    ] = None,
    gaps: Annotated[bool, typer.Option("--gaps", help="Of a recorded run: accept missing rounds.")] = False,
    fail_above: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Exit with 1 if an attack names a larger share of the labels, in any round."),
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit's XML, a case a round; needs --fail-above.")] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a file to start from, no more.")] = False,
) -> None:
    """Measure what the updates of your own model give away, to whom, and what would reduce it.

    Runs FILE, which is your own code, and every attack that applies to what it describes; of the folder of a recorded
    run, every attack on every update in it. Without --out the report is printed as Markdown. Under 2 minutes for a
    ResNet-18 at 32 x 32 on a CPU.
    """
    if example:
        typer.echo(EXAMPLE.read_text(encoding="utf-8"), nl=False)
        return
    if file is None:
        raise ValueError("say which file to audit; `fedleak audit --example` prints one to start from")
    from fedleak.audit import guard
    from fedleak.audit.report import WORDS, check_ending

    if out is not None:
        check_ending(out)
    if junit is not None and fail_above is None:
        raise ValueError("--junit needs --fail-above, which says what a failure is")
    report = _report(file, setup, gaps, trials=trials, seed=seed)
    if out is None:
        typer.echo(report.to_markdown())
    else:
        for title, text in zip(WORDS, report.headline(), strict=True):
            typer.echo(f"{title}. {text}\n")
        for path in report.save(out):
            typer.echo(f"wrote {path}")
    if fail_above is not None:
        guard.check(report, fail_above, junit)


def _report(file: Path, setup: Path | None, gaps: bool, **asked: int | None) -> "Report":
    """Audit a set-up's file, or a recorded run's folder."""
    from fedleak.audit import audit, audit_run
    from fedleak.audit.setup import load

    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    if not file.is_dir():
        if setup is not None or gaps:
            raise ValueError(f"--setup and --gaps go with a recorded run's folder, and {file} is none")
        return audit(replace(load(file), **given), progress=True)
    if "trials" in given:
        raise ValueError("--trials goes with a set-up: of a recorded run every update is attacked")
    if given and setup is None:
        raise ValueError("--seed goes with --setup: without, nothing is random but the guess")
    known = None if setup is None else replace(load(setup), **given)
    return audit_run(file, known, gaps=gaps, progress=True)
