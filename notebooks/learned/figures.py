"""The learned attacker: rows to figures and small tables. Each takes the chapter's results."""

from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedleak.models import title
from notebooks import plots
from notebooks.learned.updates import BEST, HALVES, KNOWS, MOST, SIMULATED, WHOLE
from notebooks.learned.leads import EVEN, OWN, PUBLISHED, REAL, best_published
from notebooks.learned.leads import by_defence, by_half, few_class_table, lead
from notebooks.learned.leads import main_table
from notebooks.show import TITLES, drawn
from notebooks.updates import TRAINED, UNTRAINED

NAMES = {"learned": "learned", PUBLISHED: PUBLISHED}
NAMES |= {WHOLE: "RLU-WH", EVEN: "even-split baseline"}


def panels(*shape, height=3.4, **how):
    """Return a figure as wide as a page, and its axes."""
    figure = Figure(figsize=(7.6, height), layout="constrained")
    return figure, figure.subplots(*shape, **how)


def looks_of(names):
    """Return colour and marker of every name, as `plot` takes them."""
    style = plots.style_of(list(names))
    return {name: {"color": c, "marker": m} for name, (c, m) in style.items()}


def sized(axes, sizes, label="batch size B"):
    """Make the x axis logarithmic, with a tick for each size."""
    sizes = sorted(set(sizes))
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel(label)


def above(figure, axes, columns=4):
    """Draw the legend of one panel above all panels."""
    return plots.legend_above(figure, axes, columns, fontsize=plots.SMALL)


def main(run):
    """Draw iAcc by batch size, with intervals: learned attacker, best published attack by name, whole head, even-split baseline."""
    table = main_table(run).reset_index()
    sets = list(dict.fromkeys(table["data"]))
    how = {"sharey": True, "squeeze": False}
    figure, grid = panels(len(sets), 2, height=3.4 * len(sets) + 0.4, **how)
    looks = looks_of(NAMES)
    for (name, composition), part in table.groupby(["data", "composition"], sort=False):
        axes = grid[sets.index(name), REAL.index(composition)]
        cells = part[["data", "batch_size", "composition"]].to_dict("records")
        for place, (line, label) in enumerate(NAMES.items()):
            numbers = [
                best_published(run, "judged", **cell).score
                if line == PUBLISHED
                else run.cell("judged", attack=line, **cell)
                for cell in cells
            ]
            ends = [[y - y.low for y in numbers], [y.high - y for y in numbers]]
            x = part["batch_size"] * 1.06 ** (place - 1.5)  # intervals side by side
            look = looks[line] | {"label": label, "capsize": 2}
            axes.errorbar(x, numbers, np.clip(ends, 0, None), **look)
        colour = looks[PUBLISHED]["color"]
        for at, which in zip(part["batch_size"], part["which"], strict=True):
            axes.text(at, 0.05, drawn(which), color=colour, ha="center")
        sized(axes, part["batch_size"])
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
    figure, grid = panels(1, cells["net"].nunique(), height=3.2, sharey=True)
    looks = looks_of(SIMULATED)
    for axes, (net, rows) in zip(grid, cells.groupby("net", sort=False)):
        for kind, part in rows.groupby("composition", sort=False):
            x, label = part["batch_size"], kind.partition(", ")[2] or "all batches"
            axes.plot(x, part["expected"], **looks[kind], mfc="white", ls=":")
            axes.plot(x, part["iacc"], **looks[kind], ls="-", label=label)
        sized(axes, rows["batch_size"])
        axes.set_title(net)
    grid[0].set_ylabel("iAcc")
    return above(figure, grid[0], 3)


def sureness(run):
    """Draw the coverage of the 90 % intervals, by data set, batch size and composition."""
    cells = run.cells("judged", attack="learned")
    figure, axes = panels(height=3.2)
    looks = looks_of(["simulated", *REAL])
    for place, (kind, look) in enumerate(looks.items()):
        part = cells[cells["composition"] == kind].sort_values(["data", "batch_size"])
        x = np.arange(len(part)) + 0.15 * (place - 1)
        ends = plots.bars(part, "coverage")
        axes.errorbar(x, part["coverage"], ends, **look, ls="", label=kind)
    axes.axhspan(0.85, 0.95, color="0.9", zorder=0)
    places = part["data"] + "\nB = " + part["batch_size"].astype(str)
    axes.set_xticks(range(len(part)), places, fontsize=plots.SMALL)
    axes.set(ylabel="share of counts inside", ylim=(0.5, 1.02))
    return above(figure, axes)


def more(run):
    """Draw iAcc on unbalanced batches with longer training, more images and the clients' images."""
    cells = run.cells("bounds", composition="unbalanced")
    is_ours = cells["attack"] == "learned"
    is_oracle = is_ours & (cells["knows"] == OWN["knows"])
    is_even = cells["attack"] == "even guess"
    ours = cells[is_ours & ~is_oracle]
    most, usual = ours["aux_images"].max(), sorted(set(ours["iterations"]))[-2]
    figure, (training_axes, images_axes) = panels(1, 2, sharey=True)
    for size, look in looks_of(sorted(set(ours["batch_size"]))).items():
        rows, name = ours[ours["batch_size"] == size], f"B = {size}"
        longer = rows[rows["aux_images"] == most].sort_values("iterations")
        training_axes.plot("iterations", "iacc", data=longer, **look, label=name)
        fewer = rows[rows["iterations"] == usual].sort_values("aux_images")
        images_axes.plot("aux_images", "iacc", data=fewer, **look, label=name)
        iacc = cells[cells["batch_size"] == size]["iacc"]
        lines = {"oracle": ("--", is_oracle), "even-split baseline": (":", is_even)}
        for axes, (label, (dashes, chosen)) in product(
            (training_axes, images_axes), lines.items()
        ):
            y, line = iacc[chosen].mean(), {"color": look["color"], "ls": dashes}
            axes.axhline(y, **line, lw=1, label=f"{label}, {name}")
    sized(training_axes, ours["iterations"], "iterations, 10,000 images")
    sized(images_axes, ours["aux_images"], "auxiliary images, 300 iterations")
    training_axes.set_ylabel("iAcc")
    return above(figure, training_axes, 3)


def readings(run):
    """Draw iAcc with two and three classes, of attacks and of the best answer to the bias' gradient."""
    names = {PUBLISHED: "best formula", EVEN: "class-prior baseline"}
    table = few_class_table(run).rename(columns=names)
    figure, axes = panels(height=3.0)
    looks = looks_of(["learned", "best formula", "RLU", "class-prior baseline", BEST])
    for place, (name, look) in enumerate(looks.items()):
        x = np.arange(len(table)) + 0.12 * (place - 2)
        axes.plot(x, table[name], **look, ls="", label=name)
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
    figure, (lenet, resnet, strange) = panels(1, 3, height=2.9)
    looks = looks_of([TRAINED, UNTRAINED])
    for (state, precision), part in table.groupby(["state", "precision"], sort=False):
        look = looks[state] | {"ls": "-" if precision == "double" else "--"}
        rows = dict(list(part.groupby("net")))
        for axes, net in ((lenet, "lenet"), (resnet, "resnet20")):
            values = rows[net]["batch_size"], rows[net]["read"]
            axes.plot(*values, **look, label=f"{state}, {precision}")
        if precision == "double":
            strange.plot(rows["lenet"]["batch_size"], rows["lenet"]["strange"], **look)
    for axes in (lenet, strange):
        axes.axvline(5, color="0.6", ls=":")
        axes.set_xlabel("batch size B")
    sized(resnet, table[table["net"] == "resnet20"]["batch_size"])
    lenet.set(title="(a) LeNet, 10 classes", ylabel="share of batches read")
    resnet.set(title="(b) ResNet-20, 100 classes")
    strange.set(title="(c) LeNet: wrong solutions")
    strange.set_ylabel("solutions that are\nno sample, per batch")
    for axes in (lenet, resnet):
        axes.set_ylim(-0.03, 1.03)
    return above(figure, lenet, 4)


def of_members(run):
    """Draw coverage and iAcc for members and non-members, with and without the training loss."""
    figure, axes = panels(1, 2)
    looks = looks_of(["learned", KNOWS])
    for ax, value in zip(axes, ("coverage", "iacc"), strict=True):
        table = by_half(run, "members", value)
        for (half, dashes), name in product(zip(HALVES, ("-", "--")), looks):
            line = table.loc[half][name]
            label = f"{half}, {name}"
            ax.plot(line.index, line, **looks[name], ls=dashes, label=label)
        sized(ax, line.index)
    axes[0].axhspan(0.85, 0.95, color="0.9", zorder=0)
    axes[0].set(ylabel="share of counts inside", title="(a) 90 % intervals")
    axes[1].set(ylabel="iAcc", title="(b) labels found")
    return above(figure, axes[0], 2)


def local(run):
    """Return iAcc after five local steps on LeNets (MNIST), and the paired lead over RLU."""
    rows, by = [], ["state", "scheme", "lr"]
    names = {"learned": "learned", "RLU": "RLU", WHOLE: "RLU-WH"}
    names |= {EVEN: "even-split baseline"}
    for setting, part in run.best("local").groupby(by, sort=False):
        cell, iacc = dict(zip(by, setting)), part.set_index("attack")["iacc"]
        over = lead(run, "local", "learned", "RLU", **cell)
        row = {"network": cell["state"], "scheme": TITLES[cell["scheme"]]}
        row |= {"rate": cell["lr"]}
        row |= {name: iacc.get(attack) for attack, name in names.items()}
        row |= {"lead over RLU": over, "lead over RLU low": over.low}
        rows.append(row | {"lead over RLU high": over.high})
    return pd.DataFrame(rows)


def defended(run):
    """Return iAcc of unbalanced batches under a defence, with and without informing the attacker."""
    names = NAMES | {"adaptive": "informed", "learned": "uninformed"}
    order = ["adaptive", "learned", WHOLE, EVEN, PUBLISHED]
    return by_defence(run)[order].rename(columns=names).reset_index()
