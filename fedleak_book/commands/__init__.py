"""The commands of a checkout, beside the package's own: run chapters, build the book, record, grade."""

import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from fedleak_book import parameters
from fedleak_book.commands import coursework, experiments
from fedleak_book.coursework import named


class _PairedParameters(TyperCommand):
    """Command with papermill's `-p NAME VALUE`; typer has no repeated option of two words."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for place in range(len(args) - 2, 0, -1):
            if args[place - 1] in ("-p", "--parameter") and "=" not in args[place]:
                args[place : place + 2] = ["=".join(args[place : place + 2])]
        return super().parse_args(ctx, args)


app = typer.Typer()


_ProfileOption = Annotated[
    Literal["quick", "paper"], typer.Option(help="Settings: quick (embedded data, minutes on a CPU) or paper.")
]
_DeviceOption = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Device; auto uses a GPU if there is one.")]


@app.command(
    cls=_PairedParameters,
    epilog="Examples:\n\n"
    "- `fedleak run llg`\n\n"
    "- `fedleak run llg --profile paper --device cuda -p trials 100`\n\n"
    "- `fedleak run llg -p seed 7 --out /tmp/seed7.ipynb`\n\n"
    "- `fedleak run llg --profile paper --scheduler tcp://node7:8786`",
)
def run(
    name: Annotated[str, typer.Argument(help="Chapter, such as llg, rlu, lia_sa, gdbr, agic, arena or learned.")],
    profile: _ProfileOption = "quick",
    device: _DeviceOption = "auto",
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "-p",
            "--parameter",
            metavar="NAME VALUE",
            help="Parameter of the notebook (trials, seed, data_root, ...) and its value (repeatable).",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File for the executed notebook. [default: where the book looks for it]")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Write the results to data/results/, with their provenance.")
    ] = False,
    scheduler: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Dask scheduler whose workers run the sweeps.")
    ] = "",
) -> None:
    """Execute a chapter with papermill.

    The result takes its name only once every cell has run. A run that was interrupted goes on where it stopped
    when it is started again with the same parameters.
    """
    values = {"profile": profile, "device": device} | dict(_parse(pair) for pair in parameter or [])
    if record:
        values["record"] = True
    if scheduler:
        values["scheduler"] = scheduler
    parameters.check_call(name, values)  # before anything that takes seconds to import
    if values["device"] not in ("auto", "cpu"):
        from fedleak_book.experiments import Context

        Context(values["device"])  # refuses a device that is not there, as the chapter would after half a minute
    if values.get("scheduler"):
        from fedleak_book.experiments import cluster

        cluster.reach(values["scheduler"])  # before anything runs
    from fedleak_book.pages import notebooks

    typer.echo(f"wrote {notebooks.execute(name, values, out)}")


@app.command(epilog="Examples:\n\n- `fedleak book`\n\n- `fedleak book --force`")
def book(
    profile: _ProfileOption = "quick",
    device: _DeviceOption = "auto",
    force: Annotated[bool, typer.Option("--force", help="Execute every chapter, up to date or not.")] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Chapters to execute at once. [default: one per core; 1 on a GPU]")
    ] = None,
) -> None:
    """Execute the chapters that are out of date and build the book, warnings being errors."""
    from fedleak_book.pages import notebooks

    front = notebooks.build_book({"profile": profile, "device": device}, force, jobs)
    typer.echo(f"\nThe book is ready. Open {front.as_uri()}")


@app.command(
    epilog="Examples:\n\n- `fedleak grade submissions --out grades.csv`\n\n"
    "- `fedleak grade submissions --jobs 4 --resume --feedback feedback`"
)
def grade(
    folder: Annotated[
        Path, typer.Argument(help="STUDENT/ASSIGNMENT.py or .ipynb, or STUDENT.py for a single assignment.")
    ],
    out: Annotated[Path, typer.Option(help="CSV file with a row per student and assignment.")] = Path("grades.csv"),
    assignment: Annotated[
        list[str] | None, typer.Option(help="Assignment to grade (repeatable). [default: all]")
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Time limit per submission, in seconds.")] = 120.0,
    seed: Annotated[int | None, typer.Option(help="Seed of the checks' random inputs. [default: a secret one]")] = None,
    feedback: Annotated[
        Path | None, typer.Option(help="Folder for the feedback, one text file per submission.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of submissions to grade in parallel.")] = 1,
    resume: Annotated[bool, typer.Option(help="Keep the rows of the CSV file whose submission is unchanged.")] = False,
) -> None:
    """Grade a folder of coursework, every submission in a process of its own with a time limit."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {str(folder)!r}")  # before anything that takes seconds to import
    for name in assignment or ():
        named(name)
    from fedleak_book.coursework import grading, sandbox

    seed = secrets.randbits(32) if seed is None else seed
    settings = grading.Settings(timeout, seed)
    rows = grading.grade(folder, out, settings, assignment or (), feedback, jobs, resume)
    way = sandbox.isolation()
    typer.echo(f"seed {seed}; submissions run with: {way.says or 'YOUR RIGHTS (see book/coursework/teachers.md)'}")
    for reason in way.stronger:
        typer.secho(f"weaker isolation than Linux offers. {reason}", err=True, fg=typer.colors.YELLOW)
    for row in rows:
        typer.echo("{student:20s} {assignment:9s} {points:3d} of {max} {seconds:6.1f} s  {error}".format(**row)[:160])
    typer.echo(f"wrote {out}")


def _parse(pair: str) -> tuple[str, Any]:
    """Split NAME=VALUE and read the value as papermill's `-p` does."""
    name, separator, text = pair.partition("=")
    if not separator:
        raise ValueError(f"-p takes a name and a value, as in `-p trials 100`; got only {name!r}")
    readers: list[Callable[[str], Any]] = [int, float, {"True": True, "False": False, "None": None}.__getitem__]
    for read in readers:
        with suppress(ValueError, KeyError):
            return name, read(text)
    return name, text


app.command(epilog="Example:\n\n- `fedleak record rlu table2 table4`")(experiments.record)
app.command(epilog="Examples:\n\n- `fedleak recheck`\n\n- `fedleak recheck gdbr --seed 7 --budget 600`")(
    experiments.recheck
)
app.command()(experiments.claims)
app.command("scoreboard")(experiments.scoreboard_command)
app.add_typer(coursework.app, name="coursework")
