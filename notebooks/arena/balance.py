"""The arena: the benefit and cost of defences, and the sums of many rounds; rows to tables."""

from functools import cache

import numpy as np
import pandas as pd

from fedleak.federated.defences import protections
from fedleak_book.evidence import cells
from fedleak_book.evidence.estimates import matching_rows
from fedleak_book.experiments.kinds import NUMBER, rate
from fedleak_book.experiments.records import summarise
from notebooks.arena.ranking import DEFENCE_CELL, MALICIOUS_ATTACKS, as_columns
from notebooks.arena.ranking import find_best, load_rows, network_by_trial, rescore
from notebooks.arena.ranking import score_baseline, score_best
from notebooks.arena.updates import FLOORS

PATIENT = ["LLG", "LLG+", "RLU", "RLU, whole head"]
"""Attacks that read sums of many rounds."""
NOISE_ROUNDS = [20, 150]
"""Rounds of the trainings that compare noise, quick and on MNIST."""
FREE_DEFENCES = [
    name for name, kind in protections().items() if not kind.changes_training
]


def select_trainings(rows):
    """Keep, of rows of federated trainings, those under each defence, without the shorter ones that compare noise."""
    return rows[~rows["rounds"].isin(NOISE_ROUNDS)]


@cache
def load_balance(run):
    """Return, by state, defence and strength, the best attack, the model's accuracy, and both compared with no defence.

    Secure aggregation has a row per kind of server, ``who``.
    """
    attack, sums = load_rows(run, "defences"), load_rows(run, "aggregation")
    reading = {*attack["attack"], *sums["attack"]} - {*FLOORS}
    won = [find_best(attack, ["state", *DEFENCE_CELL], reading).assign(who="")]
    servers = {"passive": reading - MALICIOUS_ATTACKS, "malicious": MALICIOUS_ATTACKS}
    for who, only in servers.items():
        fields = {"defence": "secure aggregation", "strength": 0.0, "who": who}
        won.append(find_best(sums, ["state"], only).assign(**fields))
    learnt = select_trainings(run.best_rows("federations"))
    bare = learnt[learnt["defence"] == "none"]
    free = [
        bare.assign(defence=name) for name in (*FREE_DEFENCES, "secure aggregation")
    ]
    learnt = pd.concat([learnt, *free], ignore_index=True)
    # trials with and without a defence share initial weights and users: the cost is a paired difference
    lost = learnt["trial"].map(bare.set_index("trial")["accuracy"]) - learnt["accuracy"]
    kinds = {"accuracy": rate(1000), "cost": NUMBER}
    learnt = summarise(learnt.assign(cost=lost), DEFENCE_CELL, kinds)
    learnt.loc[learnt["cost"] == 0, ["cost low", "cost high"]] = np.nan
    learnt = learnt.rename(columns={"n": "trainings"})
    table = pd.concat(won).merge(learnt, on=DEFENCE_CELL, how="left")
    plain = table[table["defence"] == "none"].set_index("state")["each"]
    taken = []
    for row in table.to_dict("records"):
        networks = network_by_trial(row["cell"])
        gaps = pd.Series(plain[row["state"]] - row["each"], networks.index)
        taken.append(as_columns("taken", cells.mean_of(gaps, networks)))
    floor = score_baseline(attack[attack["defence"] == "none"], "state")
    return table.assign(floor=table["state"].map(floor)).join(pd.DataFrame(taken))


def score_under_defence(run, state, **settings):
    """Return the iAcc of the best attack, and of the prior guess, in one setting of the balance."""
    table = rescore(run, load_balance(run))
    row = matching_rows(table, {"state": state, **settings}).iloc[0]
    return row["iacc"], row["floor"]


def compare_noise(run):
    """Return, per way to train, the accuracy without noise and with it, from the same starts, and the cost of the noise."""
    way = ["data", "participants", "lr", "rounds"]
    trainings = run.best_rows("federations")
    trainings = trainings[trainings["rounds"].isin(NOISE_ROUNDS)]
    rows = []
    for keys, cell in trainings.groupby(way, sort=False):
        wide = cell.pivot(index="trial", columns="strength", values="accuracy")
        quiet, loud = wide
        cost = cells.mean_of(wide[quiet] - wide[loud])
        row = dict(zip(way, keys, strict=True)) | as_columns("cost", cost)
        row |= {"plain": wide[quiet].mean(), "lowest": wide[quiet].min()}
        row |= {"loud": wide[loud].mean(), "highest": wide[loud].max(), "n": cost.n}
        rows.append(row | {"noise": row["lr"] * loud / row["participants"] ** 0.5})
    return pd.DataFrame(rows)


# --- sums of many rounds ---
def average_waiting(run):
    """Return the mean iAcc over the clients, by state, rounds and attack, of a server that waits."""
    by = ["state", "rounds", "attack"]
    return load_rows(run, "waiting").groupby(by)["iacc"].mean()


def score_waiting(run):
    """Return the best attack's iAcc by state and rounds of a server that waits, on runs that it was not picked on."""
    return score_best(load_rows(run, "waiting"), ["state", "rounds"], PATIENT)
