"""The arena: notes of the evidence page; every measured number comes from the rows."""

from fedleak import models
from notebooks.arena.updates import FLOORS, KNOWS
from notebooks.arena.figures import add_labels
from notebooks.arena.ranking import NETWORK_CELL, READERS
from notebooks.arena.ranking import keep_complete
from notebooks.arena.ranking import load_networks
from notebooks.arena.ranking import score_baseline, score_best
from notebooks.arena.ranking import tabulate_means
from notebooks.arena.notes_parts import numbers
from notebooks.arena.notes_networks import ten
from notebooks.arena.notes_inputs import split_rows
from notebooks.arena.notes_defences import of_others
from notebooks.arena.updates import KINDS

__all__ = ["of_others", "split_rows", "ten"]


def fig_arena_winners(run):
    rows = load_networks(run)
    wide = tabulate_means(add_labels(rows), "row", "column")
    best, prior = (
        score_best(rows, NETWORK_CELL, [*READERS, KNOWS]),
        score_baseline(rows, NETWORK_CELL),
    )
    lead = (best - prior).unstack("state")
    remaining = (
        (100 * lead["trained"] / lead["untrained"]).groupby("net").agg(["min", "max"])
    )
    share = "; ".join(
        f"{models.title(net)} {low:.0f} to {high:.0f} %"
        for net, low, high in remaining.itertuples()
    )
    mean = (
        keep_complete(rows, NETWORK_CELL)
        .groupby([*NETWORK_CELL, "attack"])["iacc"]
        .mean()
        .unstack()
        .round(9)
    )
    trained = mean.xs("trained", level="state")
    behind = trained.max(axis=1) - trained["LLG"]
    far = behind.drop("lenet")[trained.drop("lenet").idxmax(axis=1) != "after SPEAR"]
    over = (mean["ZLG"] - mean["prior guess"]).drop("lenet", level="net").max()
    trained = run.best("test_accuracy")
    right = trained[~trained["data"].isin(list(KINDS))]
    right = right.groupby("network", sort=False)["accuracy"].mean()
    answered_rows = rows[
        rows["iacc"].notna() & ~rows["attack"].isin(FLOORS) & (rows["net"] == "lenet")
    ]
    size = sorted(answered_rows["batch_size"].unique())[-2]
    time = (
        answered_rows[answered_rows["batch_size"] == size]
        .groupby("attack")["seconds"]
        .mean()
        .sort_values()
    )
    accuracies = ", ".join((f"{v:.0%} ({models.title(n)})" for n, v in right.items()))
    wide_text = numbers(wide)
    times = ", ".join((f"{name} {seconds:.2g} s" for name, seconds in time.items()))
    return locals()
