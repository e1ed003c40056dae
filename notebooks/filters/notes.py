"""The page on NVFlare: label accuracy under its privacy filters, and their cost, from the arena's rows."""

import pandas as pd

from fedleak_book.experiments import records
from fedleak_book.experiments.kinds import rate
from fedleak_book.evidence.results import Recorded
from notebooks.arena.updates import FLOORS
from notebooks.arena.ranking import DEFENCE_CELL, find_best, find_networks
from notebooks.arena.ranking import select_trainings
from notebooks.filters.experiments import STRENGTHS
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
    cost, rows, by = costs.set_index(DEFENCE_CELL), [], [*DEFENCE_CELL, "state"]
    named_best = best(read, by).set_index(by)
    for (defence, strength), at_strength in read.groupby(DEFENCE_CELL, sort=False):
        named = (
            f"{defence}, {WORDS[defence]} {strength:g}" if defence in WORDS else defence
        )
        row = {"Filter": named, "Accuracy after training": "–"}
        for state, in_state in at_strength.groupby("state", sort=False):
            first = named_best.loc[(defence, strength, state)]
            row[f"Labels, {state} network"] = (
                f"{with_interval(*first[INTERVAL])} ({first['attack']})"
            )
            row[f"baseline, {state}"] = f"{100 * baseline_accuracy(in_state):.0f}"
        if (defence, strength) in cost.index:
            row["Accuracy after training"] = with_interval(
                *cost.loc[(defence, strength)][
                    ["accuracy", "accuracy low", "accuracy high"]
                ]
            )
        rows.append(row)
    return table(pd.DataFrame(rows))


def fragments() -> dict[str, str]:
    """Return the table."""
    run = Recorded("arena", device="cpu")
    costs = accuracies(run.best_rows("federations"))
    return {"filters": filters(run.best_rows("filters"), costs)}
