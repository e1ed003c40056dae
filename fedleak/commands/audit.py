"""`fedleak audit`: a report and verdicts on a set-up or a recorded run."""

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

EXAMPLE = Path(__file__).with_name("example.py")
EPILOG = (
    "Exit codes: 0 all limits hold (without limits: an attack was scored); 1 a leak above a limit; 2 an error or a "
    "wrong call; 3 not measurable: nothing was scored, or a limit is in doubt. One is kept only if the clients' "
    "training was measured, the attacker has the model (--setup), labels are recorded, and no attack failed.\n\n"
    "Examples:\n\n- `fedleak audit --example > my_setup.py`\n\n- `fedleak audit my_setup.py`\n\n"
    "- `fedleak audit my_setup.py --out report.html --out report.json --trials 50 --seed 1`\n\n"
    "- `fedleak audit RUN --setup my_setup.py --fail-above 0.6 --junit audit.xml --baseline report.json`"
)


def command(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Python file that defines `setup` (a Setup or a function), or folder of a recorded run.",
        ),
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            help="File for the report: .html, .json, or .md with its figure (repeatable). [default: print it]"
        ),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Number of updates to attack (overrides the file).")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed (overrides the file).")] = None,
    setup: Annotated[
        Path | None, typer.Option(help="File whose `setup` has the model, and data if available, of a recorded run.")
    ] = None,
    gaps: Annotated[bool, typer.Option("--gaps", help="Accept missing rounds in a recorded run.")] = False,
    fail_above: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Fail if an attack recovers a larger share of the labels, as the mean of a round."
        ),
    ] = None,
    fail_above_guess: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, metavar="MARGIN", help="Fail if the best attack exceeds the baseline by more than this share."
        ),
    ] = None,
    fail_above_each: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Fail if an attack recovers a larger share of the labels of any update."),
    ] = None,
    epsilon_above: Annotated[
        float | None,
        typer.Option(
            metavar="EPSILON",
            help="Fail if a client's differential privacy over its recorded rounds (of a set-up: of one) is weaker.",
        ),
    ] = None,
    assume: Annotated[
        str | None,
        typer.Option(
            metavar="training",
            help="'training': take rounds that nobody measured for SGD on the mean cross-entropy of their labels.",
        ),
    ] = None,
    fast: Annotated[
        bool,
        typer.Option(
            "--fast",
            help="Skip attackers that are trained for the model and take most of the time; the report lists them. "
            "[default: train them]",
        ),
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="File for the verdicts as JUnit XML; needs a limit.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="JSON report of an earlier audit to compare with.")] = None,
    threads: Annotated[
        int,
        typer.Option(
            min=1, envvar="FEDLEAK_THREADS", help="Number of PyTorch threads; the same number gives the same results."
        ),
    ] = 1,
    example: Annotated[bool, typer.Option("--example", help="Print a template and exit.")] = False,
) -> None:
    """Measure how much the updates of your own model reveal, to which adversary, and which defences reduce it.

    Runs FILE, which is your own code, and every attack that applies to the setting it describes; on the folder of a
    recorded run, every attack on every update. Without --out the report is printed as Markdown.
    """
    if example:
        typer.echo(EXAMPLE.read_text(encoding="utf-8"), nl=False)
        return
    bounds = fail_above, fail_above_guess, fail_above_each, epsilon_above
    limited = any(bound is not None for bound in bounds)
    with _errors_in_one_line(file, junit):
        # A wrong call is refused before PyTorch is imported, which takes seconds.
        if file is None:
            raise ValueError("name the file to audit; `fedleak audit --example` prints a template")
        for path in filter(None, (file, setup)):
            if not path.exists():
                raise FileNotFoundError(f"no file {path}; `fedleak audit --example` prints one to start from")
        if assume not in (None, "training"):
            raise ValueError(f"there is one assumption, --assume training, not {assume!r}")
        if junit is not None and not limited:
            raise ValueError(
                "--junit needs a limit: --fail-above, --fail-above-guess, --fail-above-each or --epsilon-above"
            )
        import torch

        from fedleak.audit import guard
        from fedleak.audit.report import WORDS, check_ending
        from fedleak.files import reserve

        limits = guard.Limits(*bounds)
        out = out or []
        for path in out:
            check_ending(path)
        for path in filter(None, [*out, junit]):
            reserve(path).unlink()  # fail before the work if a file cannot be written
        earlier = None if baseline is None else _earlier(baseline)
        torch.set_num_threads(threads)
        report = _report(file, setup, gaps, fast, trials=trials, seed=seed)
        report.baseline = earlier
        if limited:
            report.verdicts = guard.verdicts(report, limits, assume is not None)
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
    """Report any error in one line and exit with 2, since 1, Python's own code, means a leak."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, ValueError | OSError | ImportError):
            traceback.print_exc()
        typer.secho(f"fedleak: {error}", err=True, fg=typer.colors.RED)
        if junit is not None and not isinstance(error, PermissionError):
            from fedleak.audit import guard

            guard.write_junit(junit, str(file), [], f"{type(error).__name__}: {error}")
        raise typer.Exit(2) from error  # `guard.ERROR`, and click's code of a wrong call


def _earlier(path: Path) -> dict[str, Any]:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        attacks = [{key: row[key] for key in ("attack", "iacc", "applies")} for row in report["attacks"]]
        return {"name": report["name"], "attacks": attacks}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a report of `fedleak audit --out FILE.json`: {error!r}") from error


def _report(file: Path, setup: Path | None, gaps: bool, fast: bool, **asked: int | None) -> "Report":
    from fedleak.audit import audit, audit_run
    from fedleak.audit.setup import load

    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    if not file.is_dir():
        if setup is not None or gaps:
            raise ValueError(f"--setup and --gaps need the folder of a recorded run, which {file} is not")
        return audit(replace(load(file), **given), progress=True, fast=fast)
    if fast:
        raise ValueError("--fast needs a set-up: no attacker is trained for a recorded run")
    if "trials" in given:
        raise ValueError("--trials needs a set-up: every update of a recorded run is attacked")
    if given and setup is None:
        raise ValueError("--seed needs --setup: without it only the guess is random")
    model_setup = None if setup is None else replace(load(setup), **given)
    return audit_run(file, model_setup, progress=True, gaps=gaps)
