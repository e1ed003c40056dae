"""The learned attacker: rows to figures and small tables. Each takes the chapter's results."""

from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedleak.models import title
from notebooks import plots
from notebooks.learned.updates import BEST, MOST, SIMULATED, TRAINED, UNTRAINED, WHOLE
from notebooks.learned.leads import (
    EVEN,
    OWN,
    PUBLISHED,
    REAL,
    best_published,
    by_defence,
    by_half,
    main_table,
    lead,
    few_class_table,
)
from fedleak_book.evidence.estimates import having
from notebooks.show import TITLES, drawn
from notebooks.learned.updates import KNOWS

NAMES = {"learned": "learned", PUBLISHED: PUBLISHED}
NAMES |= {WHOLE: "RLU-WH", EVEN: "even-split baseline"}


def sized(axes, sizes, label="batch size B"):
    """Make the x axis logarithmic, with a tick for each size."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel(label)


def above(figure, axes, columns=4):
    """Draw the legend of one panel above all panels."""
    lines = axes.get_legend_handles_labels()
    look = dict(loc="outside upper center", frameon=False, fontsize=plots.SMALL)
    figure.legend(*lines, ncols=columns, **look)
    return figure


def main(run):
    """Draw iAcc by batch size, with intervals: learned attacker, best published attack by name, whole head, even-split baseline."""
    table = main_table(run).reset_index()
    sets = list(dict.fromkeys(table["data"]))
    figure = Figure(figsize=(7.6, 3.4 * len(sets) + 0.4), layout="constrained")
    grid = figure.subplots(len(sets), 2, sharey=True, squeeze=False)
    style = plots.style_of(list(NAMES))
    for (name, composition), part in table.groupby(["data", "composition"], sort=False):
        axes = grid[sets.index(name), REAL.index(composition)]
        for place, (line, label) in enumerate(NAMES.items()):
            numbers = [
                best_published(run, "judged", **where)
                if line == PUBLISHED
                else run.cell("judged", attack=line, **where)
                for where in part[["data", "batch_size", "composition"]].to_dict(
                    "records"
                )
            ]
            ends = [[y - y.low for y in numbers], [y.high - y for y in numbers]]
            colour, marker = style[line]
            look = {"color": colour, "marker": marker, "label": label, "capsize": 2}
            x = part["batch_size"] * 1.06 ** (place - 1.5)  # intervals side by side
            axes.errorbar(x, numbers, np.clip(ends, 0, None), **look)
        for at, which in zip(part["batch_size"], part["which"], strict=True):
            axes.text(at, 0.05, drawn(which), color=style[PUBLISHED][0], ha="center")
        sized(axes, sorted(set(part["batch_size"])))
        axes.set(title=f"{name}, {composition}", ylim=(0, 1.03))
        if composition == REAL[0]:
            axes.set_ylabel("label accuracy (iAcc)")
    return above(figure, grid[0, 0])


def expects(run):
    """Draw expected and actual iAcc of simulated batches: all, and those with the narrowest and widest intervals."""
    cells = pd.concat([run.best("judged"), run.best("deep")])
    cells = cells[cells["composition"].isin(list(SIMULATED))]
    nets = cells["net"].map(title, na_action="ignore").fillna("LeNet, " + cells["data"])
    cells = cells.assign(net=nets).sort_values("batch_size", kind="stable")
    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    panels = figure.subplots(1, cells["net"].nunique(), sharey=True)
    style = plots.style_of(list(SIMULATED))
    for axes, (net, rows) in zip(panels, cells.groupby("net", sort=False)):
        for kind, part in rows.groupby("composition", sort=False):
            colour, marker = style[kind]
            x, look = part["batch_size"], {"color": colour, "marker": marker}
            axes.plot(x, part["expected"], **look, mfc="white", ls=":")
            label = kind.partition(", ")[2] or "all batches"
            axes.plot(x, part["iacc"], **look, ls="-", label=label)
        sized(axes, sorted(set(rows["batch_size"])))
        axes.set_title(net)
    panels[0].set_ylabel("iAcc")
    return above(figure, panels[0], 3)


def sureness(run):
    """Draw the coverage of the 90 % intervals, by data set, batch size and composition."""
    cells = run.best("judged")
    cells = cells[cells["attack"] == "learned"]
    kinds = ["simulated", *REAL]
    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    axes = figure.subplots()
    for kind, (colour, marker) in plots.style_of(kinds).items():
        part = cells[cells["composition"] == kind].sort_values(["data", "batch_size"])
        x = np.arange(len(part)) + 0.15 * (kinds.index(kind) - 1)
        ends = abs(part[["coverage low", "coverage high"]].T - part["coverage"])
        look = dict(color=colour, marker=marker, ls="", label=kind)
        axes.errorbar(x, part["coverage"], ends, **look)
    axes.axhspan(0.85, 0.95, color="0.9", zorder=0)
    places = part["data"] + "\nB = " + part["batch_size"].astype(str)
    axes.set_xticks(range(len(part)), places, fontsize=plots.SMALL)
    axes.set(ylabel="share of counts inside", ylim=(0.5, 1.02))
    return above(figure, axes)


def more(run):
    """Draw iAcc on unbalanced batches with longer training, more images and the clients' images."""
    cells = run.best("bounds")
    cells = cells[cells["composition"] == "unbalanced"]
    ours = cells[having(attack="learned", knows="other images")(cells)]
    most, usual = ours["aux_images"].max(), sorted(set(ours["iterations"]))[-2]
    figure = Figure(figsize=(7.6, 3.4), layout="constrained")
    training_axes, images_axes = figure.subplots(1, 2, sharey=True)
    sizes = sorted(set(ours["batch_size"]))
    for size, (colour, marker) in plots.style_of(sizes).items():
        rows = ours[ours["batch_size"] == size]
        look = {"color": colour, "marker": marker, "label": f"B = {size}"}
        longer = rows[rows["aux_images"] == most].sort_values("iterations")
        training_axes.plot("iterations", "iacc", data=longer, **look)
        fewer = rows[rows["iterations"] == usual].sort_values("aux_images")
        images_axes.plot("aux_images", "iacc", data=fewer, **look)
        same = cells[cells["batch_size"] == size]
        oracle = same[having(attack="learned", knows=OWN["knows"])(same)]["iacc"].item()
        floor = same[same["attack"] == "even guess"]["iacc"].mean()
        for axes in (training_axes, images_axes):
            axes.axhline(
                oracle, color=colour, ls="--", lw=1, label=f"oracle, B = {size}"
            )
            axes.axhline(
                floor,
                color=colour,
                ls=":",
                lw=1,
                label=f"even-split baseline, B = {size}",
            )
    sized(training_axes, sorted(set(ours["iterations"])), "iterations, 10,000 images")
    sized(
        images_axes, sorted(set(ours["aux_images"])), "auxiliary images, 300 iterations"
    )
    training_axes.set_ylabel("iAcc")
    return above(figure, training_axes, 3)


def readings(run):
    """Draw iAcc with two and three classes, of attacks and of the best answer to the bias' gradient."""
    table = few_class_table(run).rename(
        columns={PUBLISHED: "best formula", EVEN: "class-prior baseline"}
    )
    figure = Figure(figsize=(7.6, 3.0), layout="constrained")
    axes = figure.subplots()
    names = ["learned", "best formula", "RLU", "class-prior baseline", BEST]
    for name, (colour, marker) in plots.style_of(names).items():
        x = np.arange(len(table)) + 0.12 * (names.index(name) - 2)
        axes.plot(x, table[name], color=colour, marker=marker, ls="", label=name)
    for place, most in enumerate(table[MOST]):
        label = MOST if not place else None
        axes.hlines(most, place - 0.4, place + 0.4, color="0.4", ls="--", label=label)
    labels = [f"{n} classes\nB = {size}" for n, size in table.index]
    axes.set_xticks(range(len(table)), labels)
    axes.set(ylabel="iAcc")
    return above(figure, axes, 3)


def head_alone(run):
    """Draw batches that head splitting recovers completely, and wrong solutions (double precision), by batch size."""
    table = run.best("determined")
    figure = Figure(figsize=(7.6, 2.9), layout="constrained")
    (lenet, resnet, strange) = figure.subplots(1, 3)
    style = plots.style_of([TRAINED, UNTRAINED])
    dashes = {"double": "-", "single": "--"}
    for (state, precision), part in table.groupby(["state", "precision"], sort=False):
        colour, marker = style[state]
        look = {"color": colour, "marker": marker, "ls": dashes[precision]}
        for axes, net in ((lenet, "lenet"), (resnet, "resnet20")):
            rows = part[part["net"] == net]
            label = f"{state}, {precision}"
            axes.plot(rows["batch_size"], rows["read"], **look, label=label)
        rows = part[(part["net"] == "lenet") & (part["precision"] == "double")]
        strange.plot(rows["batch_size"], rows["strange"], **look)
    for axes in (lenet, strange):
        axes.axvline(5, color="0.6", ls=":")
        axes.set_xlabel("batch size B")
    sized(resnet, sorted(set(table[table["net"] == "resnet20"]["batch_size"])))
    lenet.set(
        title="(a) LeNet, 10 classes",
        ylabel="share of batches read",
        ylim=(-0.03, 1.03),
    )
    resnet.set(title="(b) ResNet-20, 100 classes", ylim=(-0.03, 1.03))
    strange.set(
        title="(c) LeNet: wrong solutions",
        ylabel="solutions that are\nno sample, per batch",
    )
    return above(figure, lenet, 4)


def of_members(run):
    """Draw coverage and iAcc for members and non-members, with and without the training loss."""
    coverages, accuracies = (
        by_half(run, "members", value) for value in ("coverage", "iacc")
    )
    figure = Figure(figsize=(7.6, 3.4), layout="constrained")
    coverage_axes, accuracy_axes = figure.subplots(1, 2)
    style = plots.style_of(["learned", KNOWS])
    dashes = {"members": "-", "others": "--"}
    for half, name in product(dashes, style):
        colour, marker = style[name]
        look = {"color": colour, "marker": marker, "ls": dashes[half]}
        for axes, table in ((coverage_axes, coverages), (accuracy_axes, accuracies)):
            line = table.loc[half][name]
            axes.plot(line.index, line, **look, label=f"{half}, {name}")
            sized(axes, list(line.index))
    coverage_axes.axhspan(0.85, 0.95, color="0.9", zorder=0)
    coverage_axes.set(ylabel="share of counts inside", title="(a) 90 % intervals")
    accuracy_axes.set(ylabel="iAcc", title="(b) labels found")
    return above(figure, coverage_axes, 2)


def local(run):
    """Return iAcc after five local steps on LeNets (MNIST), and the paired lead over RLU."""
    rows = []
    for (state, scheme, lr), part in run.best("local").groupby(
        ["state", "scheme", "lr"], sort=False
    ):
        iacc = part.set_index("attack")["iacc"]
        cell = dict(state=state, scheme=scheme, lr=lr)
        over = lead(run, "local", "learned", "RLU", **cell)
        rows.append(
            {
                "network": state,
                "scheme": TITLES[scheme],
                "rate": lr,
                "learned": iacc["learned"],
                "RLU": iacc["RLU"],
                "RLU-WH": iacc.get(WHOLE),
                "even-split baseline": iacc[EVEN],
                "lead over RLU": over,
                "lead over RLU low": over.low,
                "lead over RLU high": over.high,
            }
        )
    return pd.DataFrame(rows)


def defended(run):
    """Return iAcc of unbalanced batches under a defence, with and without informing the attacker."""
    table = by_defence(run)
    names = NAMES | {"adaptive": "informed", "learned": "uninformed"}
    order = ["adaptive", "learned", WHOLE, EVEN, PUBLISHED]
    return table[order].rename(columns=names).reset_index()
