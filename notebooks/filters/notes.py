"""The page on NVFlare: label accuracy under its privacy filters, and their cost, from the arena's rows."""

import pandas as pd

from fedleak_book.experiments import records
from fedleak_book.experiments.kinds import rate
from fedleak_book.evidence.results import Recorded
from notebooks.arena.updates import FLOORS
from notebooks.arena.balance import select_trainings
from notebooks.arena.ranking import DEFENCE_CELL, find_best, find_networks
from notebooks.filters.defences import STRENGTHS
from notebooks.show import table

WORDS = {"PercentilePrivacy": "percentile", "SVTPrivacy": "fraction"}
ACCURACY = {"accuracy": rate(1000)}
INTERVAL = ["iacc", "iacc low", "iacc high"]


def with_interval(mean: float, low: float, high: float) -> str:
    """Return a percentage with its interval."""
    return f"{100 * mean:.0f} [{100 * low:.0f}, {100 * high:.0f}]"


def best(read: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return the best attack of every cell, by the arena's rule, without the baselines."""
    attacks = set(read["attack"]) - {*FLOORS}
    return find_best(read.assign(network=find_networks(read)), by, attacks)


def baseline_accuracy(rows: pd.DataFrame) -> float:
    """Return the label accuracy of the best baseline."""
    return rows[rows["attack"].isin(FLOORS)].groupby("attack")["iacc"].mean().max()


def accuracies(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the test accuracy by filter, and without one after the same trainings, from the rows of federations."""
    rows = select_trainings(rows)
    filtered = rows["defence"].isin([*STRENGTHS])
    bare = (rows["defence"] == "none") & rows["trial"].isin(rows["trial"][filtered])
    return records.summarise(rows[filtered | bare], DEFENCE_CELL, ACCURACY)


def filters(read: pd.DataFrame, costs: pd.DataFrame) -> str:
    """Return one row per filter and strength: the best attack on untrained and trained networks, and the accuracy."""
    cost, rows = costs.set_index(DEFENCE_CELL), []
    winners = best(read, [*DEFENCE_CELL, "state"])
    for (name, strength), cells in winners.groupby(DEFENCE_CELL, sort=False):
        named = f"{name}, {WORDS[name]} {strength:g}" if name in WORDS else name
        row = {"Filter": named, "Accuracy after training": "–"}
        for _, cell in cells.iterrows():
            state, baseline = cell["state"], baseline_accuracy(cell["cell"])
            labels = with_interval(*cell[INTERVAL])
            row[f"Labels, {state} network"] = f"{labels} ({cell['attack']})"
            row[f"baseline, {state}"] = f"{100 * baseline:.0f}"
        if (name, strength) in cost.index:
            ends = cost.loc[
                (name, strength), ["accuracy", "accuracy low", "accuracy high"]
            ]
            row["Accuracy after training"] = with_interval(*ends)
        rows.append(row)
    return table(pd.DataFrame(rows))


def fragments() -> dict[str, str]:
    """Return the table."""
    run = Recorded("arena", device="cpu")
    costs = accuracies(run.best_rows("federations"))
    return {"filters": filters(run.best_rows("filters"), costs)}
