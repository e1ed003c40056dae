"""The arena: notes of the evidence page; every measured number comes from the rows."""

from fedleak import models
from notebooks.show import markdown
from notebooks.arena.updates import FLOORS, KNOWS
from notebooks.arena.figures import add_labels
from notebooks.arena.ranking import NETWORK_CELL, READERS
from notebooks.arena.ranking import keep_complete
from notebooks.arena.ranking import load_networks
from notebooks.arena.ranking import score_baseline, score_best
from notebooks.arena.ranking import tabulate_means
from notebooks.arena.notes_parts import parts, numbers
from notebooks.arena.notes_networks import (
    deep_learned,
    splitting,
    fresh,
    others,
    ten,
    conditions,
)
from notebooks.arena.notes_inputs import soft, split_rows, inputs, modes
from notebooks.arena.notes_defences import (
    balance,
    wait,
    noise,
    knowledge,
    refused,
    of_others,
    expected,
)
from notebooks.arena.updates import KINDS

__all__ = ["of_others", "split_rows", "ten"]


def board(run):
    """Every attack on every network"""
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
    return parts(
        f"""
        Mean iAcc over the batch sizes and networks. –: the attack rejected, or was not given, some of these updates. Cells: batch sizes
        and networks for which it answered every update. Test accuracy of the trained networks: {", ".join(f"{v:.0%} ({models.title(n)})" for n, v in right.items())}. LeNet is trained on MNIST, the deep networks on the 8,380 images of CIFAR-10 that the recorded run had.
        """,
        markdown(numbers(wide)),
        f"""
        **Effect of training.** The best attack's lead over the class-prior baseline on trained networks, as a share of that on untrained ones, by network,
        over the batch sizes: {share}. Shares above 100 % occur since the untrained networks were attacked on other updates.

        **Effect of auxiliary images.** LLG uses only signs and sizes of the gradients. On trained deep networks, with 1,000 images known, it is {far.min():.2f} to {far.max():.2f} behind
        the best attack, in the cells that SPEAR (reimplemented) does not win. On the trained LeNet, with 500 images, it is at most
        {behind["lenet"].max():.2f} behind. (The best attack here is the one with the highest mean. Whether the images, the network or
        the data make the difference was not tested.) ZLG estimates the network's outputs from random images, ZLG+ from real ones. On deep networks
        ZLG is at most {over:.2f} above the class-prior baseline. Why is open.

        **Time of one recovery** on one core, LeNet at B = {size}. It includes all passes over dummy and auxiliary images and, for the learned
        attacker, its training, which the updates of a network share: {", ".join(f"{name} {seconds:.2g} s" for name, seconds in time.items())}.
        The recording machine was shared.
        """,
    )


NOTES = {
    "arena-expected": expected,
    "fig-arena-winners": board,
    "arena-deep-learned": deep_learned,
    "arena-splitting": splitting,
    "arena-anew": fresh,
    "arena-registered": others,
    "fig-arena-conditions": conditions,
    "arena-softened": soft,
    "fig-arena-inputs": inputs,
    "arena-modes": modes,
    "fig-arena-balance": balance,
    "arena-waiting": wait,
    "arena-noise": noise,
    "fig-arena-ladder": knowledge,
    "arena-refused": refused,
}
