"""The numbers of the cheat sheet: the best attack by the attacker's knowledge, from the arena's and AGIC's records."""

from typing import Any

import pandas as pd
from render import plain

from fedleak_book.evidence.results import Results
from notebooks.agic.figures import grey
from notebooks.arena.balance import score_waiting
from notebooks.arena.ranking import find_best, load_rows, load_rungs, rescore, score_baseline
from notebooks.show import ATTACKS, prose
from notebooks.updates import STATES

NAMES = {**ATTACKS, "learned": "learned attacker", "GDBR, whitened": "GDBR-W"}
CHAPTERS = {
    "LLG": "/notebooks/llg",
    "RLU": "/notebooks/rlu",
    "GDBR": "/notebooks/gdbr",
    "LIA-SA": "/notebooks/lia_sa",
    "learned": "/notebooks/learned",
}
"""The page of an attack, by the beginning of its name; `book/threat_models.md` is the page of the others."""


def attack_at(row: pd.Series) -> str:
    """Return the name of the best attack of a cell, linked to its page, and its label accuracy."""
    page = next((page for name, page in CHAPTERS.items() if row["attack"].startswith(name)), "/book/threat_models")
    return prose(f"{{doc}}`{plain(NAMES.get(row['attack'], row['attack']))} <{page}>`, {row['iacc']:.0%}")


def fragments() -> dict[str, dict[str, Any]]:
    """Return what the tables of `book/cheat_sheet.md` name: the best attack by rung and state, baselines, images."""
    run, agic = Results("arena", device="cpu"), Results("agic", device="cpu")
    best = rescore(run, find_best(load_rungs(run), ["state", "rung"])).set_index(["rung", "state"])
    waited = score_waiting(run)
    rounds = waited.index.levels[1].max()
    guess = score_baseline(load_rows(run, "ladder", rung="class shares"), ["state"])
    cells: dict[str, Any] = best.apply(attack_at, axis=1).unstack().to_dict("index")
    cells["guess"] = {state: prose(f"{guess[state]:.0%}") for state in STATES}
    cells["waiting"] = {state: prose(f"{waited[state, rounds]:.0%}") for state in STATES} | {"rounds": int(rounds)}
    decibels = {
        "grey": grey(agic.best_rows("table4").query("final and batch_size == 1")),
        "steps": agic.cell("table2", method="AGIC", iteration=2000),
        "alone": agic["fig6-identical-mean"],
    }
    return {"best": cells, "decibels": {name: f"{value:.1f}" for name, value in decibels.items()}}
