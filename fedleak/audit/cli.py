"""`fedleak audit`: from a file that describes a set-up to a report."""

import runpy
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fedleak.audit import guard
from fedleak.audit.recorded import audit_run
from fedleak.audit.report import Report
from fedleak.audit.run import audit
from fedleak.audit.setup import Setup
from fedleak.audit.writing import WORDS, check_ending

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
            metavar="FILE",
            help="Python that defines `setup` (a Setup or a function), or a recorded run's folder.",
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
    example: Annotated[
        bool, typer.Option("--example", help="Print a file to start from, and do nothing else.")
    ] = False,
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
    report = _report(file, setup, gaps, trials, seed)
    if out is None:
        typer.echo(report.to_markdown())
    else:
        for title, text in zip(WORDS, report.headline(), strict=True):
            typer.echo(f"{title}. {text}\n")
        for path in report.save(out):
            typer.echo(f"wrote {path}")
    if fail_above is None:
        return
    if junit is not None:
        guard.write_junit(report, junit, fail_above)
    if not (found := guard.above(report, fail_above)).empty:
        worst = found.loc[found["iacc"].idxmax()]
        raise ValueError(
            f"{worst['attack']} names {worst['iacc']:.2f} of the labels right in {worst['case']}: above {fail_above:g}"
        )


def _report(file: Path, setup: Path | None, gaps: bool, trials: int | None, seed: int | None) -> Report:
    """Audit a set-up's file, or a recorded run's folder."""
    if not file.is_dir():
        if setup is not None or gaps:
            raise ValueError(f"--setup and --gaps go with a recorded run's folder, and {file} is none")
        given = load(file)
        return audit(replace(given, **_set(trials=trials, seed=seed)), progress=True)
    if trials is not None:
        raise ValueError("--trials goes with a set-up: of a recorded run every update is attacked")
    if seed is not None and setup is None:
        raise ValueError("--seed goes with --setup: without, nothing is random but the guess")
    known = None if setup is None else replace(load(setup), **_set(seed=seed))
    return audit_run(file, known, gaps=gaps, progress=True)


def _set(**values: int | None) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def load(path: Path) -> Setup:
    """Run a file and return the set-up that it defines; files beside it can be imported.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it fails (the message names the line), or defines no `setup`, or one of another type.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; `fedleak audit --example` prints one to start from")
    where = str(path.resolve())
    with _running(where):
        found: Any = runpy.run_path(where, run_name="fedleak_audit").get("setup")
        if not isinstance(found, Setup) and callable(found):
            found = found()
    if not isinstance(found, Setup):
        is_what = "defines no `setup`" if found is None else f"gives a setup of type {type(found).__name__}"
        raise ValueError(f"{path.name} {is_what}: write `setup = fedleak.audit.Setup(...)`, or a function for it")
    return found


@contextmanager
def _running(where: str) -> Iterator[None]:
    """Let the user's file import what is beside it, and turn what goes wrong in it into one line that says where."""
    sys.path.insert(0, str(Path(where).parent))
    try:
        yield
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == where]
        line = error.lineno if isinstance(error, SyntaxError) and error.filename == where else (lines or [None])[-1]
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ValueError(f"{Path(where).name}, line {line}: {kind}{text}") from error
    finally:
        sys.path.remove(str(Path(where).parent))
