"""The arena: who is best in a cell, by how much, and over how many networks; rows to tables."""

from functools import cache, partial

import numpy as np
import pandas as pd

from fedleak.attacks import registry
from fedleak_book.experiments import cells
from fedleak_book.experiments.claims import matching_rows
from fedleak_book.experiments.records import NOW
from fedleak_book.experiments.experiment import seeds_of
from fedleak_book.experiments.records import summarise
from fedleak.federated.defences import protections
from fedleak_book.experiments.kinds import NUMBER, interval, rate
from notebooks.arena import experiments as e
from notebooks.arena.experiments_updates import ALL, ENTRANTS, FISHERS, FLOORS, KNOWS
from notebooks.arena.experiments_updates import SETS, USUAL

WHOLE = "RLU, whole head"
OURS = ["learned", KNOWS, WHOLE, "GDBR, whitened", *FLOORS]
"""Attacks that no paper has published."""
REAL = [name for name, attack in ALL.items() if not attack.blind]
WITHOUT_AUX = [
    attack.name
    for attack in ENTRANTS
    if not attack.lacking(registry.WHITE_BOX) and "aux" not in attack.options
]
MALICIOUS = {attack.name for attack in FISHERS}
CELL = ["net", "state", "batch_size"]
KIND = ["data", "state", "batch_size", "scheme"]


def networks(rows):
    """The network of each row: an untrained one is its trial's own, the trained ones are a few, picked by the seed."""
    seeds = rows.get("seed")
    if seeds is None:  # recorded, from the seed 0
        seeds = np.array(seeds_of(0, rows["trial"].max() + 1))[rows["trial"]]
    copies = rows["data"].map(lambda data: SETS[data]["copies"])
    return np.where(rows["state"] == "untrained", rows["trial"], seeds % copies)


@cache
def rows_of(run, *experiments, now=False):
    """Trial rows with their networks: the recorded ones where there are any, or those of this run."""
    tables = [
        run.rows(x).assign(source=NOW) if now else run.best_rows(x) for x in experiments
    ]
    return pd.concat([t.assign(network=networks(t)) for t in tables], ignore_index=True)


def answered(table, by):
    """The rows of those attacks that answered every update of a cell: who refuses some of them is not ranked there."""
    given = table["iacc"].notna().groupby([table[c] for c in (*by, "attack")])
    return table[given.transform("all")]


def means(table, rows, columns):
    """Mean iAcc by attack and row, and over the rows, of who answered every update there; and the cells answered."""
    full = answered(table, [rows, columns]).groupby(["attack", rows, columns])
    scores = full["iacc"].mean().groupby(["attack", rows]).agg(["mean", "size"])
    asked = table.groupby(rows)[columns].nunique()
    complete = scores["mean"][scores["size"] == asked.reindex(scores.index, level=rows)]
    wide = complete.unstack(rows).reindex(table["attack"].unique())
    wide = wide.reindex(columns=table[rows].unique())
    wide["mean"] = wide.mean(axis=1, skipna=False)
    wide["cells"] = scores["size"].groupby("attack").sum()
    wide["cells"] = wide["cells"].fillna(0).astype(int)
    wide = wide.sort_values(["mean", "cells"], ascending=False)
    return wide.rename_axis(index="attack", columns=None).reset_index()


def by_network(values, cell):
    """Means of a cell's values, one an update, over the updates of each network: these are independent."""
    of = cell.groupby("trial")["network"].first().to_numpy()
    return pd.Series(np.asarray(values)).groupby(of).mean().to_numpy()


def ends(values, cell, kind=NUMBER):
    """The 95 % interval, over the networks, of values that there is one of an update."""
    return interval(by_network(values, cell), kind)


def wide_of(table, by):
    """By cell, a column an attack and a row an update, of the attacks that answered all of them; and the cell's rows."""
    for keys, cell in answered(table, by).groupby(by, sort=False):
        keys = keys if len(by) > 1 else keys[0]
        yield keys, cell.pivot(index="trial", columns="attack", values="iacc"), cell


def network_of(cell):
    """The network of each update of a cell, by its trial."""
    return cell.groupby("trial")["network"].first()


def numbers(name, number):
    """A number and the ends of its interval as columns of a row."""
    return {name: float(number), f"{name} low": number.low, f"{name} high": number.high}


def rivals_of(wide, *ours):
    """The attacks of a cell without these and the guesses."""
    return [name for name in wide if name not in (*ours, *FLOORS)]


def winners(table, by, only=None):
    """The best attack of every cell (`cells.best_of`), its interval, its lead over the next, and whether that is clear.

    Of equal attacks the one is taken that needs least; an attack that refused an update of a cell is out.
    """
    rows, need = [], {attack.name: len(attack.needs) for attack in ALL.values()}
    for keys, wide, cell in wide_of(table, by):
        keys = keys if len(by) > 1 else [keys]
        wide = wide[sorted(wide, key=lambda name: need.get(name, 9))]
        labels = cell.get("batch_size", pd.Series(USUAL["batch_size"])).min()
        best = cells.best_of(wide, network_of(cell), rate(labels), only)
        row = dict(zip(by, keys, strict=True))
        row |= {"attack": best.attack, "second": best.second, "cell": cell}
        row["each"] = best.scores.to_numpy()
        row |= numbers("iacc", best.score) | numbers("lead", best.lead)
        row |= {"clear": best.lead.low > 0, "networks": best.score.n, "n": len(wide)}
        rows.append(row)
    return pd.DataFrame(rows)


def over_floor(row, name="prior guess"):
    """The lead of a cell's best attack, a row of `winners`, over a floor on the same updates."""
    cell = row["cell"]
    floor = cell[cell["attack"] == name].set_index("trial")["iacc"].sort_index()
    return cells.mean_of(pd.Series(row["each"], floor.index) - floor, network_of(cell))


def best_of(table, by, only=None):
    """The iAcc of the best attack of every cell, with `by` as its index."""
    return winners(table, by, only).set_index(by)["iacc"]


def floor_of(table, by, name="prior guess"):
    """Mean iAcc of a floor in every cell."""
    return table[table["attack"] == name].groupby(by, sort=False)["iacc"].mean()


def every(run):
    """The boards of all networks."""
    return rows_of(run, e.NETWORKS).sort_values("batch_size", kind="stable")


def lenets(run):
    """The rows of LeNets, by state and batch size."""
    return rows_of(run, e.NETWORKS).query("net == 'lenet'")


def labellings(run):
    """The rows by labelling of the client's batch, in evaluation mode."""
    return rows_of(run, e.CLIENT_STEPS).query("net == 'lenet'")


def modes(run):
    """The rows by the modes in which client and attacker have the network."""
    return rows_of(run, e.CLIENT_STEPS).query("net != 'lenet'")


def trainings(rows):
    """The rows of trainings under every defence, without those that compare noise."""
    return rows[~rows["rounds"].isin(e.NOISE_ROUNDS)]


def leads(run):
    """The learned attacker on trained LeNets, by batch size: its lead over the best other attack, with its interval."""
    table = lenets(run).query("state == 'trained'")
    for size, wide, cell in wide_of(table, ["batch_size"]):
        rivals = rivals_of(wide, "learned")
        lead, other = cells.lead_of(wide, "learned", rivals, network_of(cell))
        row = {"batch_size": size, "other": other, "lead": float(lead)}
        yield row | {"low": lead.low, "high": lead.high}


def deep(run):
    """Trained deep networks, by network and batch size: our attackers, and the best published one with its name."""
    table = rows_of(run, e.NETWORKS).query("net != 'lenet' and state == 'trained'")
    for (net, size), wide, cell in wide_of(table, ["net", "batch_size"]):
        mean, rivals = wide.mean(), [name for name in wide if name not in OURS]
        best = cells.best_of(wide, network_of(cell), among=rivals)
        row = {"net": net, "batch_size": size, "which": best.attack}
        row |= {"published": float(best.score), "learned": mean["learned"]}
        row |= {"told": mean[KNOWS], "whole": mean[WHOLE]}
        for name, ours in (("lead", "learned"), ("lead told", KNOWS)):
            lead, _ = cells.lead_of(wide, ours, rivals, network_of(cell))
            row |= numbers(name, lead)
            # the previous rule picked the rival on the updates that it was scored on
            row[f"{name}, rival picked on them"] = mean[ours] - wide[best.attack].mean()
        yield row


def twelve(run):
    """Trained cells: the lead of the learned attacker, after SPEAR's splitting where that reads a batch, over the best
    other attack that answers every update.
    """
    table = rows_of(run, e.NETWORKS).query("state == 'trained'")
    split = table.query("attack == 'after SPEAR'")
    split = split.set_index(["net", "batch_size", "trial"])["iacc"].dropna()
    for (net, size), wide, cell in wide_of(table, ["net", "batch_size"]):
        ours = [
            split.get((net, size, trial), wide["learned"][trial])
            for trial in wide.index
        ]
        rivals = rivals_of(wide, "learned", KNOWS)
        lead, other = cells.lead_of(
            wide.assign(ours=ours), "ours", rivals, network_of(cell)
        )
        row = {"net": net, "batch_size": size, "other": other, "lead": float(lead)}
        yield row | {"low": lead.low, "high": lead.high}


def met_once(run):
    """Ten fresh networks of a kind, by batch size: the learned attacker's lead over the rival, and the rival's over the guess."""
    by = ["net", "batch_size"]
    rows = run.best_rows(e.ANEW)
    wide = rows.pivot(index=[*by, "trial"], columns="attack", values="iacc")
    for (net, size), cell in wide.groupby(by, sort=False):
        (rival,) = set(cell.dropna(axis=1)) - {"learned", "prior guess"}
        averages = cell[["learned", rival, "prior guess"]].mean()
        row = {"net": net, "B": size, "rival": rival, "learned": averages["learned"]}
        row |= {"the rival": averages[rival], "prior guess": averages["prior guess"]}
        row["n"] = len(cell)
        for name, gap in (
            ("lead", cell["learned"] - cell[rival]),
            ("over", cell[rival] - cell["prior guess"]),
        ):
            row[name], (row[f"{name} low"], row[f"{name} high"]) = (
                gap.mean(),
                interval(gap, NUMBER),
            )
        yield row


def adapting(run):
    """Per defence: the informed and the uninformed learned attacker, and the informed one against the best other."""
    table = rows_of(run, e.DEFENCES).query(
        "state == 'trained' and defence not in ('none', 'no last bias')"
    )
    for (defence, strength), wide, cell in wide_of(table, ["defence", "strength"]):
        if e.ADAPTIVE not in wide:
            continue
        informed, networks = wide[e.ADAPTIVE], network_of(cell)
        gain = cells.mean_of(informed - wide["learned"], networks)
        rivals = rivals_of(wide, e.ADAPTIVE)
        lead, other = cells.lead_of(wide, e.ADAPTIVE, rivals, networks)
        row = {"defence": defence, "strength": strength, "told": informed.mean()}
        row |= {"other": other, "untold": wide["learned"].mean()}
        row |= {"prior": wide["prior guess"].mean()}
        yield row | numbers("gain", gain) | numbers("lead", lead)


def of_images(run):
    """Texts and rows, with the images of LeNet on MNIST under the same conditions."""
    images = lenets(run).query("batch_size == [8, 32]")
    steps = rows_of(run, e.BY_SCHEME).query("scheme == 'FedAvg'")
    images, steps = images.assign(scheme="FedSGD"), steps.assign(batch_size=32)
    tables = images, steps, rows_of(run, e.INPUTS)
    return pd.concat(tables, ignore_index=True)


def beside_images(run, floor=None):
    """The best attack's iAcc, or a floor's, by state and data: batches of 32, one step."""
    table = of_images(run).query("batch_size == 32 and scheme == 'FedSGD'")
    score = best_of if floor is None else partial(floor_of, name=floor)
    return score(table, ["state", "data"])


def refusing(run, *data):
    """Attacks that answer every update of an untrained LeNet and none of these data's."""
    rows = of_images(run).query("batch_size == 32 and scheme == 'FedSGD'")
    given = rows[rows["state"] == "untrained"].groupby(["attack", "data"])["iacc"]
    share = given.count().unstack() / given.size().unstack()
    return share.index[(share["MNIST"] == 1) & (share[[*data]] == 0).all(axis=1)]


def learned_leads(run):
    """The learned attacker's leads over the best other that reads the update, by data: one a batch size."""
    table = rows_of(run, e.INPUTS).query("state == 'trained' and scheme == 'FedSGD'")
    gaps = {}
    for (data, _), wide, _ in wide_of(table, ["data", "batch_size"]):
        lead, _ = cells.lead_of(wide, "learned", rivals_of(wide, "learned"))
        gaps.setdefault(data, []).append(float(lead))
    return gaps


KEYS = ["defence", "strength"]
FREE = [name for name, kind in protections().items() if not e.costly(kind)]


def balance(attack, sums, learnt):
    """By state, defence and strength: the best attack, the model's accuracy, and both against no defence."""
    reading = {*attack["attack"], *sums["attack"]} - {*FLOORS}
    won = [winners(attack, ["state", *KEYS], reading).assign(who="")]
    for who, only in (("passive", reading - MALICIOUS), ("malicious", MALICIOUS)):
        fields = {"defence": "secure aggregation", "strength": 0.0, "who": who}
        won.append(winners(sums, ["state"], only).assign(**fields))
    bare = learnt[learnt["defence"] == "none"]
    same = [bare.assign(defence=name) for name in (*FREE, "secure aggregation")]
    learnt = pd.concat([learnt, *same], ignore_index=True)
    # the same initial weights and users, so that a cost is one of pairs
    lost = learnt["trial"].map(bare.set_index("trial")["accuracy"]) - learnt["accuracy"]
    kinds = {"accuracy": rate(1000), "cost": NUMBER}
    learnt = summarise(learnt.assign(cost=lost), KEYS, kinds)
    learnt.loc[learnt["cost"] == 0, ["cost low", "cost high"]] = np.nan
    learnt = learnt.rename(columns={"n": "trainings"})
    table = pd.concat(won).merge(learnt, on=KEYS, how="left")
    plain = table[table["defence"] == "none"].set_index("state")["each"]
    gaps = table["state"].map(plain) - table["each"]
    table["taken"] = [gap.mean() for gap in gaps]
    table[["taken low", "taken high"]] = [
        ends(*pair) for pair in zip(gaps, table["cell"])
    ]
    floor = floor_of(attack[attack["defence"] == "none"], "state")
    return table.assign(floor=table["state"].map(floor))


@cache
def trade(run):
    """The balance on the recorded rows; new defences on this run's own, against this run without a defence."""
    parts = e.DEFENCES, e.AGGREGATION
    learnt = trainings(run.best_rows(e.FEDERATIONS))
    table = balance(*(rows_of(run, x) for x in parts), learnt)
    if run.recorded_rows(e.DEFENCES) is None:
        return table
    names = {s["defence"] for s in e.DEFENCES.settings(run.profile)} - set(
        table["defence"]
    )
    if not names:
        return table
    learnt = trainings(run.rows(e.FEDERATIONS))
    now = balance(*(rows_of(run, x, now=True) for x in parts), learnt)
    now = now[now["defence"].isin(names)]
    return pd.concat([table, now.assign(defence=now["defence"] + " (this run)")])


def rungs(run):
    """The ladder's rows with those of the two servers behind secure aggregation."""
    sums = rows_of(run, e.AGGREGATION)
    who = np.where(sums["attack"].isin(MALICIOUS), "malicious", "passive")
    sums = sums.assign(rung=[f"only the sum, {server}" for server in who])
    return pd.concat([rows_of(run, e.LADDER), sums], ignore_index=True)


def waited(run):
    """iAcc over the clients by state, rounds and attack."""
    return rows_of(run, e.WAITING).groupby(["state", "rounds", "attack"])["iacc"].mean()


def patient(run):
    """The best attack's iAcc by state and rounds, on runs that it was not picked on."""
    return best_of(
        rows_of(run, e.WAITING),
        ["state", "rounds"],
        [name for name in e.PATIENT if name in REAL],
    )


def noisy(run):
    """Accuracy without noise and with it, from the same starts, and what the noise costs; one row a way to train."""
    way = ["data", "participants", "lr", "rounds"]
    rows = run.best_rows(e.FEDERATIONS).query("rounds in @e.NOISE_ROUNDS")
    wide = rows.pivot_table(
        index=[*way, "trial"], columns="strength", values="accuracy", sort=False
    )
    quiet, loud = sorted(wide)
    for keys, cell in wide.groupby(way, sort=False):
        cost = cell[quiet] - cell[loud]
        low, high = interval(cost, NUMBER)
        row = dict(zip(way, keys, strict=True)) | {
            "plain": cell[quiet],
            "loud": cell[loud],
        }
        row |= {"cost": cost.mean(), "low": low, "high": high, "n": len(cell)}
        yield row | {"noise": row["lr"] * loud / row["participants"] ** 0.5}


def added(run):
    """Attacks that are declared and in no recorded contest, if all of them are recorded; nothing runs for it."""
    recorded = [run.recorded_rows(x) for x in e.CONTESTS]
    if any(rows is None for rows in recorded):
        return set()
    declared = {s["attack"] for x in e.CONTESTS for s in x.settings(run.profile)}
    return declared - {attack for rows in recorded for attack in rows["attack"]}


def newcomers(run, experiment, new):
    """New attacks in this run, by state, in the cells that they answered: iAcc, the best of the others, the prior guess."""
    rows = rows_of(run, experiment, now=True)
    previous = set(rows["attack"]) - new
    cell = [c for c in experiment.axes if c not in ("attack", "trials")]
    full = answered(rows, cell)
    others = winners(full, cell, previous)[[*cell, "iacc"]].rename(
        columns={"iacc": "best"}
    )
    prior = floor_of(full, cell).rename("prior").reset_index()
    scores = (
        full[full["attack"].isin(new)]
        .groupby([*cell, "attack"], sort=False)["iacc"]
        .agg(["mean", "size"])
    )
    scores = scores.reset_index().merge(others, how="left").merge(prior, how="left")
    values = {"iacc": ("mean", "mean"), "n": ("size", "sum"), "cells": ("mean", "size")}
    values |= {"best": ("best", "mean"), "prior": ("prior", "mean")}
    scores = scores.groupby(["state", "attack"], sort=False).agg(**values).reset_index()
    asked = rows[cell].drop_duplicates()["state"].value_counts()
    cells = [
        f"{c} of {asked[s]}"
        for c, s in zip(scores["cells"], scores["state"], strict=True)
    ]
    return scores.assign(experiment=experiment.name, cells=cells)


def defended(run, state, **settings):
    """iAcc of the best attack under a defence, and of the prior guess."""
    row = matching_rows(trade(run), {"state": state, **settings}).iloc[0]
    return row["iacc"], row["floor"]
