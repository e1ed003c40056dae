"""The arena: rows to figures. Names are words, legends stand above the panels."""

import numpy as np
from matplotlib.figure import Figure

from fedleak.models import title
from notebooks import plots
from notebooks.arena.updates import FLOORS, STATES, TOLD
from notebooks.arena.ranking import WITHOUT_AUX, average_waiting, find_best
from notebooks.arena.ranking import keep_complete, load_balance, load_kinds
from notebooks.arena.ranking import load_labellings, load_networks
from notebooks.arena.ranking import load_rungs, rescore, score_baseline, usual_first
from notebooks.arena.updates import RUNGS, SOFT
from notebooks.show import drawn

STRENGTHS = {
    "noise": "noise, σ = {:g}",
    "clipping and noise": "clipping, noise of σ = {:g}",
    "sparsification": "sparsification, {:.0%} not sent",
}
GREY = "dimgrey"


def draw_one_update(scores, floors):
    """Draw the iAcc of every attack on one update, from a mapping of names to scores; dashed: the class-prior baseline."""
    names = sorted(scores, key=lambda name: scores[name])
    figure = Figure(figsize=(6.8, 0.8 + 0.235 * len(names)), layout="constrained")
    ax = figure.subplots()
    colours = [GREY if name in floors else "C0" for name in names]
    titles = [drawn(name) for name in names]
    ax.barh(titles, [scores[name] for name in names], color=colours, height=0.7)
    ax.axvline(scores["prior guess"], color=GREY, linestyle="--", linewidth=1)
    ax.set(xlim=(0, 1), xlabel="label accuracy (iAcc)")
    ax.grid(axis="y", visible=False)
    return figure


def draw_board(run, ax, table, rows, columns, title, prior, only=None):
    """Draw the best attack of every cell as a heat map: name, iAcc and lead over the next (≈: not clear).

    `rows` and `columns` name the table's columns that make a cell, `prior` the one of them at whose edge the class-prior baseline
    stands, `only` the attacks to choose from.
    """
    cells = rescore(run, find_best(table, [rows, columns], only))
    names = {c: list(dict.fromkeys(cells[c])) for c in (rows, columns)}
    values = cells.pivot(index=rows, columns=columns, values="iacc")
    values = values.loc[names[rows], names[columns]]
    ax.imshow(values, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    middle = {"ha": "center", "va": "center", "fontsize": plots.SMALL}
    for cell in cells.to_dict("records"):
        place = names[columns].index(cell[columns]), names[rows].index(cell[rows])
        lead = f"{'' if cell['clear'] else '≈'}{round(cell['lead'], 2) + 0.0:+.2f}".replace(
            "-", "−"
        )
        attack = drawn(cell["attack"]).removesuffix(" baseline")
        colour = "white" if cell["iacc"] > 0.6 else "black"
        numbers = f"{cell['iacc']:.2f} {lead}"
        ax.text(*place, f"{attack}\n{numbers}", color=colour, **middle)
    below = prior == columns
    for place, floor in enumerate(score_baseline(table, prior).loc[names[prior]]):
        at = (place, len(names[rows])) if below else (len(names[columns]), place)
        ax.text(*at, f"{floor:.2f}", **middle)
    names[rows if below else columns].append("class prior")
    wide, high = len(names[columns]), len(names[rows])
    ax.set_xticks(range(wide), names[columns])
    ax.set_yticks(range(high), [str(n).replace(", ", ",\n") for n in names[rows]])
    ax.set_xticks(np.arange(wide - 1) + 0.5, minor=True)
    ax.set_yticks(np.arange(high - 1) + 0.5, minor=True)
    ax.set(xlim=(-0.5, wide - 0.5), ylim=(high - 0.5, -0.5), title=title)
    ax.grid(False)
    ax.grid(which="minor", color="white", linewidth=2)
    ax.tick_params(which="minor", length=0)


def add_labels(table):
    """Add the texts of the boards' rows and columns to rows of several networks."""
    row = table["net"].map(title) + ", " + table["state"]
    return table.assign(row=row, column="B = " + table["batch_size"].astype(str))


def draw_models(run):
    """Draw the best attack by network and batch size: above without auxiliary data, below of all."""
    table = add_labels(load_networks(run))
    figure = Figure(figsize=(7.3, 8), layout="constrained")
    above, below = figure.subplots(2, 1)
    look = ("row", "column")
    draw_board(
        run, above, table, *look, "without auxiliary data", "column", WITHOUT_AUX
    )
    draw_board(run, below, table, *look, "with auxiliary data", "column")
    return figure


def draw_conditions(run):
    """Draw the best attack by composition of the batch, on the left, and by training scheme."""
    parts = {"composition": "compositions", "scheme": "schemes"}
    figure = Figure(figsize=(7.6, 5), layout="constrained")
    for ax, (axis, experiment) in zip(
        figure.subplots(1, 2), parts.items(), strict=True
    ):
        table = usual_first(run, experiment, axis)
        draw_board(run, ax, table, axis, "state", f"by {axis}", axis)
    return figure


def draw_softened(run):
    """Draw the iAcc of single attacks on the trained network by the client's labelling, at the larger batch size."""
    table = load_labellings(run)
    by = ["labelling", "state", "batch_size"]
    size = table["batch_size"].max()
    table = keep_complete(table, by).query("state == 'trained' and batch_size == @size")
    mean = table.groupby(["attack", "labelling"])["iacc"].mean().unstack()
    names = ["LLG", "RLU", "RLU, whole head", "learned", *TOLD]
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    ax = figure.subplots()
    for (labelling, values), marker in zip(
        mean.loc[names, [*SOFT]].items(), "osD", strict=True
    ):
        ax.plot(values, [*map(drawn, names)], marker, label=labelling, markersize=7)
    ax.axvline(
        mean.loc["prior guess", "one-hot"],
        color=GREY,
        linestyle="--",
        label="class-prior baseline",
    )
    ax.set(xlim=(0, 1), xlabel=f"iAcc, B = {size}")
    ax.invert_yaxis()
    figure.legend(
        *ax.get_legend_handles_labels(),
        loc="outside upper center",
        ncols=4,
        frameon=False,
    )
    return figure


def draw_inputs(run):
    """Draw the iAcc of every attack on images, texts and tables, untrained and trained; a gap: some updates were rejected."""
    by = ["data", "state"]
    table = load_kinds(run).query("batch_size == 32 and scheme == 'FedSGD'")
    mean = keep_complete(table, by).groupby(["attack", *by])["iacc"].mean().unstack()
    order = mean["untrained"].unstack().mean(axis=1).sort_values().index
    panels = {"MNIST": "images: MNIST", "CLDR names": "texts: names"}
    panels |= {"wine": "rows: wine", "breast cancer": "rows: tumours"}
    figure = Figure(figsize=(8, 0.9 + 0.21 * len(order)), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True)
    for ax, (data, name) in zip(axes, panels.items(), strict=True):
        part = mean.xs(data, level="data").reindex(order)
        for state, marker in zip(STATES, "os"):
            ax.plot(part[state], range(len(order)), marker, label=state, markersize=6)
        floor = part.loc["prior guess"].mean()
        ax.axvline(floor, color=GREY, linestyle="--", label="class-prior baseline")
        ax.set(title=name, xlabel="iAcc", xlim=(-0.05, 1.05))
        ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes[0].set_yticks(range(len(order)), [*map(drawn, order)])
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=3,
        frameon=False,
    )
    return figure


def draw_balance(run):
    """Draw the best attack's iAcc under each defence, untrained and trained, and the accuracy that the defence costs."""
    table = rescore(run, load_balance(run))
    names = [
        STRENGTHS.get(row["defence"], row["defence"])
        .format(row["strength"])
        .replace("%", "\u202f%")
        + (row["who"] and f", {row['who']} server")
        for row in table.to_dict("records")
    ]
    table = table.assign(name=names)
    order = list(dict.fromkeys(names))
    figure = Figure(figsize=(8, 0.9 + 0.42 * len(order)), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12)
    axes = figure.subplots(1, 3, sharey=True)
    for ax, state in zip(axes, STATES):
        part = table[table["state"] == state]
        error = np.nan_to_num(_measure_sides(part, "iacc"))
        ax.errorbar(
            part["iacc"], part["name"].map(order.index), xerr=error, fmt="D", color="C0"
        )
        for attack, x, name in zip(
            part["attack"], part["iacc"], part["name"], strict=True
        ):
            text, at = drawn(attack), (x, order.index(name))
            look = dict(xytext=(0, 5), textcoords="offset points", fontsize=plots.SMALL)
            ax.annotate(text, at, ha="right" if x > 0.6 else "left", **look)
        ax.axvline(part["floor"].iloc[0], color=GREY, linestyle="--")
        ax.set(title=f"{state} network", xlabel="iAcc, best attack", xlim=(0, 1.05))
        ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    part = table.drop_duplicates("name")
    error = np.nan_to_num(_measure_sides(part, "cost"))
    axes[2].errorbar(
        part["cost"], part["name"].map(order.index), xerr=error, fmt="s", color="C3"
    )
    axes[2].set(title="cost in training", xlabel="test accuracy lost")
    axes[2].set(xlim=(-0.2, 1))
    axes[0].set_yticks(range(len(order)), order)
    axes[0].set_ylim(len(order) - 0.5, -0.5)
    return figure


def _measure_sides(part, value):
    """Return the distances from a value to both ends of its interval, ``[2, rows]``."""
    ends = [part[value] - part[f"{value} low"], part[f"{value} high"] - part[value]]
    return np.clip(ends, 0, None)


def draw_waiting(run):
    """Draw the iAcc over the clients from sums of many rounds, by attack."""
    mean = average_waiting(run)
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, state in zip(axes, STATES, strict=True):
        for (attack, line), marker in zip(
            mean[state].groupby("attack", sort=False), "osD^v"
        ):
            floor = (
                dict(color=GREY, linestyle="--", marker="")
                if attack in FLOORS
                else {"marker": marker}
            )
            line = line.droplevel("attack")
            ax.plot(line.index, line, label=drawn(attack), **floor)
        ax.set(title=f"{state} model", xlabel="rounds", ylim=(0, 1.03))
    axes[0].set_ylabel("iAcc over the clients")
    figure.legend(
        *axes[0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=5,
        frameon=False,
    )
    return figure


RUNG_NAMES = [*RUNGS, "only the sum, passive", "only the sum, malicious"]


def draw_ladder(run):
    """Draw the ladder of knowledge: every attack that an adversary can run, grey, and the best one by name."""
    rows = load_rungs(run)
    top = rescore(run, find_best(rows, ["state", "rung"]))
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, state in zip(axes, STATES, strict=True):
        part = keep_complete(rows[rows["state"] == state], ["rung"])
        averages = (
            part.groupby(["rung", "attack"], sort=False)["iacc"].mean().reset_index()
        )
        ax.scatter(
            averages["iacc"],
            averages["rung"].map(RUNG_NAMES.index),
            color="grey",
            alpha=0.45,
            s=22,
        )
        first = top[top["state"] == state]
        x, y = first["iacc"], first["rung"].map(RUNG_NAMES.index)
        ax.errorbar(
            x, y, xerr=np.nan_to_num(_measure_sides(first, "iacc")), fmt="D", color="C0"
        )
        for attack, iacc, place in zip(first["attack"], x, y, strict=True):
            to_left = {"ha": "right", "xytext": (-2, 8)}
            side = to_left if iacc > 0.5 else {"ha": "left", "xytext": (2, 8)}
            side |= {"textcoords": "offset points", "fontsize": plots.SMALL}
            name = drawn(attack)
            ax.annotate(f"{name} {iacc:.2f}", (iacc, place), **side)
        limits = {"xlim": (-0.03, 1.08), "ylim": (len(RUNG_NAMES) - 0.5, -0.8)}
        ax.set(title=f"{state} model", xlabel="iAcc", **limits)
        ax.set_yticks(range(len(RUNG_NAMES)), RUNG_NAMES)
    return figure
