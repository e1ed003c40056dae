"""GDBR: figures and small tables of rows. A figure takes cells, one row per cell."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedleak import data
from notebooks import plots
from notebooks.show import show
from notebooks.gdbr.clients import FORMS, MODES, NETS, PAIRS, SCHEMES, TITLES

METRICS = {"insacc": "iAcc", "clsacc": "cAcc"}
PLACES = {name: data.title(name) for pair in PAIRS.values() for name in pair}
PLACES["photos"] = PLACES["cifar10"]  # which it stands in for
ON = {net: f"{TITLES[net]}\n{PLACES[PAIRS[net][1]]}" for net in PAIRS}
NAMED = {
    "paper": "the paper's form",
    "one vector": "one vector",
    "whitened": "whitened",
    "whitened, stale head": "whitened, old last layer",
}
STAND_INS = ("normal draws", "normal draws,\nby column", "columns\nshuffled")
STAND_INS += ("half of it\nmasked", "the true\ngradient")
SUBSTITUTES = dict(zip(MODES, STAND_INS))
ABOVE = dict(loc="outside upper center", frameon=False, fontsize=plots.SMALL)
LOOK = {name: plots.style_of(list(NAMED.values()))[name] for name in NAMED.values()}


def marked(ax, x, cells, colour, marker):
    """Draw means with their intervals at the places `x` of the cells' ``at``."""
    mean = cells["insacc"]
    ends = np.abs([mean - cells["insacc low"], cells["insacc high"] - mean])
    look = dict(fmt=marker, color=colour, capsize=2, markersize=6)
    ax.errorbar([x[name] for name in cells["at"]], mean, np.nan_to_num(ends), **look)


def compared(panels, height):
    """Return a figure and panels side by side that share their axis of iAcc."""
    figure = Figure(figsize=(8.4, height), layout="constrained")
    axes = figure.subplots(1, panels, sharey=True)
    axes[0].set(ylabel="iAcc", ylim=(0, 1.05))
    return figure, axes


def legend(figure, **looks):
    """Draw a legend of colours and markers by name above the panels."""
    handles = [
        Line2D([], [], color=c, marker=m, linestyle="", label=n)
        for n, (c, m) in looks.items()
    ]
    figure.legend(handles=handles, ncols=4, **ABOVE)


def table1(cells, printed, guess):
    """Draw Table I: iAcc by composition of the batch, ours, the paper's, and of a guess of equal counts."""
    cells = cells.query("init == 'positive' and form == 'paper'")
    x = {scheme: k for k, scheme in enumerate(SCHEMES)}
    (colour, _), line = plots.style_of(["GDBR"])["GDBR"], dict(marker="_", s=160)
    figure, axes = compared(len(NETS), 2.9)
    for ax, net in zip(axes, NETS, strict=True):
        of_network = cells[cells["net"] == net].assign(at=lambda t: t["scheme"])
        marked(ax, x, of_network, colour, "o")
        theirs = printed[printed["net"] == net].set_index("scheme")["insacc"]
        theirs = theirs.reindex(list(x))
        ax.scatter(x.values(), theirs, marker="x", color="black", zorder=4)
        classes = {"resnet18-conv": 100, "resnet50-conv-imagenet": 200}.get(net, 10)
        guesses = [guess.loc[classes, scheme] for scheme in x]
        ax.scatter(x.values(), guesses, color="grey", zorder=1, **line)
        ax.set(title=ON[net])
        ax.set_xticks(range(len(x)), list(x), rotation=60, fontsize=plots.SMALL)
    legend(figure, GDBR=(colour, "o"), paper=("black", "x"), guess=("grey", "_"))
    return figure


def table2(cells, printed):
    """Draw Table II: iAcc on random batches with auxiliary and with dummy images, by network and pixels."""
    cells = cells.query("scheme == 'random'").assign(at=lambda t: t["net"])
    kinds = {"aux": "auxiliary images", "dummy": "dummy images"}
    scales = {"normalised": "normalised pixels", "raw": "pixels in [0, 1]"}
    figure, axes = compared(2, 2.75)
    style = plots.style_of([*kinds.values()])
    for ax, (scale, title) in zip(axes, scales.items(), strict=True):
        for shift, (which, name) in zip((-0.12, 0.12), kinds.items()):
            x = {net: k + shift for k, net in enumerate(NETS)}
            chosen = (cells["scale"] == scale) & (cells["auxiliary"] == which)
            marked(ax, x, cells[chosen], *style[name])
            theirs = printed[printed["auxiliary"] == which].set_index("net")["insacc"]
            look = dict(marker="x", color=style[name][0], s=30, zorder=4)
            ax.scatter(x.values(), theirs.reindex(NETS), **look)
        ax.set(title=title)
        names = [ON[net].replace(" ImageNet", "\nImageNet") for net in NETS]
        ax.set_xticks(range(len(NETS)), names, fontsize=plots.SMALL)
    legend(figure, **style, paper=("black", "x"))
    return figure


def fig3(cells, published):
    """Draw Fig. 3: both metrics by batch size, for every attack."""
    places = {
        f"fig3-{net.removesuffix('-conv')}-{PAIRS[net][1]}-worst": {
            "panel": f"{TITLES[net]}: {METRICS['insacc']}"
        }
        for net in dict.fromkeys(cells["net"])
    }
    curves = pd.concat(
        cells.rename(columns=lambda c, m=m: c.replace(m, "value")).assign(
            panel=cells["net"].map(TITLES) + ": " + name
        )
        for m, name in METRICS.items()
    )
    order = [f"{TITLES[net]}: {name}" for name in METRICS.values() for net in NETS]
    curves = curves.sort_values(
        "panel", key=lambda c: c.map(order.index), kind="stable"
    )
    printed = plots.stated(published, places)
    names = dict(xlabel="batch size B", ylabel="accuracy", columns=4, printed=printed)
    return plots.curves(
        curves, x="batch_size", y="value", hue="attack", panel="panel", **names
    )


def fig5a(cells):
    """Draw Fig. 5 (a): the baselines by their substitute for the withheld gradient, and GDBR."""
    figure = Figure(figsize=(8.4, 2.7), layout="constrained")
    ax, style = figure.subplots(), plots.style_of(["GDBR", "ZLG", "LLG+"])
    for k, name in enumerate(("ZLG", "LLG+")):
        line = cells[cells["attack"] == name].set_index("mode").loc[MODES]
        ends = [
            line["insacc"] - line["insacc low"],
            line["insacc high"] - line["insacc"],
        ]
        look = dict(color=style[name][0], edgecolor="white", capsize=2, label=name)
        look |= dict(hatch="//" if k else None, yerr=np.nan_to_num(ends))
        ax.bar(np.arange(len(line)) + 0.36 * k - 0.18, line["insacc"], 0.34, **look)
    ours = cells.loc[cells["attack"] == "GDBR", "insacc"].iloc[0]
    ax.axhline(ours, color=style["GDBR"][0], label="GDBR, from the layer below")
    ax.axhspan(0, ours, color="grey", alpha=0.18, lw=0, zorder=0)
    ax.set_xticks(range(len(MODES)), [SUBSTITUTES[mode] for mode in MODES])
    ax.set(ylabel="iAcc", ylim=(0, 1.05))
    return plots.legend_above(figure, ax, 4, paper=True, fontsize=plots.SMALL)


def layered(cells):
    """Return cells by layer with the panel's name: their source, and whether pixels are normalised."""
    pixels = cells["scale"].map({"raw": "", "normalised": ", normalised"})
    return cells.assign(place=cells["data"].map(PLACES) + pixels)


LAYER = dict(x="layer", y="insacc", panel="panel", log2=False, columns=4)
LAYER |= dict(xlabel="layer, from the outputs", ylabel="iAcc")


def said_of_layers(table, published):
    """Return what Sec. V says of positive weights: the first layer is worst, the others lie within a range.

    The range is the claim's below the best of the other layers; the first layer lies below their mean by its claim.
    """
    rows, items = [], published.items
    for (panel, name), lines in table.groupby(["panel", "data"], sort=False):
        if f"fig4-{name}-same" not in items:  # the paper says nothing of MNIST
            continue
        curve = lines[lines["init"] == "positive"].set_index("layer")["insacc"]
        bottom, others = curve.index.max(), curve.drop(curve.index.max())
        apart = items[f"fig4-{name}-same"].published
        place = {"panel": panel, "hue": "positive weights"}
        same = {"low": others.max() - apart, "high": others.max()}
        rows += [place | same | {"x": layer} for layer in others.index]
        below = others.mean() - items[f"fig4-{name}-last"].published
        rows.append(place | {"x": bottom, "low": 0, "high": below})
    return pd.DataFrame(rows)


def fig4(cells, published):
    """Draw Figs. 4 and 5 (b): the paper's projection by layer whose gradient is used, by initialisation."""
    table = layered(cells.query("form == 'paper'"))
    table = table.assign(panel=table["place"], line=table["init"] + " weights")
    table = table.sort_values("source", ascending=False, kind="stable")
    printed = said_of_layers(table, published)
    return plots.curves(table, hue="line", printed=printed, **LAYER)


def forms(cells):
    """Draw Figs. 4 and 5 (b) for all three projections."""
    table = layered(cells)
    table = table.assign(
        panel=table["place"] + ",\n" + table["init"] + " weights",
        line=table["form"].map(NAMED),
    )
    order = {"positive": 0, "default": 1}
    return plots.curves(
        table.sort_values("init", key=lambda c: c.map(order), kind="stable"),
        hue="line",
        **LAYER,
    )


def penultimate(cells):
    """Draw iAcc on random batches from the layer below the last, by network, initialisation and projection."""
    cells = cells.query("scheme == 'random'").assign(at=lambda t: t["net"])
    figure, axes = compared(2, 2.55)
    names = [TITLES[net].replace("ResNet-", "ResNet-\n") for net in PAIRS]
    for ax, init in zip(axes, ("positive", "default"), strict=True):
        for k, form in enumerate(FORMS):
            x = {net: j + 0.2 * (k - 1) for j, net in enumerate(PAIRS)}
            chosen = (cells["init"] == init) & (cells["form"] == form)
            marked(ax, x, cells[chosen], *LOOK[NAMED[form]])
        ax.set(title=f"{init} weights")
        ax.set_xticks(range(len(PAIRS)), names, fontsize=plots.SMALL)
    legend(figure, **{NAMED[form]: LOOK[NAMED[form]] for form in FORMS})
    return figure


def fig6(cells, published):
    """Draw Fig. 6: iAcc under pruning and under noise, by network, initialisation and projection."""
    keys = ["defence", "init", "form"]
    order = ["pruning", "noise", "positive", "default", "paper", "whitened"]
    table = cells.sort_values(keys, key=lambda c: c.map(order.index), kind="stable")
    table = table.assign(
        panel=[f"{d}, {i} weights,\n{NAMED[f]}" for d, i, f in table[keys].to_numpy()],
        line=table["net"].map(TITLES),
    )
    half = table.query(
        "defence == 'pruning' and init == 'positive' and form == 'paper'"
    )
    places = {
        f"fig6a-{net.removesuffix('-conv')}-{PAIRS[net][1]}-moderate": {
            "panel": half["panel"].iloc[0],
            "x": 0.5,
        }
        for net in dict.fromkeys(half["net"])
    }
    look = LAYER | dict(x="level", xlabel="", printed=plots.stated(published, places))
    figure = plots.curves(table, hue="line", **look)
    for k, ax in enumerate(figure.axes):
        ax.set_xlabel("share pruned" if k < 4 else "deviation of the noise")
    return figure


def trained(cells):
    """Draw iAcc during training, by data, composition and projection."""
    rounds = sorted(cells["rounds"].unique())
    table = cells.assign(
        panel=cells["data"].map(PLACES) + ", " + cells["scheme"],
        line=cells["form"].map(NAMED),
        step=cells["rounds"].map(rounds.index),
    )
    table = table.sort_values("source", ascending=False, kind="stable")
    figure = plots.curves(
        table, hue="line", **LAYER | dict(x="step", xlabel="rounds of training")
    )
    for ax in figure.axes:
        ax.set_xticks(range(len(rounds)), rounds)
    return figure


def two_changes(cells):
    """Draw the gains of the whitened projection's two changes, single and together, by network."""
    table = cells.query("form != 'paper'").assign(
        network=lambda t: t["net"].map(TITLES),
        form=lambda t: t["form"].replace("whitened", "both"),
    )
    caption = (
        "Gain of iAcc over the paper's form under default weights, with 95 % interval."
    )
    show(table, caption, "network n", value="gain", wide="form")
