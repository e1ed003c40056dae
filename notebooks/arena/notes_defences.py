"""The arena: notes on defences, waiting, knowledge and predictions."""

import pandas as pd

from fedleak import models
from fedleak_book.evidence import predictions
from fedleak_book.evidence.results import Number
from fedleak_book.experiments.kinds import NUMBER, interval
from notebooks.arena.ranking import average_by_network, average_waiting
from notebooks.arena.ranking import compare_informed
from notebooks.arena.ranking import compare_noise
from notebooks.arena.ranking import load_balance
from notebooks.arena.ranking import load_networks, load_rows
from notebooks.arena.ranking import score_waiting
from notebooks.arena.ranking import select_trainings, split_cells


def fig_arena_balance(run):
    trades = load_balance(run)
    table = []
    for row in trades.to_dict("records"):
        name = row["defence"] + (f", {row['who']} server" if row["who"] else "")
        lost = row["cost"] == row["cost"] and (
            f"{Number.of(row, 'cost'):+.2f ci}" if row["cost"] else "0 by construction"
        )
        table.append(
            {
                "network": row["state"],
                "defence": name,
                "strength": f"{row['strength']:g}",
                "best attack": f"{row['attack']} {row['iacc']:.2f}",
                "reduction": "–"
                if name == "none"
                else f"{Number.of(row, 'taken'):+.2f ci}",
                "accuracy lost": "–" if name == "none" or not lost else lost,
            }
        )
    informed = (
        {
            "defence": row["defence"],
            "strength": f"{row['strength']:g}",
            "informed": f"{row['told']:.2f}",
            "uninformed": f"{row['untold']:.2f}",
            "gain": f"{Number.of(row, 'gain'):+.2f ci}",
            "lead over the best other": f"{Number.of(row, 'lead'):+.2f ci} ({row['other']})",
            "prior guess": f"{row['prior']:.2f}",
        }
        for row in compare_informed(run)
    )
    rlu = load_rows(run, "defences").query(
        "defence == 'noise' and state == 'untrained' and attack == 'RLU'"
    )
    rlu = rlu.groupby("strength")["iacc"].mean()
    bare = select_trainings(run.best_rows("federations"))
    bare = bare.query("defence == 'none'")["accuracy"]
    rlu_by_noise = ", ".join((f"{v:.2f} at {s:g}" for s, v in rlu.items()))
    return locals()


def arena_waiting(run):
    mean = average_waiting(run)
    best = score_waiting(run)
    rounds = best.index.levels[1]
    first, last = rounds[0], rounds[-1]
    return locals()


def arena_noise(run):
    table = (
        {
            "participants": row["participants"],
            "rate": f"{row['lr']:g}",
            "noise per round": f"{row['noise']:.4f}",
            "accuracy without": f"{row['plain'].mean():.2f} (lowest {row['plain'].min():.2f})",
            "with σ = 0.3": f"{row['loud'].mean():.2f} (highest {row['loud'].max():.2f})",
            "cost": f"{Number(row['cost'], row['low'], row['high']):+.2f ci}"
            if row["low"] == row["low"]
            else f"{Number(row['cost']):+.2f}",
            "trainings": row["n"],
        }
        for row in compare_noise(run)
    )
    return locals()


def fig_arena_ladder(run):
    rows = load_rows(run, "ladder").query(
        "state == 'trained' and rung == '+ many images a class'"
    )
    ((_, wide, cell),) = split_cells(rows, ["rung"])
    gap = average_by_network(wide["learned"] - wide["LLG"], cell)
    lead = Number(gap.mean(), *interval(gap, NUMBER))
    return locals()


def arena_refused(run):
    tables = load_networks(run), load_rows(run, "schemes"), load_rows(run, "defences")
    out = pd.concat(tables, ignore_index=True).query("iacc.isna()")
    why = (
        out["reason"]
        .str.replace(r"\d+ samples", "K samples", regex=True)
        .str.slice(0, 110)
    )
    out = out.assign(network=out["net"].map(models.title), why=why).groupby(
        ["attack", "why"], sort=False
    )
    out = out.agg(
        networks=("network", lambda n: ", ".join(dict.fromkeys(n))),
        updates=("trial", "size"),
    )
    return locals()


def of_others(run):
    """What came of them, in words."""
    depth = [run.cell("depth", hidden=n, attack="iLRG") for n in range(5)]
    least = min(run.cell("depth", hidden=n, attack="RLU") for n in range(5))
    assert least > 0.99
    assert depth == sorted(depth)
    ceilings = [f"arena-R{n}" for n in range(6, 12)]
    reached = [(run.published.items[id].printed, run[id]) for id in ceilings]
    *near, (printed, reach), _ = reached
    assert all(value <= ours.high for value, ours in reached)
    assert all(abs(value - ours) < 0.06 for value, ours in (*near, reached[-1]))
    assert reach > printed + 0.06
    over, more, given, gain = (run[f"arena-R{n}"] for n in range(12, 16))
    assert min(over.low, more.low) > 0
    assert max(given.low, gain.low) < 0
    return f"""
    **iLRG needs depth**: it recovers {depth[0]:.2f} of the counts exactly from an untrained network with one hidden layer, and {depth[-1]:.2f} with five. RLU, which
    also has 500 images, recovers {least:.4f} or more at every depth. **No printed share clearly exceeds the reach of peeling, and all but one are near it**: for batches
    of 128 from CIFAR-10 peeling can reach {reach:.2f}, and the paper prints {printed:.2f}. **Five rounds of the same images add nothing** that {over.n} federations could
    show: on trained networks they give the learned attacker {gain:+.2f ci} and LDIA (reimplemented), with a tenth of LDIA's shadow clients,
    {given:+.2f ci}. There the learned attacker is {more:.2f ci} ahead of LDIA, and on untrained ones the whole head (RLU-WH) {over:.2f ci}.
    """


def arena_expected(run):
    outcomes = predictions.table(run, *predictions.ids(run), anchors=True)
    return locals()
