"""The arena: rows to figures. Names are words, legends stand above the panels."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedleak.models import title
from fedleak_book.evidence.results import Number
from notebooks import plots
from notebooks.arena.updates import FLOORS, SOFT, TOLD
from notebooks.arena.balance import average_waiting, load_balance
from notebooks.arena.ranking import WITHOUT_AUX, find_best, keep_complete, load_kinds
from notebooks.arena.ranking import load_networks, load_rows, load_rungs
from notebooks.arena.ranking import load_usual_first, rescore, score_baseline
from notebooks.arena.experiments import RUNGS
from notebooks.show import drawn
from notebooks.updates import STATES

STRENGTHS = {
    "noise": "noise, σ = {:g}",
    "clipping and noise": "clipping, noise of σ = {:g}",
    "sparsification": "sparsification, {:.0%} not sent",
}
GREY = "dimgrey"
FLOOR = {"color": GREY, "linestyle": "--", "label": "class-prior baseline"}
TICKS = [0, 0.5, 1], ["0", "0.5", "1"]


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
        attack, lead = drawn(cell["attack"]), Number(round(cell["lead"], 2) + 0.0)
        numbers = f"{cell['iacc']:.2f} {'' if cell['clear'] else '≈'}{lead:+.2f}"
        words = f"{attack.removesuffix(' baseline')}\n{numbers}"
        colour = "white" if cell["iacc"] > 0.6 else "black"
        ax.text(*place, words, color=colour, **middle)
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
    kinds = {"without auxiliary data": WITHOUT_AUX, "with auxiliary data": None}
    for ax, (kind, only) in zip(figure.subplots(2, 1), kinds.items(), strict=True):
        draw_board(run, ax, table, "row", "column", kind, "column", only)
    return figure


def draw_conditions(run):
    """Draw the best attack by composition of the batch, on the left, and by training scheme."""
    parts = {"composition": "compositions", "scheme": "schemes"}
    figure = Figure(figsize=(7.6, 5), layout="constrained")
    for ax, (axis, name) in zip(figure.subplots(1, 2), parts.items(), strict=True):
        table = load_usual_first(run, name, axis)
        draw_board(run, ax, table, axis, "state", f"by {axis}", axis)
    return figure


def draw_softened(run):
    """Draw the iAcc of single attacks on the trained network by the client's labelling, at the larger batch size."""
    table = load_rows(run, "client_steps", net="lenet")
    by = ["labelling", "state", "batch_size"]
    size = table["batch_size"].max()
    table = keep_complete(table, by).query("state == 'trained' and batch_size == @size")
    mean = table.groupby(["attack", "labelling"])["iacc"].mean().unstack()
    names = ["LLG", "RLU", "RLU, whole head", "learned", *TOLD]
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    ax, titles = figure.subplots(), [*map(drawn, names)]
    for labelling, marker in zip(SOFT, "osD", strict=True):
        values = mean.loc[names, labelling]
        ax.plot(values, titles, marker, label=labelling, markersize=7)
    ax.axvline(mean.loc["prior guess", "one-hot"], **FLOOR)
    ax.set(xlim=(0, 1), xlabel=f"iAcc, B = {size}")
    ax.invert_yaxis()
    return plots.legend_above(figure, ax, 4)


def draw_inputs(run):
    """Draw the iAcc of every attack on images, texts and tables, untrained and trained; a gap: some updates were rejected."""
    by = ["data", "state"]
    table = load_kinds(run, batch_size=32, scheme="FedSGD")
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
        ax.axvline(part.loc["prior guess"].mean(), **FLOOR)
        ax.set(title=name, xlabel="iAcc", xlim=(-0.05, 1.05))
        ax.set_xticks(*TICKS)
    axes[0].set_yticks(range(len(order)), [*map(drawn, order)])
    return plots.legend_above(figure, axes[0], 3)


def draw_best(ax, best, places, middle, offset, number=""):
    """Draw the best attack of every row: its iAcc with the interval, and its name, to the left beyond the `middle`."""
    errors = plots.bars(best, "iacc")
    ax.errorbar(best["iacc"], places, xerr=errors, fmt="D", color="C0")
    for attack, iacc, place in zip(best["attack"], best["iacc"], places, strict=True):
        side, sign = ("right", -1) if iacc > middle else ("left", 1)
        look = {"textcoords": "offset points", "fontsize": plots.SMALL, "ha": side}
        text = f"{drawn(attack)}{number.format(iacc)}"
        ax.annotate(text, (iacc, place), (sign * offset[0], offset[1]), **look)


def draw_balance(run):
    """Draw the best attack's iAcc under each defence, untrained and trained, and the accuracy that the defence costs."""
    table = rescore(run, load_balance(run))
    form = table["defence"].map(STRENGTHS).fillna(table["defence"])
    names = [f.format(s) for f, s in zip(form, table["strength"], strict=True)]
    server = [who and f", {who} server" for who in table["who"]]
    names = pd.Series(names).str.replace("%", "\u202f%") + server
    order = list(dict.fromkeys(names))
    table = table.assign(name=names, place=names.map(order.index))
    figure = Figure(figsize=(8, 0.9 + 0.42 * len(order)), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12)
    axes = figure.subplots(1, 3, sharey=True)
    for ax, state in zip(axes, STATES):
        part = table[table["state"] == state]
        draw_best(ax, part, part["place"], 0.6, (0, 5))
        ax.axvline(part["floor"].iloc[0], color=GREY, linestyle="--")
        ax.set(title=f"{state} network", xlabel="iAcc, best attack", xlim=(0, 1.05))
        ax.set_xticks(*TICKS)
    part = table.drop_duplicates("name")
    errors = plots.bars(part, "cost")
    axes[2].errorbar(part["cost"], part["place"], xerr=errors, fmt="s", color="C3")
    axes[2].set(title="cost in training", xlabel="test accuracy lost", xlim=(-0.2, 1))
    axes[0].set_yticks(range(len(order)), order)
    axes[0].set_ylim(len(order) - 0.5, -0.5)
    return figure


def draw_waiting(run):
    """Draw the iAcc over the clients from sums of many rounds, by attack."""
    mean = average_waiting(run)
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, state in zip(axes, STATES, strict=True):
        lines = mean[state].unstack("rounds").iterrows()
        for (attack, line), marker in zip(lines, "osD^v"):
            dashed = {"color": GREY, "linestyle": "--"}
            look = dashed if attack in FLOORS else {"marker": marker}
            ax.plot(line.index, line, label=drawn(attack), **look)
        ax.set(title=f"{state} model", xlabel="rounds", ylim=(0, 1.03))
    axes[0].set_ylabel("iAcc over the clients")
    return plots.legend_above(figure, axes[0], 5)


def draw_ladder(run):
    """Draw the ladder of knowledge: every attack that an adversary can run, grey, and the best one by name."""
    rows = load_rungs(run)
    names = [*RUNGS, "only the sum, passive", "only the sum, malicious"]
    best = rescore(run, find_best(rows, ["state", "rung"]))
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, state in zip(axes, STATES, strict=True):
        part = keep_complete(rows[rows["state"] == state], ["rung"])
        mean = part.groupby(["rung", "attack"], sort=False)["iacc"].mean()
        places = mean.index.get_level_values("rung").map(names.index)
        ax.scatter(mean, places, color="grey", alpha=0.45, s=22)
        part = best[best["state"] == state]
        draw_best(ax, part, part["rung"].map(names.index), 0.5, (2, 8), " {:.2f}")
        limits = {"xlim": (-0.03, 1.08), "ylim": (len(names) - 0.5, -0.8)}
        ax.set(title=f"{state} model", xlabel="iAcc", **limits)
        ax.set_yticks(range(len(names)), names)
    return figure
