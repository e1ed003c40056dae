"""`fedleak enter`: one attack on the arena's frozen updates, and its row."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

EPILOG = (
    "The attack gets one client's update, the model, labelled auxiliary data and a seed, whatever it takes of these, "
    "never the labels; it runs in this process, so this is a convention and no sandbox.\n\n"
    "Examples:\n\n- `fedleak enter tests/examples/attack.py`\n\n"
    "- `fedleak enter my_attack.py --out data/entries/mine.json`\n\n- `fedleak enter RLU --out data/entries/rlu.json`"
)


def command(
    attack: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Python file that registers one label attack with @attack, or name of an attack of the package.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="JSON file for the row.")] = Path("row.json"),
) -> None:
    """Run one label attack on the arena's frozen networks and updates, score it, and write its row.

    Networks are trained once and kept. No other attack runs: what they answered is in data/entries/. An update on which
    the attack fails counts as refused, with the reason. A run that is stopped goes on where it was when it is started
    again, as long as FILE and the package are the same.
    """
    import torch

    from fedleak.files import reserve, write_text
    from fedleak_book.experiments import entering

    reserve(out).unlink()  # what cannot be written is said before the work
    torch.set_num_threads(1)  # so that seconds compare
    try:
        row = entering.enter(attack)
    except KeyboardInterrupt:
        typer.secho("fedleak: stopped; what is finished is kept, and the same command goes on", err=True)
        raise typer.Exit(130) from None
    except SystemExit as error:
        raise ValueError(f"{attack} ended the process ({error}): let it raise an error instead") from error
    write_text(out, json.dumps(row, indent=1, ensure_ascii=False) + "\n")
    typer.echo(f"{'cell':32s} {'iAcc [95 % interval]':22s} lead over the package's best, picked on other updates")
    for cell, score in row["cells"].items():
        lead_text = f"{_number(score, 'lead', '+.3f')} beside {score['best']}" if "best" in score else ""
        typer.echo(f"{cell:32s} {_number(score, 'iacc', '.3f'):22s} {lead_text}")
        for why, updates in score["refused"].items():
            typer.echo(f"    refused {updates} of {len(score['answers'])}: {why}")
    typer.echo("mean of the cells, of those that refuse nothing:")
    for mean, name in entering.ranked([*entering.entries(), row]):
        typer.echo(f"{mean:.3f} {name}{' (this one)' * (name == row['attack'])}")
    typer.echo(f"wrote {out}; CONTRIBUTING.md says how it is listed")


def _number(cell: dict[str, Any], name: str, form: str) -> str:
    value, low, high = (cell[key] for key in (name, f"{name} low", f"{name} high"))
    if value is None:
        return "–"
    return f"{value:{form}}" if low is None else f"{value:{form}} [{low:{form}}, {high:{form}}]"
