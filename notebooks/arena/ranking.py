"""The arena: who is best in a cell, by how much, and over how many networks; rows to tables."""

from functools import cache

import numpy as np
import pandas as pd

from fedleak.attacks import registry
from fedleak_book.evidence import cells
from fedleak_book.evidence.estimates import having
from fedleak_book.experiments.experiment import seeds_of
from fedleak_book.experiments.kinds import rate
from fedleak_book.experiments.records import NOW
from notebooks.arena.updates import ADAPTIVE, ALL, ENTRANTS, FISHERS, FLOORS, KNOWS
from notebooks.arena.updates import USUAL
from notebooks.updates import SETS

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
DEFENCE_CELL = ["defence", "strength"]
NEEDS = {attack.name: len(attack.needs) for attack in ALL.values()}


# --- rows ---
def find_networks(rows):
    """Return each row's network as a number: the trial for untrained networks, the seed modulo their number for trained ones."""
    seeds = rows.get("seed")
    if seeds is None:  # recorded, from the seed 0
        seeds = np.array(seeds_of(0, rows["trial"].max() + 1))[rows["trial"]]
    copies = rows["data"].map(lambda data: SETS[data].copies)
    return np.where(rows["state"] == "untrained", rows["trial"], seeds % copies)


@cache
def _load(run, name):
    rows = run.best_rows(name)
    return rows.assign(network=find_networks(rows))


def load_rows(run, name, **settings):
    """Return the trial rows of a record in some settings, with their networks."""
    rows = _load(run, name)
    return rows[having(**settings)(rows)]


def load_networks(run, **settings):
    """Return the rows of all networks, by batch size."""
    rows = load_rows(run, "networks", **settings)
    return rows.sort_values("batch_size", kind="stable")


def load_usual_first(run, experiment, axis):
    """Return the rows of an experiment that varies one axis; at the usual value those of `load_networks`' LeNets."""
    usual = {"net": "lenet", "batch_size": USUAL["batch_size"]}
    same = load_rows(run, "networks", **usual).assign(**{axis: USUAL[axis]})
    table = load_rows(run, experiment)
    order = list(dict.fromkeys([*table[axis], USUAL[axis]]))
    table = pd.concat([table[table[axis] != USUAL[axis]], same], ignore_index=True)
    by_place = {"key": lambda names: names.map(order.index), "kind": "stable"}
    return table.sort_values(axis, **by_place)


def load_kinds(run, **settings):
    """Return the rows of texts and tables, with those of images (LeNet on MNIST) under the same conditions."""
    images = load_rows(run, "networks", net="lenet", batch_size=[8, 32])
    steps = load_rows(run, "schemes", scheme="FedAvg").assign(batch_size=32)
    tables = images.assign(scheme="FedSGD"), steps, load_rows(run, "inputs")
    rows = pd.concat(tables, ignore_index=True)
    return rows[having(**settings)(rows)]


def load_rungs(run):
    """Return the ladder's rows with those of the two servers behind secure aggregation."""
    sums = load_rows(run, "aggregation")
    who = np.where(sums["attack"].isin(MALICIOUS_ATTACKS), "malicious", "passive")
    sums = sums.assign(rung=[f"only the sum, {server}" for server in who])
    return pd.concat([load_rows(run, "ladder"), sums], ignore_index=True)


def list_rejecting(run, *data):
    """List the attacks that answer every update of an untrained LeNet and none of these data's."""
    rows = load_kinds(run, batch_size=32, scheme="FedSGD", state="untrained")
    share = rows["iacc"].notna().groupby([rows["attack"], rows["data"]]).mean()
    share = share.unstack()
    return share.index[(share["MNIST"] == 1) & (share[[*data]] == 0).all(axis=1)]


# --- the best attack of a cell ---
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


def split_cells(table, by):
    """Yield each cell of the columns `by`: its keys, its iAcc with a row per update and a column per attack, and its rows.

    Attacks that did not answer every update of the cell have no column.
    """
    for keys, cell in keep_complete(table, by).groupby(by, sort=False):
        wide = cell.pivot(index="trial", columns="attack", values="iacc")
        yield dict(zip(by, keys, strict=True)), wide, cell


def network_by_trial(cell):
    """Return the network of each update of a cell, by trial."""
    return cell.groupby("trial")["network"].first()


def as_columns(name, number):
    """Return a number and the ends of its interval as columns of a row."""
    return {name: float(number), f"{name} low": number.low, f"{name} high": number.high}


def find_best(table, by, only=None):
    """Find the best attack of every cell (`cells.best_of`): its iAcc with interval, its lead over the next, and whether that is clear.

    `by` names the columns that make a cell, `only` the attacks to choose from (default: all, except the one that is
    given the client's training loss, which no adversary of the registry has). Ties go to the attack with the fewest
    needs; an attack that rejected an update of a cell is out.
    """
    rows = []
    for keys, wide, cell in split_cells(table, by):
        names = [name for name in wide if name != KNOWS or name in (only or ())]
        wide = wide[sorted(names, key=lambda name: NEEDS.get(name, 9))]
        labels = cell.get("batch_size", pd.Series(USUAL["batch_size"])).min()
        best = cells.best_of(wide, network_by_trial(cell), rate(labels), only)
        row = keys | {"attack": best.attack, "second": best.second, "cell": cell}
        row["each"] = best.scores.to_numpy()
        row |= as_columns("iacc", best.score) | as_columns("lead", best.lead)
        row |= {"clear": best.lead.low > 0, "networks": best.score.n, "n": len(wide)}
        rows.append(row)
    return pd.DataFrame(rows)


def score_best(table, by, only=None):
    """Return the iAcc of the best attack of every cell, with the columns `by` as index; `only` as in `find_best`."""
    return find_best(table, by, only).set_index(by)["iacc"]


def score_baseline(table, by, name="prior guess"):
    """Return the mean iAcc of a baseline in every cell, with the columns `by` as index."""
    return table[table["attack"] == name].groupby(by, sort=False)["iacc"].mean()


def measure_lead(row, name="prior guess"):
    """Return the lead of a cell's best attack, a row of `find_best`, over a baseline on the same updates."""
    cell = row["cell"]
    floor = cell[cell["attack"] == name].set_index("trial")["iacc"].sort_index()
    gaps = pd.Series(row["each"], floor.index) - floor
    return cells.mean_of(gaps, network_by_trial(cell))


RESCORED = {name: USUAL[name] for name in ("composition", "scheme", "defence")}
RESCORED |= {
    "state": "trained",
    "rung": "+ many images a class",
    "labelling": "one-hot",
}
"""The setting of the record `anew`, of any network and batch size; a column that a table lacks has this value."""


def rescore(run, best):
    """Replace, in rows of `find_best`, the score of an attack that ran on ten further networks (`anew`) by that one.

    The lead is replaced where the second attack ran there, too. So a setting has one number on all pages, that of the
    most networks, on which no attack was picked.
    """
    anew = run.best_rows("anew")
    if (anew["source"] == NOW).any():
        return best
    index = ["net", "batch_size", "trial"]
    wide = anew.pivot(index=index, columns="attack", values="iacc")
    ran = {place: cell.dropna(axis=1) for place, cell in wide.groupby(index[:2])}
    rows = best.to_dict("records")
    for row in rows:
        default = {"net": "lenet", "batch_size": USUAL["batch_size"], **RESCORED}
        setting = default | dict(row["cell"].dropna(axis=1, how="all").iloc[0]) | row
        wide = ran.get((setting["net"], setting["batch_size"]), ())
        is_usual = all(setting[name] == value for name, value in RESCORED.items())
        if not is_usual or row.get("who") or row["attack"] not in wide:
            continue
        first = wide[row["attack"]]
        row |= as_columns("iacc", cells.mean_of(first)) | {"networks": len(first)}
        if row["second"] in wide:
            lead = cells.mean_of(first - wide[row["second"]])
            row |= as_columns("lead", lead) | {"clear": lead.low > 0}
    return pd.DataFrame(rows, index=best.index)


# --- an attack compared with others ---
def compare(table, by, ours, without=(), rivals=None):
    """Compare an attack with the best of its rivals in every cell: ``lead`` with interval, ``other``, ``n`` networks, all means.

    The rivals are by default all other attacks but the baselines and those that are left out, `without`.
    """
    rows = []
    for keys, wide, cell in split_cells(table, by):
        if ours in wide:
            others = rivals or set(wide) - {ours, *without, *FLOORS}
            lead, other = cells.lead_of(wide, ours, others, network_by_trial(cell))
            row = keys | dict(wide.mean()) | {"other": other, "n": lead.n}
            rows.append(row | as_columns("lead", lead))
    return pd.DataFrame(rows)


def rename_lead(compared, name):
    """Return the leads of a comparison, with their intervals, under another name."""
    leads = compared[["lead", "lead low", "lead high"]]
    return leads.rename(columns=lambda column: column.replace("lead", name))


def compare_lenets(run):
    """Return, per batch size, the learned attacker's lead over the best other attack on trained LeNets."""
    table = load_rows(run, "networks", net="lenet", state="trained")
    return compare(table, ["batch_size"], "learned")


def compare_deep(run, ours="learned"):
    """Return, per trained deep network and batch size, the lead of one of our attackers over the best published attack."""
    table = load_rows(run, "networks", state="trained").query("net != 'lenet'")
    return compare(table, ["net", "batch_size"], ours, UNPUBLISHED)


def compare_combined(run):
    """Return, per trained network and batch size, the lead of a combined attacker over the best other attack.

    It is *after SPEAR* where that splits a batch, and the learned attacker elsewhere.
    """
    table = load_rows(run, "networks", state="trained")
    update = ["net", "batch_size", "trial"]
    split = table[table["attack"] == "after SPEAR"].set_index(update)["iacc"].dropna()
    both = table[table["attack"] == "learned"].set_index(update)
    both["iacc"] = split.reindex(both.index).fillna(both["iacc"])
    table = pd.concat([table, both.reset_index().assign(attack="combined")])
    return compare(table, update[:2], "combined", ["learned", KNOWS])


def compare_fresh(run):
    """Return, per network and batch size, the leads on ten fresh networks: learned attacker over rival, rival over prior guess."""
    by, rows = ["net", "batch_size"], run.best_rows("anew")
    rows = rows.assign(network=rows["trial"]).sort_values(by, kind="stable")
    is_rival = ~rows["attack"].isin(["learned", "prior guess"])
    named = rows.assign(attack=rows["attack"].mask(is_rival, "rival"))
    over = compare(named, by, "rival", rivals=["prior guess"])
    over = rename_lead(over, "over").assign(rival=over["rival"])
    return compare(rows, by, "learned").join(over)


def compare_informed(run):
    """Return, per defence and strength, the lead of the learned attacker informed of it over the best other, and its gain by that."""
    table = load_rows(run, "defences", state="trained")
    gain = compare(table, DEFENCE_CELL, ADAPTIVE, rivals=["learned"])
    return compare(table, DEFENCE_CELL, ADAPTIVE).join(rename_lead(gain, "gain"))
