"""The arena: notes on soft labels, and on what attackers know and see."""

from fedleak import models
from notebooks.show import enumerated
from fedleak_book.evidence.results import Number
from fedleak_book.experiments.kinds import NUMBER, interval
from notebooks.arena import ranking
from notebooks.arena.claims import MIXED, SMOOTHED
from notebooks.arena.ranking import DATA_CELL, READERS, WHOLE_HEAD
from notebooks.arena.ranking import average_by_network
from notebooks.arena.ranking import find_best, keep_complete
from notebooks.arena.ranking import load_kinds, load_labellings
from notebooks.arena.ranking import load_rows
from notebooks.arena.ranking import score_baseline
from notebooks.arena.notes_parts import numbers
from notebooks.arena.updates import KINDS


def arena_softened(run):
    rows = load_labellings(run)
    by = ["labelling", "state", "batch_size"]
    untold = rows[~rows["attack"].str.endswith(", told")]
    cells = find_best(untold, by, READERS).set_index(by)
    cells = cells.assign(prior=score_baseline(rows, by)).reset_index()
    table = (
        {
            "labels": row["labelling"],
            "network": row["state"],
            "B": row["batch_size"],
            "best attack": row["attack"],
            "its iAcc": f"{Number.of(row, 'iacc'):.2f ci}",
            "prior guess": f"{row['prior']:.2f}",
        }
        for row in cells.to_dict("records")
    )
    trained = keep_complete(rows, by).query("state == 'trained'")
    mean = trained.groupby(["attack", "labelling", "batch_size"])["iacc"].mean()
    hard, (small, large) = (
        "one-hot",
        sorted(rows["batch_size"].unique())[:2]
        if rows["batch_size"].nunique() > 1
        else (8, 8),
    )
    informed = []
    for name in ("RLU", WHOLE_HEAD):
        gains = []
        for size in (small, large):
            cell = trained[trained["batch_size"] == size]
            wide = cell.pivot(
                index="trial", columns=["attack", "labelling"], values="iacc"
            )
            gap = average_by_network(
                wide[f"{name}, told", SMOOTHED] - wide[name, hard], cell
            )
            gains.append(
                f"{mean[f'{name}, told', SMOOTHED, size]:.2f} after {mean[name, hard, size]:.2f} at {size} (gain {Number(gap.mean(), *interval(gap, NUMBER)):+.2f ci})"
            )
        informed.append(f"{name} {' and '.join(gains)}")
    split = (
        rows.query("attack == 'after SPEAR' and batch_size == 8")
        .groupby(["state", "labelling"])["iacc"]
        .count()
    )
    mixed = {
        name: f"{enumerated([mean[name, MIXED, s] for s in (small, large)])} of mixed labels, after {enumerated([mean[name, hard, s] for s in (small, large)])}"
        for name in ("LLG", "RLU", WHOLE_HEAD, "learned")
    }
    mixup = "; ".join((f"{name} finds {text}" for name, text in mixed.items()))
    return locals()


def split_rows(run):
    """How many batches of eight rows or texts "after SPEAR" splits: answered, all, and the least iAcc, by network and data."""
    split = load_rows(run, "inputs").query(
        "attack == 'after SPEAR' and batch_size == 8"
    )
    return split.groupby(["state", "data"])["iacc"].agg(["count", "size", "min"])


def fig_arena_inputs(run):
    eight = split_rows(run).loc["trained"]
    whole = ", ".join(
        f"{row['count']:.0f} of {row['size']:.0f} of {data}"
        for data, row in eight.iterrows()
    )
    by_data = load_kinds(run)
    names = ["MNIST", *KINDS]
    cells = find_best(by_data, DATA_CELL, [*READERS, "learned"])
    cells["prior"] = [
        *score_baseline(by_data, DATA_CELL).reindex(cells.set_index(DATA_CELL).index)
    ]
    table = (
        {
            "data": row["data"],
            "network": row["state"],
            "B": row["batch_size"],
            "scheme": row["scheme"],
            "best attack": row["attack"],
            "its iAcc": f"{Number.of(row, 'iacc'):.2f ci}",
            "prior guess": f"{row['prior']:.2f}",
            "networks": row["networks"],
        }
        for name in names
        for row in cells[cells["data"] == name].to_dict("records")
    )
    out = load_rows(run, "inputs").query("iacc.isna()")
    why = out["reason"].str.replace(r"\d+ (samples|steps)", r"K \1", regex=True)
    out = out.assign(why=why.str.replace(r"got \d+ ", "got r ", regex=True))
    out = out.groupby(["attack", "why"], sort=False)
    out = out.agg(
        data=("data", lambda d: ", ".join(dict.fromkeys(d))), updates=("trial", "size")
    )
    right = run.cells("test_accuracy", data=list(KINDS))
    right = right.groupby("data", sort=False)["accuracy"]
    right = ", ".join(
        f"{data} {low:.2f} to {high:.2f}"
        for data, low, high in right.agg(["min", "max"]).itertuples()
    )
    traces = run.best("traces")
    traces = traces[["data", "state", "batch_size", "idle", "named", "wrong", "n"]]
    traces = traces.rename(columns={"idle": "units at 0", "batch_size": "B"})
    traces_text = numbers(traces)
    return locals()


def arena_modes(run):
    by = ["net", "state", "client", "attacker"]
    table = (
        {
            "network": models.title(row["net"]),
            "state": row["state"],
            "client's mode": row["client"],
            "attacker's passes": row["attacker"],
            "best attack": row["attack"],
            "its iAcc": f"{Number.of(row, 'iacc'):.2f ci}",
        }
        for row in find_best(ranking.load_modes(run), by, READERS).to_dict("records")
    )
    return locals()
