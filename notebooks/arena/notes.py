"""The arena: variables of the notes in ``notes.md``, by the note's anchor, and sentences that the notebooks share."""

import pandas as pd

from fedleak import models
from fedleak_book.evidence import cells, predictions
from fedleak_book.evidence.results import Number
from notebooks.arena import ranking as r
from notebooks.arena.balance import average_waiting, compare_noise, load_balance
from notebooks.arena.balance import score_waiting, select_trainings
from notebooks.arena.claims_cells import MIXED, SMOOTHED
from notebooks.arena.figures import add_labels
from notebooks.arena.ranking import DATA_CELL, KNOWS, NETWORK_CELL, READERS, WHOLE_HEAD
from notebooks.arena.updates import FLOORS, KINDS
from notebooks.notes import lines
from notebooks.show import enumerated


def add_prior(best, rows, by):
    """Add the class-prior baseline's iAcc to the rows of `find_best`."""
    prior = r.score_baseline(rows, by)
    return best.assign(prior=prior.reindex(best.set_index(by).index).to_numpy())


def average(rows, *by):
    """Return the mean iAcc by some columns."""
    return rows.groupby([*by])["iacc"].mean()


# --- networks ---
def fig_arena_winners(run):
    rows = r.load_networks(run)
    best = r.score_best(rows, NETWORK_CELL, [*READERS, KNOWS])
    lead = (best - r.score_baseline(rows, NETWORK_CELL)).unstack("state")
    share = (100 * lead["trained"] / lead["untrained"]).groupby("net")
    mean = average(r.keep_complete(rows, NETWORK_CELL), *NETWORK_CELL, "attack")
    mean = mean.unstack().round(9)
    trained = mean.xs("trained", level="state")
    behind, first = trained.max(axis=1) - trained["LLG"], trained.idxmax(axis=1)
    deep = [net for net in dict.fromkeys(rows["net"]) if net != "lenet"]
    lenets = rows[(rows["net"] == "lenet") & ~rows["attack"].isin(FLOORS)]
    size = sorted(lenets.dropna(subset="iacc")["batch_size"].unique())[-2]
    seconds = lenets.dropna(subset="iacc").query("batch_size == @size")
    accuracies = run.best("test_accuracy").rename(columns={"network": "net"})
    accuracies = accuracies[~accuracies["data"].isin(list(KINDS))]
    return {
        "wide": r.tabulate_means(add_labels(rows), "row", "column"),
        "accuracies": accuracies.groupby("net", sort=False, as_index=False)[
            "accuracy"
        ].mean(),
        "shares": share.agg(["min", "max"]).reset_index(),
        "far": behind[deep][first[deep] != "after SPEAR"],
        "behind": behind["lenet"].max(),
        "over": (mean["ZLG"] - mean["prior guess"])[deep].max(),
        "size": size,
        "times": seconds.groupby("attack", as_index=False)["seconds"]
        .mean()
        .sort_values("seconds"),
    }


def arena_deep_learned(run):
    deep, informed = r.compare_deep(run), r.compare_deep(run, KNOWS)
    gain = (deep[KNOWS] - deep["learned"]).groupby(deep["net"]).mean()
    published = deep["learned"] - deep["lead"]
    deep = deep.rename(columns={KNOWS: "told", WHOLE_HEAD: "whole"})
    return {
        "lenet": r.compare_lenets(run),
        "deep": deep.assign(published=published).join(
            r.rename_lead(informed, "lead told")
        ),
        "missed": deep[deep["lead"] < 0.05],
        "gain": gain,
    }


def arena_splitting(run):
    rows = r.load_networks(run, net="lenet", batch_size=8)
    wide = rows.set_index(["state", "trial", "attack"])["iacc"].unstack()
    read, trained = wide["after SPEAR"].dropna(), wide.loc["trained"]
    assert (read == 1).all(), "what it reads is right"
    return {
        "count": read.groupby("state").size(),
        "asked": wide.groupby("state").size(),
        "combined": trained["after SPEAR"].fillna(trained["learned"]).mean(),
        "trained": trained,
    }


def arena_anew(run):
    is_recorded = run.recorded("anew") is not None
    return {"fresh": r.compare_fresh(run), "recorded": is_recorded}


def fig_arena_conditions(run):
    by, rows = ["state", "composition"], r.load_rows(run, "compositions")
    best = add_prior(r.find_best(rows, by, READERS), rows, by)
    even = rows.query("state == 'trained' and composition == 'balanced'")
    return {
        "best": best.assign(over=best["iacc"] - best["prior"]),
        "even": average(even, "attack"),
    }


# --- tables of other papers ---
def arena_registered(run):
    def table(experiment, *values):
        keys = run.recorded(experiment).cells_by
        shown = {name: f"{{{name}}}" for name in keys}
        return lines(
            run.best(experiment),
            shown | {v: f"{{{v}:.3f ci}}" for v in values} | {"n": "{n}"},
        )

    lnacc = run.best_rows("depth").query("attack == 'iLRG'").groupby("hidden")["lnacc"]
    items = run.published.items
    printed = [items[f"arena-R{n + 1}"].printed for n in lnacc.groups]
    assert (lnacc.min() <= printed).all()
    assert (lnacc.max() >= printed).all()
    outcomes = predictions.table(run, *predictions.ids(run, "R"))
    return {
        "cells": table,
        "rounds": run.recorded("rounds").fixed,
        "outcomes": outcomes,
    }


def arena_expected(run):
    return {"outcomes": predictions.table(run, *predictions.ids(run), anchors=True)}


# --- labels, inputs, modes ---
def arena_softened(run):
    rows, by = (
        r.load_rows(run, "client_steps", net="lenet"),
        ["labelling", "state", "batch_size"],
    )
    uninformed = rows[~rows["attack"].str.endswith(", told")]
    hard, sizes = "one-hot", sorted(rows["batch_size"].unique())
    trained = r.keep_complete(rows, by).query("state == 'trained'")
    mean = average(trained, "attack", "labelling", "batch_size")
    informed = []
    for name in ("RLU", WHOLE_HEAD):
        gains = []
        for size in sizes:
            cell = trained[trained["batch_size"] == size]
            wide = cell.pivot(
                index="trial", columns=["attack", "labelling"], values="iacc"
            )
            gap = wide[f"{name}, told", SMOOTHED] - wide[name, hard]
            gap = cells.mean_of(gap.groupby(r.network_by_trial(cell)).mean())
            after = mean[f"{name}, told", SMOOTHED, size], mean[name, hard, size]
            gains.append(
                "{:.2f} after {:.2f}".format(*after)
                + f" at {size} (gain {gap:+.2f ci})"
            )
        informed.append(f"{name} {' and '.join(gains)}")
    mixup = (
        f"{name} finds {enumerated(mean[name, MIXED])} of mixed labels, after {enumerated(mean[name, hard])}"
        for name in ("LLG", "RLU", WHOLE_HEAD, "learned")
    )
    split = rows.query("attack == 'after SPEAR' and batch_size == 8")
    return {
        "best": add_prior(r.find_best(uninformed, by, READERS), rows, by),
        "informed": informed,
        "small": sizes[0],
        "large": sizes[-1],
        "mixup": mixup,
        "split": split.groupby(["state", "labelling"])["iacc"].count(),
        "hard": hard,
    }


def split_rows(run):
    """How many batches of eight rows or texts "after SPEAR" splits: answered, all, and the least iAcc, by network and data."""
    split = r.load_rows(run, "inputs", attack="after SPEAR", batch_size=8)
    return split.groupby(["state", "data"])["iacc"].agg(["count", "size", "min"])


def fig_arena_inputs(run):
    rows = r.load_kinds(run)
    best = add_prior(r.find_best(rows, DATA_CELL, READERS), rows, DATA_CELL)
    order = ["MNIST", *KINDS]
    best = best.sort_values(
        "data", key=lambda data: data.map(order.index), kind="stable"
    )
    out = r.load_rows(run, "inputs").query("iacc.isna()")
    why = out["reason"].str.replace(r"\d+ (samples|steps)", r"K \1", regex=True)
    out = out.assign(why=why.str.replace(r"got \d+ ", "got r ", regex=True))
    right = run.cells("test_accuracy", data=list(KINDS)).groupby("data", sort=False)
    traces = run.best("traces").rename(
        columns={"idle": "units at 0", "batch_size": "B"}
    )
    return {
        "split": split_rows(run).loc["trained"].reset_index(),
        "best": best,
        "rejecting": count_rejecting(out, data="data"),
        "right": right["accuracy"].agg(["min", "max"]).reset_index(),
        "traces": traces[["data", "state", "B", "units at 0", "named", "wrong", "n"]],
    }


def count_rejecting(rows, **shown):
    """Return, by attack and reason, the values of a column, and the number of rejected updates."""
    names = {
        name: (column, lambda values: ", ".join(dict.fromkeys(values)))
        for name, column in shown.items()
    }
    by_reason = rows.groupby(["attack", "why"], sort=False)
    return by_reason.agg(**names, updates=("trial", "size")).reset_index()


def arena_modes(run):
    rows = r.load_rows(run, "client_steps").query("net != 'lenet'")
    return {"best": r.find_best(rows, ["net", "state", "client", "attacker"], READERS)}


# --- defences, waiting, knowledge ---
def describe_trade(row):
    """Return the name, benefit and cost of a defence in words, from a row of `load_balance`."""
    name = row["defence"] + (f", {row['who']} server" if row["who"] else "")
    reduction, lost = "–", "–"
    if row["defence"] != "none":
        reduction = f"{Number.of(row, 'taken'):+.2f ci}"
        lost = "0 by construction" if row["cost"] == 0 else "–"
        if row["cost"] and row["cost"] == row["cost"]:
            lost = f"{Number.of(row, 'cost'):+.2f ci}"
    return {"name": name, "reduction": reduction, "lost": lost}


def fig_arena_balance(run):
    trades = load_balance(run).to_dict("records")
    bare = select_trainings(run.best_rows("federations"))
    rlu = {"defence": "noise", "state": "untrained", "attack": "RLU"}
    return {
        "trades": [row | describe_trade(row) for row in trades],
        "informed": r.compare_informed(run),
        "rlu": average(r.load_rows(run, "defences", **rlu), "strength").reset_index(),
        "bare": bare.query("defence == 'none'")["accuracy"],
    }


def arena_waiting(run):
    best = score_waiting(run)
    first, *_, last = best.index.levels[1]
    return {"mean": average_waiting(run), "best": best, "first": first, "last": last}


def arena_noise(run):
    return {"noise": compare_noise(run)}


def fig_arena_ladder(run):
    rows = r.load_rows(run, "ladder", state="trained", rung="+ many images a class")
    ((_, wide, cell),) = r.split_cells(rows, ["rung"])
    gap = (wide["learned"] - wide["LLG"]).groupby(r.network_by_trial(cell)).mean()
    return {"lead": cells.mean_of(gap)}


def arena_refused(run):
    others = (r.load_rows(run, name) for name in ("schemes", "defences"))
    rows = pd.concat([r.load_networks(run), *others]).query("iacc.isna()")
    why = rows["reason"].str.replace(r"\d+ samples", "K samples", regex=True)
    rows = rows.assign(network=rows["net"].map(models.title), why=why.str.slice(0, 110))
    return {"rejecting": count_rejecting(rows, networks="network")}
