"""`fedleak audit`: from a file that describes a set-up to a report."""

import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fedleak.audit import guard
from fedleak.audit.recorded import audit_run
from fedleak.audit.report import WORDS, Report, check_ending
from fedleak.audit.run import audit
from fedleak.audit.setup import Setup
from fedleak.errors import line_of

EXAMPLE = Path(__file__).with_name("example.py")
EPILOG = (
    "Examples:\n\n`fedleak audit --example > my_setup.py`\n\n`fedleak audit my_setup.py`\n\n"
    "`fedleak audit my_setup.py --out report.html --trials 50 --seed 1`\n\n"
    "`fedleak audit RUN --setup my_setup.py --fail-above 0.6 --junit audit.xml`"
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


def _report(file: Path, setup: Path | None, gaps: bool, **asked: int | None) -> Report:
    """Audit a set-up's file, or a recorded run's folder."""
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


def load(path: Path) -> Setup:
    """Run a file and return the set-up that it defines; files beside it can be imported, and errors name the line."""
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; `fedleak audit --example` prints one to start from")
    sys.path.insert(0, str(path.resolve().parent))
    try:
        found: Any = runpy.run_path(str(path), run_name="fedleak_audit").get("setup")
        if not isinstance(found, Setup) and callable(found):
            found = found()
    except Exception as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ValueError(f"{path.name}, line {line_of(error, path)}: {kind}{text}") from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    if not isinstance(found, Setup):
        is_what = "defines no `setup`" if found is None else f"gives a setup of type {type(found).__name__}"
        raise ValueError(f"{path.name} {is_what}: write `setup = fedleak.audit.Setup(...)`, or a function for it")
    return found
