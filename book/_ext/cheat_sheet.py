"""Write the cheat sheet: the best attack by the attacker's knowledge, from the records of the arena and of AGIC."""

import pandas as pd
from render import plain

from fedleak_book.evidence.results import Results
from notebooks.agic.figures import grey
from notebooks.arena.balance import score_waiting
from notebooks.arena.ranking import find_best, load_rows, load_rungs, rescore, score_baseline
from notebooks.show import ATTACKS, markdown, prose
from notebooks.updates import STATES

NAMES = {**ATTACKS, "learned": "learned attacker", "GDBR, whitened": "GDBR-W"}
KNOWLEDGE = {
    "gradients": "one client's gradient",
    "+ model": "also the model",
    "+ many images a class": "also labelled images of every class",
    "last layer withheld": "the same, but no gradient of the last layer",
    "only the sum, passive": "only the sum of five clients",
    "only the sum, malicious": "only the sum, but chooses each client's model",
}
"""What the attacker has, by rung of the arena's ladder."""
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
    return f"{{doc}}`{plain(NAMES.get(row['attack'], row['attack']))} <{page}>`, {row['iacc']:.0%}"


def labels() -> str:
    """Return the table of label attacks: a row per state of knowledge, a column for untrained and trained networks."""
    run = Results("arena", device="cpu")
    best = rescore(run, find_best(load_rungs(run), ["state", "rung"])).set_index(["rung", "state"])
    guess = score_baseline(load_rows(run, "ladder", rung="class shares"), ["state"])
    waited = score_waiting(run)
    rounds = waited.index.levels[1].max()
    lines = [("nothing but the class shares", [f"class-prior baseline, {guess[state]:.0%}" for state in STATES])]
    for rung, words in KNOWLEDGE.items():
        lines.append((words, [attack_at(best.loc[rung, state]) for state in STATES]))
    late = [f"{{ref}}`PROLIN (reimplemented) <arena-waiting>`, {waited[state, rounds]:.0%}" for state in STATES]
    lines.append((f"the sums of {rounds} rounds of clients whose labels stay the same", late))
    columns = ["The attacker has", *(f"Attack, {state} network" for state in STATES)]
    return markdown(pd.DataFrame([[words, *cells] for words, cells in lines], columns=columns), wide=False)


def images() -> str:
    """Return the table of attacks on images and texts: what the client shares, the attack, and how close it comes."""
    run = Results("agic", device="cpu")
    grey_images = grey(run.best_rows("table4").query("final and batch_size == 1"))
    steps = run.cell("table2", method="AGIC", iteration=2000)
    agic, alone = "{doc}`AGIC </notebooks/agic>`", run["fig6-identical-mean"]
    lines = [
        (
            "one gradient of one image, untrained ResNet20-4",
            agic,
            f"{alone:.1f} dB (flat grey: {grey_images:.1f} dB)",
        ),
        ("four local steps of one image each, same network", agic, f"{steps:.1f} dB, no more than flat grey"),
        (
            "a fully connected first layer's gradient",
            "{ref}`divide by the bias <beyond-first-layer>`",
            "exact in small batches",
        ),
        (
            "a transformer's gradient",
            "{ref}`DAGER <beyond-dager>`",
            "exact if tokens are fewer than an embedding's entries",
        ),
    ]
    return markdown(pd.DataFrame(lines, columns=["The client shares", "Attack", "Result"]), wide=False)


def fragments() -> dict[str, str]:
    """Return the tables of `book/cheat_sheet.md`."""
    return {"cheat_labels": prose(labels()), "cheat_images": images()}
