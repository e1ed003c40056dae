"""The arena: notes on soft labels, and on what attackers know and see."""

from fedleak import models
from notebooks.show import enumerated, markdown
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
from notebooks.arena.notes_parts import numbers, parts
from notebooks.arena.updates import KINDS


def soft(run):
    """Labels that are not one-hot"""
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
    return parts(
        "The best attack that is uninformed of the smoothing, by kind of label, with $\\varepsilon = 0.1$ and $\\alpha = 1$.",
        markdown(table),
        f"""
        **Attacks given $\\varepsilon$**, on the same images and three networks, compared with one-hot labels: {"; ".join(informed)}. We predicted 0.95. The network is
        less sure than the argument assumes, and the variation of its softmax between images is noise on
        $\\varepsilon(\\mathbf y-1/n)$. The network was trained without smoothing. We did not attack one trained with smoothing, where $\\mathbf p$ would be
        near $\\tilde{{\\mathbf y}}$.

        **Mixup** gives each label away once with λ and once with $1-\\lambda$, so that the mean of the mixed labels is the mean of the labels; it
        changes the images and the softmax alone. At B = {small} and {large}, {"; ".join(f"{name} finds {text}" for name, text in mixed.items())} of one-hot
        ones. The whole head, the learned attacker and RLU all use gradients of unmixed images. Why only the first two lose accuracy
        was not tested. SPEAR (reimplemented) searches for the samples and not for their labels. From the trained network it splits {split["trained", MIXED]} mixed
        batches of 8, {split["trained", hard]} one-hot and {split["trained", SMOOTHED]} smoothed ones; from the untrained one {split["untrained", MIXED]},
        {split["untrained", hard]} and {split["untrained", SMOOTHED]}. In an earlier record, from the same seeds on another processor, training
        rounded differently; means of its trained cells differ by up to six points.
        """,
    )


def split_rows(run):
    """How many batches of eight rows or texts "after SPEAR" splits: answered, all, and the least iAcc, by network and data."""
    split = load_rows(run, "inputs").query(
        "attack == 'after SPEAR' and batch_size == 8"
    )
    return split.groupby(["state", "data"])["iacc"].agg(["count", "size", "min"])


def inputs(run):
    """Texts and rows of tables"""
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
    return parts(
        f"""
        The texts are names of languages, countries, currencies and scripts in ten languages. A sample is one name, cut or padded to 32 bytes;
        its label is the language. Names that two of the languages share are left out. The network has an embedding
        of 32 numbers per byte, 64 convolutions over three bytes, their maxima over the text, 64 units with a ReLU and the outputs. It is
        trained as LeNet is. The tables have 178 and 569 rows, with standardised columns; their network is FCN-3 with 256 and 128 units,
        trained in 50 steps. The attacker has 500 names, 36 rows or 114 rows. Five networks of each kind are trained. Their
        accuracy on data that they were not trained on: {right}. The twenty updates of a cell come from five trained
        networks: six each from three of them, and one each from two.

        The table shows the best attack that reads the update. MNIST is LeNet's, from the records of the boards and of the schemes.
        """,
        markdown(table),
        f"From the trained networks' batches of eight, SPEAR (reimplemented) splits {whole}, without a wrong label. Attacks that rejected updates, with the reason:",
        markdown(out.reset_index().to_dict("records")),
        """
        **Other traces in an update.** *units at 0*: the share of the last layer's inputs that are 0 for all samples of the batch (their column of its gradient is 0).
        For texts, *named* is the share of the bytes in the batch whose row of the embedding moves, and *wrong* the share of moving rows whose byte is not in the batch.
        """,
        markdown(numbers(traces)),
    )


def modes(run):
    """Networks in training mode"""
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
    return parts(
        """
        Dropout before the last layer, or batch norm after both convolutions; B = 32, unbalanced batches. Where the client is in training
        mode, the attacker passes its 500 images in evaluation mode and, for batch norm, also in training mode, in one batch. Deep networks
        were not measured in training mode.
        """,
        markdown(table),
    )
