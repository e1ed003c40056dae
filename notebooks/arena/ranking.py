"""The arena: who is best in a cell, by how much, and over how many networks; rows to tables."""

from functools import cache, partial

import numpy as np
import pandas as pd

from fedleak.attacks import registry
from fedleak_book.evidence import cells
from fedleak_book.evidence.estimates import matching_rows
from fedleak_book.experiments.records import NOW
from fedleak_book.experiments.experiment import seeds_of
from fedleak_book.experiments.records import summarise
from fedleak.federated.defences import protections
from fedleak_book.experiments.kinds import NUMBER, interval, rate
from notebooks.arena.updates import ALL, ENTRANTS, FISHERS, FLOORS, KNOWS
from notebooks.arena.updates import SETS, USUAL
from notebooks.arena.updates import ADAPTIVE, NOISE_ROUNDS, PATIENT, costly

WHOLE_HEAD = "RLU, whole head"
UNPUBLISHED = ["learned", KNOWS, WHOLE_HEAD, "GDBR, whitened", *FLOORS]
"""Attacks that no paper has published."""
READERS = [name for name, attack in ALL.items() if not attack.blind]
WITHOUT_AUX = [
    attack.name
    for attack in ENTRANTS
    if not attack.lacking(registry.WHITE_BOX) and "aux" not in attack.options
]
MALICIOUS_ATTACKS = {attack.name for attack in FISHERS}
NETWORK_CELL = ["net", "state", "batch_size"]
DATA_CELL = ["data", "state", "batch_size", "scheme"]


def find_networks(rows):
    """Return each row's network as a number: the trial for untrained networks, the seed modulo their number for trained ones."""
    seeds = rows.get("seed")
    if seeds is None:  # recorded, from the seed 0
        seeds = np.array(seeds_of(0, rows["trial"].max() + 1))[rows["trial"]]
    copies = rows["data"].map(lambda data: SETS[data]["copies"])
    return np.where(rows["state"] == "untrained", rows["trial"], seeds % copies)


@cache
def load_rows(run, name):
    """Return the trial rows of a record with their networks."""
    rows = run.best_rows(name)
    return rows.assign(network=find_networks(rows))


def keep_complete(table, by):
    """Keep, in each cell of the columns `by`, the rows of the attacks that answered every update; the others are not ranked."""
    given = table["iacc"].notna().groupby([table[c] for c in (*by, "attack")])
    return table[given.transform("all")]


def tabulate_means(table, key, averaged):
    """Tabulate the mean iAcc: a row per attack, a column per value of `key`, averaged over the column `averaged`.

    Only attacks that answered every update of a cell count there; ``cells`` is the number of these cells.
    """
    full = keep_complete(table, [key, averaged]).groupby(["attack", key, averaged])
    scores = full["iacc"].mean().groupby(["attack", key]).agg(["mean", "size"])
    asked = table.groupby(key)[averaged].nunique()
    complete = scores["mean"][scores["size"] == asked.reindex(scores.index, level=key)]
    wide = complete.unstack(key).reindex(table["attack"].unique())
    wide = wide.reindex(columns=table[key].unique())
    wide["mean"] = wide.mean(axis=1, skipna=False)
    wide["cells"] = scores["size"].groupby("attack").sum()
    wide["cells"] = wide["cells"].fillna(0).astype(int)
    wide = wide.sort_values(["mean", "cells"], ascending=False)
    return wide.rename_axis(index="attack", columns=None).reset_index()


def average_by_network(values, cell):
    """Average a cell's values, one per update, over the updates of each network: these means are independent."""
    networks = network_by_trial(cell).to_numpy()
    return pd.Series(np.asarray(values)).groupby(networks).mean().to_numpy()


def compute_interval(values, cell, kind=NUMBER):
    """Return the 95 % interval, over the networks, of a cell's values, one per update."""
    return interval(average_by_network(values, cell), kind)


def split_cells(table, by):
    """Yield each cell of the columns `by`: its keys, its iAcc with a row per update and a column per attack, and its rows.

    Attacks that did not answer every update of the cell have no column.
    """
    for keys, cell in keep_complete(table, by).groupby(by, sort=False):
        keys = keys if len(by) > 1 else keys[0]
        yield keys, cell.pivot(index="trial", columns="attack", values="iacc"), cell


def network_by_trial(cell):
    """Return the network of each update of a cell, by trial."""
    return cell.groupby("trial")["network"].first()


def as_columns(name, number):
    """Return a number and the ends of its interval as columns of a row."""
    return {name: float(number), f"{name} low": number.low, f"{name} high": number.high}


def list_rivals(wide, *ours):
    """List the attacks of a cell's frame without some attacks (`ours`) and without the baselines."""
    return [name for name in wide if name not in (*ours, *FLOORS)]


def find_best(table, by, only=None):
    """Find the best attack of every cell (`cells.best_of`): its iAcc with interval, its lead over the next, and whether that is clear.

    `by` names the columns that make a cell, `only` the attacks to choose from (default: all, except the one that is
    given the client's training loss, which no adversary of the registry has). Ties go to the attack with the fewest
    needs; an attack that rejected an update of a cell is out.
    """
    rows, need = [], {attack.name: len(attack.needs) for attack in ALL.values()}
    for keys, wide, cell in split_cells(table, by):
        keys = keys if len(by) > 1 else [keys]
        names = [name for name in wide if name != KNOWS or name in (only or ())]
        wide = wide[sorted(names, key=lambda name: need.get(name, 9))]
        labels = cell.get("batch_size", pd.Series(USUAL["batch_size"])).min()
        best = cells.best_of(wide, network_by_trial(cell), rate(labels), only)
        row = dict(zip(by, keys, strict=True))
        row |= {"attack": best.attack, "second": best.second, "cell": cell}
        row["each"] = best.scores.to_numpy()
        row |= as_columns("iacc", best.score) | as_columns("lead", best.lead)
        row |= {"clear": best.lead.low > 0, "networks": best.score.n, "n": len(wide)}
        rows.append(row)
    return pd.DataFrame(rows)


RESCORED = {
    "net": "lenet",
    "batch_size": 32,
    "state": "trained",
    "rung": "+ many images a class",
}
RESCORED |= {name: USUAL[name] for name in ("composition", "scheme", "defence")}
RESCORED |= {"labelling": "one-hot"}
"""The setting of the record `anew`; a column that a table lacks has its usual value, and any network and batch size will do."""


def rescore(run, cells_of_best):
    """Replace, in rows of `find_best`, the score of an attack that ran on ten further networks (`anew`) by that one.

    The lead is replaced where the second attack ran there, too. So a setting has one number on all pages, that of the
    most networks, on which no attack was picked.
    """
    anew = run.best_rows("anew")
    if (anew["source"] == NOW).any():
        return cells_of_best
    scores = anew.set_index(["net", "batch_size", "attack", "trial"])[
        "iacc"
    ].sort_index()
    rows = cells_of_best.to_dict("records")
    for row in rows:
        rest = row["cell"].dropna(axis=1, how="all").iloc[0]
        at = {
            name: row.get(name, rest.get(name, usual))
            for name, usual in RESCORED.items()
        }
        place = at["net"], at["batch_size"]
        usual = all(
            at[name] == RESCORED[name]
            for name in RESCORED
            if name not in ("net", "batch_size")
        )
        if (
            not usual
            or row.get("who")
            or (*place, row["attack"]) not in scores.index.droplevel("trial")
        ):
            continue
        first = scores[(*place, row["attack"])]
        row |= as_columns("iacc", cells.mean_of(first)) | {"networks": len(first)}
        if (*place, row["second"]) in scores.index.droplevel("trial"):
            lead = cells.mean_of(first - scores[(*place, row["second"])])
            row |= as_columns("lead", lead) | {"clear": lead.low > 0}
    return pd.DataFrame(rows, index=cells_of_best.index)


def usual_first(run, experiment, axis):
    """Return the rows of an experiment that varies one axis; at the usual value those of `load_networks`' LeNets."""
    table, usual = load_rows(run, experiment), USUAL[axis]
    same = (
        load_lenets(run)
        .query("batch_size == @USUAL['batch_size']")
        .assign(**{axis: usual})
    )
    order = list(dict.fromkeys([*table[axis], usual]))
    table = pd.concat([table[table[axis] != usual], same], ignore_index=True)
    return table.sort_values(
        axis, key=lambda names: names.map(order.index), kind="stable"
    )


def measure_lead(row, name="prior guess"):
    """Return the lead of a cell's best attack, a row of `find_best`, over a baseline on the same updates."""
    cell = row["cell"]
    floor = cell[cell["attack"] == name].set_index("trial")["iacc"].sort_index()
    return cells.mean_of(
        pd.Series(row["each"], floor.index) - floor, network_by_trial(cell)
    )


def score_best(table, by, only=None):
    """Return the iAcc of the best attack of every cell, with the columns `by` as index; `only` as in `find_best`."""
    return find_best(table, by, only).set_index(by)["iacc"]


def score_baseline(table, by, name="prior guess"):
    """Return the mean iAcc of a baseline in every cell, with the columns `by` as index."""
    return table[table["attack"] == name].groupby(by, sort=False)["iacc"].mean()


def load_networks(run):
    """Return the rows of all networks, by batch size."""
    return load_rows(run, "networks").sort_values("batch_size", kind="stable")


def load_lenets(run):
    """Return the rows of LeNets, at every state and batch size."""
    return load_rows(run, "networks").query("net == 'lenet'")


def load_labellings(run):
    """Return LeNet's rows of the experiment on clients' labelling (hard or soft labels), all in evaluation mode."""
    return load_rows(run, "client_steps").query("net == 'lenet'")


def load_modes(run):
    """Return the rows by the modes, training or evaluation, in which client and attacker have the network."""
    return load_rows(run, "client_steps").query("net != 'lenet'")


def select_trainings(rows):
    """Keep, of rows of federated trainings, those under each defence, without the shorter ones that compare noise."""
    return rows[~rows["rounds"].isin(NOISE_ROUNDS)]


def compare_lenets(run):
    """Yield, per batch size, the learned attacker's lead over the best other attack on trained LeNets, with its interval."""
    table = load_lenets(run).query("state == 'trained'")
    for size, wide, cell in split_cells(table, ["batch_size"]):
        rivals = list_rivals(wide, "learned")
        lead, other = cells.lead_of(wide, "learned", rivals, network_by_trial(cell))
        row = {"batch_size": size, "other": other, "lead": float(lead)}
        yield row | {"low": lead.low, "high": lead.high}


def compare_deep(run):
    """Yield, per trained deep network and batch size, iAcc of our attackers and of the best published attack, with our leads."""
    table = load_rows(run, "networks").query("net != 'lenet' and state == 'trained'")
    for (net, size), wide, cell in split_cells(table, ["net", "batch_size"]):
        mean, rivals = wide.mean(), [name for name in wide if name not in UNPUBLISHED]
        best = cells.best_of(wide, network_by_trial(cell), among=rivals)
        row = {"net": net, "batch_size": size, "which": best.attack}
        row |= {"published": float(best.score), "learned": mean["learned"]}
        row |= {"told": mean[KNOWS], "whole": mean[WHOLE_HEAD]}
        for name, ours in (("lead", "learned"), ("lead told", KNOWS)):
            lead, _ = cells.lead_of(wide, ours, rivals, network_by_trial(cell))
            row |= as_columns(name, lead)
            # for comparison: the rival that is best on all updates, which flatters it
            row[f"{name}, rival picked on them"] = mean[ours] - wide[best.attack].mean()
        yield row


def compare_combined(run):
    """Yield, per trained network and batch size, the lead of a combined attacker over the best other attack.

    It is *after SPEAR* where that splits a batch, and the learned attacker elsewhere.
    """
    table = load_rows(run, "networks").query("state == 'trained'")
    split = table.query("attack == 'after SPEAR'")
    split = split.set_index(["net", "batch_size", "trial"])["iacc"].dropna()
    for (net, size), wide, cell in split_cells(table, ["net", "batch_size"]):
        ours = [
            split.get((net, size, trial), wide["learned"][trial])
            for trial in wide.index
        ]
        rivals = list_rivals(wide, "learned", KNOWS)
        lead, other = cells.lead_of(
            wide.assign(ours=ours), "ours", rivals, network_by_trial(cell)
        )
        row = {"net": net, "batch_size": size, "other": other, "lead": float(lead)}
        yield row | {"low": lead.low, "high": lead.high}


def compare_fresh(run):
    """Yield, per network and batch size, the leads on ten fresh networks: learned attacker over rival, rival over prior guess."""
    by = ["net", "batch_size"]
    rows = run.best_rows("anew")
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


def compare_informed(run):
    """Yield, per defence and strength, the learned attacker informed of it, its gain by that, and its lead over the best other."""
    table = load_rows(run, "defences").query(
        "state == 'trained' and defence not in ('none', 'no last bias')"
    )
    for (defence, strength), wide, cell in split_cells(table, ["defence", "strength"]):
        if ADAPTIVE not in wide:
            continue
        informed, networks = wide[ADAPTIVE], network_by_trial(cell)
        gain = cells.mean_of(informed - wide["learned"], networks)
        rivals = list_rivals(wide, ADAPTIVE)
        lead, other = cells.lead_of(wide, ADAPTIVE, rivals, networks)
        row = {"defence": defence, "strength": strength, "told": informed.mean()}
        row |= {"other": other, "untold": wide["learned"].mean()}
        row |= {"prior": wide["prior guess"].mean()}
        yield row | as_columns("gain", gain) | as_columns("lead", lead)


def load_kinds(run):
    """Return the rows of texts and tables, with those of images (LeNet on MNIST) under the same conditions."""
    images = load_lenets(run).query("batch_size == [8, 32]")
    steps = load_rows(run, "schemes").query("scheme == 'FedAvg'")
    images, steps = images.assign(scheme="FedSGD"), steps.assign(batch_size=32)
    tables = images, steps, load_rows(run, "inputs")
    return pd.concat(tables, ignore_index=True)


def score_kinds(run, floor=None):
    """Return the iAcc of the best attack, or of the baseline `floor`, by state and data: batches of 32, one step."""
    table = load_kinds(run).query("batch_size == 32 and scheme == 'FedSGD'")
    score = score_best if floor is None else partial(score_baseline, name=floor)
    return score(table, ["state", "data"])


def list_rejecting(run, *data):
    """List the attacks that answer every update of an untrained LeNet and none of these data's."""
    rows = load_kinds(run).query("batch_size == 32 and scheme == 'FedSGD'")
    given = rows[rows["state"] == "untrained"].groupby(["attack", "data"])["iacc"]
    share = given.count().unstack() / given.size().unstack()
    return share.index[(share["MNIST"] == 1) & (share[[*data]] == 0).all(axis=1)]


def compare_by_data(run):
    """Return the learned attacker's leads over the best other attack that reads the update: per data, one per batch size."""
    table = load_rows(run, "inputs").query("state == 'trained' and scheme == 'FedSGD'")
    gaps = {}
    for (data, _), wide, _ in split_cells(table, ["data", "batch_size"]):
        lead, _ = cells.lead_of(wide, "learned", list_rivals(wide, "learned"))
        gaps.setdefault(data, []).append(float(lead))
    return gaps


DEFENCE_CELL = ["defence", "strength"]
FREE_DEFENCES = [name for name, kind in protections().items() if not costly(kind)]


def balance_defences(attack, sums, learnt):
    """Return, by state, defence and strength, the best attack, the model's accuracy, and both compared with no defence.

    `attack` are rows of single updates under defences, `sums` those of secure aggregation, `learnt` test accuracies.
    """
    reading = {*attack["attack"], *sums["attack"]} - {*FLOORS}
    won = [find_best(attack, ["state", *DEFENCE_CELL], reading).assign(who="")]
    for who, only in (
        ("passive", reading - MALICIOUS_ATTACKS),
        ("malicious", MALICIOUS_ATTACKS),
    ):
        fields = {"defence": "secure aggregation", "strength": 0.0, "who": who}
        won.append(find_best(sums, ["state"], only).assign(**fields))
    bare = learnt[learnt["defence"] == "none"]
    same = [
        bare.assign(defence=name) for name in (*FREE_DEFENCES, "secure aggregation")
    ]
    learnt = pd.concat([learnt, *same], ignore_index=True)
    # trials with and without a defence share initial weights and users: the cost is a paired difference
    lost = learnt["trial"].map(bare.set_index("trial")["accuracy"]) - learnt["accuracy"]
    kinds = {"accuracy": rate(1000), "cost": NUMBER}
    learnt = summarise(learnt.assign(cost=lost), DEFENCE_CELL, kinds)
    learnt.loc[learnt["cost"] == 0, ["cost low", "cost high"]] = np.nan
    learnt = learnt.rename(columns={"n": "trainings"})
    table = pd.concat(won).merge(learnt, on=DEFENCE_CELL, how="left")
    plain = table[table["defence"] == "none"].set_index("state")["each"]
    gaps = table["state"].map(plain) - table["each"]
    table["taken"] = [gap.mean() for gap in gaps]
    table[["taken low", "taken high"]] = [
        compute_interval(*pair) for pair in zip(gaps, table["cell"])
    ]
    floor = score_baseline(attack[attack["defence"] == "none"], "state")
    return table.assign(floor=table["state"].map(floor))


@cache
def load_balance(run):
    """Return `balance_defences` of the rows."""
    learnt = select_trainings(run.best_rows("federations"))
    rows = load_rows(run, "defences"), load_rows(run, "aggregation")
    return balance_defences(*rows, learnt)


def load_rungs(run):
    """Return the ladder's rows with those of the two servers behind secure aggregation."""
    sums = load_rows(run, "aggregation")
    who = np.where(sums["attack"].isin(MALICIOUS_ATTACKS), "malicious", "passive")
    sums = sums.assign(rung=[f"only the sum, {server}" for server in who])
    return pd.concat([load_rows(run, "ladder"), sums], ignore_index=True)


def average_waiting(run):
    """Return the mean iAcc over the clients, by state, rounds and attack, of a server that waits."""
    return (
        load_rows(run, "waiting").groupby(["state", "rounds", "attack"])["iacc"].mean()
    )


def score_waiting(run):
    """Return the best attack's iAcc by state and rounds of a server that waits, on runs that it was not picked on."""
    return score_best(
        load_rows(run, "waiting"),
        ["state", "rounds"],
        [name for name in PATIENT if name in READERS],
    )


def compare_noise(run):
    """Yield, per way to train, the accuracy without noise and with it, from the same starts, and the cost of the noise."""
    way = ["data", "participants", "lr", "rounds"]
    rows = run.best_rows("federations")
    rows = rows[rows["rounds"].isin(NOISE_ROUNDS)]
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


def score_under_defence(run, state, **settings):
    """Return the iAcc of the best attack, and of the prior guess, in one setting of the balance."""
    table = rescore(run, load_balance(run))
    row = matching_rows(table, {"state": state, **settings}).iloc[0]
    return row["iacc"], row["floor"]
