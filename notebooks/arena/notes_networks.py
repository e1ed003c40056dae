"""The arena: notes on networks, new trainings, registered attacks and conditions."""

import pandas as pd

from fedleak import models
from notebooks.show import markdown
from fedleak_book.evidence import predictions
from fedleak_book.evidence.results import Number
from notebooks.arena.ranking import READERS
from notebooks.arena.ranking import compare_deep
from notebooks.arena.ranking import compare_fresh, compare_lenets
from notebooks.arena.ranking import find_best
from notebooks.arena.ranking import load_lenets, load_rows
from notebooks.arena.ranking import score_baseline
from notebooks.arena.notes_parts import parts


def arena_deep_learned(run):
    cells = pd.DataFrame(compare_deep(run))
    gain = (cells["told"] - cells["learned"]).groupby(cells["net"]).mean()
    table = (
        {
            "network": models.title(row["net"]),
            "B": row["batch_size"],
            "learned": f"{row['learned']:.2f}",
            "told": f"{row['told']:.2f}",
            "whole head": f"{row['whole']:.2f}",
            "best published": f"{row['which']} {row['published']:.2f}",
            "lead, uninformed": f"{Number.of(row, 'lead'):+.2f ci}",
            "lead, told": f"{Number.of(row, 'lead told'):+.2f ci}",
        }
        for row in compare_deep(run)
    )
    missed = ", ".join(
        f"{row['which']} at {row['batch_size']} on {models.title(row['net'])}"
        for row in compare_deep(run)
        if row["lead"] < 0.05
    )
    lenet = "; ".join(
        f"B = {row['batch_size']}: {Number(row['lead'], row['low'], row['high']):+.2f ci} over {row['other']}"
        for row in compare_lenets(run)
    )
    resnet18_gain = gain.get("resnet18", float("nan"))
    vgg11_gain = gain.get("vgg11_bn", float("nan"))
    return locals()


def arena_splitting(run):
    rows = load_lenets(run).query("batch_size == 8")
    wide = rows.set_index(["state", "trial", "attack"])["iacc"].unstack()
    read, trained = wide["after SPEAR"].dropna(), wide.loc["trained"]
    count, asked = read.groupby("state").size(), wide.groupby("state").size()
    combined = trained["after SPEAR"].fillna(trained["learned"]).mean()
    assert (read == 1).all(), "what it reads is right"
    return locals()


def arena_anew(run):
    table = (
        {
            "network": models.title(row["net"]),
            "B": row["B"],
            "rival": row["rival"],
            "learned": f"{row['learned']:.2f}",
            "the rival": f"{row['the rival']:.2f}",
            "class-prior baseline": f"{row['prior guess']:.2f}",
            "lead": f"{Number.of(row, 'lead'):+.3f ci}",
            "rival over the guess": f"{Number.of(row, 'over'):+.3f ci}",
            "networks": row["n"],
        }
        for row in compare_fresh(run)
    )
    recorded = run.recorded("anew") is not None
    return locals()


def arena_registered(run):
    def cells(experiment, *values):
        means = run.best(experiment)
        for row in means.to_dict("records"):
            texts = (
                f"{row[v]:.3f} [{row[f'{v} low']:.3f}, {row[f'{v} high']:.3f}]"
                for v in values
            )
            keys = {k: row[k] for k in run.recorded(experiment).cells_by if k in row}
            yield keys | dict(zip(values, texts)) | {"n": row["n"]}

    rounds = run.recorded("rounds").fixed
    ilrg = run.best_rows("depth").query("attack == 'iLRG'").groupby("hidden")["lnacc"]
    items = run.published.items
    printed = [items[f"arena-R{n + 1}"].printed for n in ilrg.groups]
    assert (ilrg.min() <= printed).all()
    assert (ilrg.max() >= printed).all()
    outcomes = predictions.table(run, *predictions.ids(run, "R"))
    return locals()


def ten(run):
    """The learned attacker's leads on ten networks of each kind, as a table and in a sentence, from recorded rows."""
    if run.recorded("anew") is None and run.profile != "paper":
        return "**Not recorded**: one network of this run decides nothing."
    rows = pd.DataFrame(compare_fresh(run))
    ends = zip(rows["lead"], rows["lead low"], rows["lead high"], strict=True)
    rows["shown"] = [f"{Number(*ends_of_row):+.2f ci}" for ends_of_row in ends]
    rows["network"] = rows["net"].map(models.title)
    table = rows.pivot(index="B", columns="network", values="shown").reset_index()
    ahead, behind = (rows["lead low"] > 0).sum(), (rows["lead high"] < 0).sum()
    open_, worst = len(rows) - ahead - behind, rows["lead low"].min()
    first = rows.query("net == 'lenet'")
    every = " (of LeNet at every size)" if (first["lead low"] > 0).all() else ""
    return parts(
        markdown(table, wide=False),
        f"""
        **It is clearly ahead of its rival in {ahead} of the {len(rows)} cells{every}, clearly behind in {behind}, and {open_} are open.** No interval reaches
        below {Number(worst):+.3f}, and in {(rows["lead"] >= 0.05).sum()} cells the lead is 0.05 or more. The rival's iAcc exceeds the class-prior baseline by at least
        {rows["over"].min():.2f}.
        """,
    )


def fig_arena_conditions(run):
    by = ["state", "composition"]
    rows = load_rows(run, "compositions")
    over = find_best(rows, by, READERS).set_index(by)
    over = over.assign(prior=score_baseline(rows, by)).reset_index()
    even = (
        rows.query("state == 'trained' and composition == 'balanced'")
        .groupby("attack")["iacc"]
        .mean()
    )
    table = (
        {
            "network": row["state"],
            "composition": row["composition"],
            "best attack that reads the update": row["attack"],
            "its iAcc": f"{Number.of(row, 'iacc'):.2f ci}",
            "prior guess": f"{row['prior']:.2f}",
            "lead": f"{Number(row['iacc'] - row['prior']):+.2f}",
        }
        for row in over.to_dict("records")
    )
    return locals()
