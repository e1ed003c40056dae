"""RLU: figures and small tables of rows. A figure takes cells, one row per cell, unless its docstring differs."""

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import stats

from fedleak import metrics
from fedleak.data.partitions import dirichlet
from notebooks import plots
from notebooks.rlu.clients import count_labels
from notebooks.rlu.cells import RULES, SETTING, joined, named
from notebooks.rlu.clients import CLIENTS, WAYS


def by_rule(cells):
    """Sort cells in the order of the rules, which determines their colours."""
    return cells.sort_values(
        "rule", key=lambda rules: rules.map(RULES.index), kind="stable"
    )


def dots(cells, hue, names, xlabel, value="iacc", panel=None, printed=None):
    """Draw a row per setting (column ``row``), a point with its 95 % interval per `hue`, and a panel per `panel`.

    The paper's values, `printed`, have the same columns: crosses.
    """
    parts = {"": cells} if panel is None else dict(list(cells.groupby(panel)))
    rows = {title: list(dict.fromkeys(part["row"])) for title, part in parts.items()}
    shared = len(rows) > 1 and set.intersection(*map(set, rows.values()))
    if shared:
        rows = {title: list(dict.fromkeys(cells["row"])) for title in rows}
    tall = 0.085 * len(names) * max(map(len, rows.values())) + 1.6
    figure = Figure(figsize=(7.6 if panel else 6.6, tall), layout="constrained")
    style = plots.style_of(names)
    how = dict(squeeze=False, sharex=True, sharey=bool(shared))
    panels = figure.subplots(1, len(parts), **how)[0]
    for axes, (title, part) in zip(panels, parts.items()):
        for k, name in enumerate(names):
            line = part[part[hue] == name].set_index("row").reindex(rows[title])
            at = np.arange(len(line)) + 0.6 * ((k + 0.5) / len(names) - 0.5)
            colour, marker = style[name]
            low, high = line[f"{value} low"], line[f"{value} high"]
            bars = np.nan_to_num(
                np.clip([line[value] - low, high - line[value]], 0, None)
            )
            look = dict(fmt=marker, color=colour, capsize=2, markersize=4.5)
            axes.errorbar(line[value], at, xerr=bars, **look)
            if printed is not None:
                theirs = printed[(printed[hue] == name)]
                theirs = theirs[theirs[panel] == title] if panel else theirs
                at_rows = theirs.set_index("row")[value].reindex(rows[title])
                axes.scatter(at_rows.to_numpy(), at, color=colour, **plots.CROSS)
        axes.set_yticks(range(len(rows[title])), rows[title], fontsize=plots.SMALL)
        axes.set(ylim=(len(rows[title]) - 0.4, -0.6), xlabel=xlabel)
        axes.set_title(title, fontsize=plots.SMALL)
    handles = [
        Line2D([], [], color=c, marker=m, linestyle="", label=n)
        for n, (c, m) in style.items()
    ]
    entries = [*zip(handles, style)]
    if printed is not None:
        entries.append(plots.paper_entry())
    look = dict(ncols=6, frameon=False, fontsize=plots.SMALL)
    figure.legend(*zip(*entries), loc="outside upper center", **look)
    return figure


def of_table2(table):
    """Return rows of Table 2, ours or the paper's, with their line and panel."""
    table = named(table)
    rows = [
        f"{net}, {data}, {a}"
        for net, data, a in zip(table["net"], table["data"], table["activation"])
    ]
    steps = table["steps"].map({1: "one local step", 10: "ten local steps"})
    return table.assign(row=rows, panel=steps)


def table2(*cells, published):
    """Draw Table 2: iAcc of every rule on untrained networks, after one local step and ten, from several experiments."""
    order = ["net", "data", "steps"]
    table = of_table2(joined(*cells)).sort_values(order, kind="stable")
    printed = pd.DataFrame(published.tables["table2"].rows)
    printed = printed.replace({"net": {"resnet50": "resnet50-imagenet"}})
    how = dict(panel="panel", printed=of_table2(printed))
    return dots(table, "rule", RULES, "iAcc", **how)


def fig1(*cells):
    """Draw Fig. 1: iAcc of every rule by the training accuracy of the clients' initial network."""
    labels = dict(xlabel="training accuracy", ylabel="iAcc")
    rows = by_rule(named(pd.concat(cells, ignore_index=True)))
    order = rows["data"].map(["MNIST", "SVHN", "CIFAR-10", "CIFAR-100"].index)
    rows = rows.iloc[order.argsort(kind="stable")]
    return plots.curves(
        rows,
        x="train",
        y="iacc",
        hue="rule",
        panel="data",
        log2=False,
        columns=rows["data"].nunique(),
        **labels,
    )


def own_images(cells):
    """Draw iAcc of RLU with the server's and the client's images by accuracy, with a panel per number of steps."""
    sources = {"server's": "server's", "own": "client's own"}
    how = {"gaussian": "Gaussian (RLU)", "average": "averaged"}
    lines = cells["known"].map(sources) + ", " + cells["confidence"].map(how)
    panels = cells["steps"].map({1: "one local step", 10: "ten local steps"})
    labels = dict(xlabel="training accuracy", ylabel="iAcc of RLU")
    rows = cells.assign(line=lines, panel=panels)
    return plots.curves(
        rows, x="stage", y="iacc", hue="line", panel="panel", log2=False, **labels
    )


def table3(fresh, trained, published):
    """Draw Table 3: iAcc of every rule by α, with a panel per network."""
    titles = [
        f"LeNet, {'trained to 0.4' if stage else 'untrained'}"
        for stage in trained["stage"]
    ]
    rows = pd.concat(
        [fresh.assign(panel="VGG-16, untrained"), trained.assign(panel=titles)],
        ignore_index=True,
    )
    printed = plots.tabled(published, "table3", "iacc")
    printed = printed.assign(x=printed["alpha"].astype(float), hue=printed["rule"])
    printed = printed.assign(panel="VGG-16, untrained")
    labels = dict(xlabel="α", ylabel="iAcc", ylim=(0.43, 1.03), printed=printed)
    order = rows["panel"].map(list(dict.fromkeys(rows["panel"])).index)
    rows = by_rule(rows.assign(order=order)).sort_values("order", kind="stable")
    return plots.curves(
        rows, x="alpha", y="iacc", hue="rule", panel="panel", columns=3, **labels
    )


def fig2(*cells, published):
    """Draw Fig. 2: iAcc of RLU by the number of auxiliary images per class, and how near five are to a hundred."""
    cells = pd.concat(cells, ignore_index=True)
    state = cells["stage"].gt(0).map({False: "untrained", True: "trained"})
    labels = dict(xlabel="auxiliary images per class", ylabel="iAcc of RLU")
    most = cells[(cells["stage"] == 0) & (cells["size"] == 100)].set_index("data")
    rows = [
        {"data": data, "hue": "untrained", "x": 5, "low": most.loc[data, "iacc"] - item}
        for data in most.index
        if (item := few_claim(published, data)) is not None
    ]
    printed = named(pd.DataFrame(rows)).rename(columns={"data": "panel"})
    return plots.curves(
        named(cells).assign(state=state),
        x="size",
        y="iacc",
        hue="state",
        panel="data",
        columns=3,
        printed=printed.assign(high=1.0),
        **labels,
    )


def few_claim(published, data):
    """Return by how much five images a class are behind a hundred at most, as the paper says; None for other data."""
    item = published.items.get(f"fig2-{data.replace('-', '')}")
    return None if item is None else item.published


def of_table4(cells):
    """Return rows of Table 4, ours or the paper's, with their line and panel: the strong settings, and three rounds."""
    chosen = named(cells[(cells["rounds"] == 3) | (cells["level"] == "strong")])
    rows = [
        f"{data}, {name}" if rounds == 1 else name
        for data, name, rounds in zip(chosen["data"], chosen["name"], chosen["rounds"])
    ]
    panels = chosen["rounds"].map(
        {1: "first round, strong settings (Table 4)", 3: "third round, MNIST"}
    )
    rules = chosen["rule"].replace("RLU, ρ = 1", "RLU, uninformed")
    return chosen.assign(row=rows, panel=panels, rule=rules)


def table4(*cells, published):
    """Draw Table 4: the strong settings in the first round, and all seven algorithms in the third."""
    printed = pd.DataFrame(published.tables["table4"].rows).assign(rounds=1)
    rules = [*RULES, "RLU, uninformed"]
    how = dict(panel="panel", printed=of_table4(printed))
    ours = pd.concat([table.assign(rounds=table.get("rounds", 1)) for table in cells])
    return dots(of_table4(ours.reset_index(drop=True)), "rule", rules, "iAcc", **how)


def forms(cells):
    """Draw the paired gain of RLU's variants over Algorithm 1, by setting."""
    names = {"whole head": "RLU-WH"}
    rows = cells.assign(row=cells["setting"].map(SETTING)).replace({"form": names})
    figure = dots(
        rows,
        "form",
        ["averaged", "Alg. 2", "released code", "RLU-WH"],
        "iAcc minus that of Algorithm 1 (paired)",
        "gain",
    )
    figure.axes[0].axvline(0, color="grey", linewidth=1)
    return figure


def fig3(x, ways):
    """Draw Fig. 3: an image of a batch, its inversions, and plain grey, from one call of `inverted`."""
    figure = Figure(figsize=(7.4, 2.0), layout="constrained")
    pictures = {"original": x[0], **{way: ways[way][0][0] for way in WAYS}}
    pictures["plain grey"] = torch.full_like(x[0], 0.5)
    for axes, (name, picture) in zip(figure.subplots(1, 5), pictures.items()):
        axes.imshow(picture.cpu().permute(1, 2, 0).clamp(0, 1).numpy(), vmin=0, vmax=1)
        score = metrics.psnr(picture[None], x[:1]).item()
        title = name if name == "original" else f"{name}\n{score:.1f} dB"
        axes.set_title(title, fontsize=plots.SMALL)
        axes.set_axis_off()
    return figure


def fig4(networks, digit=8):
    """Draw Figs. 4–9: the true class's logit with the fitted normal, from calls of `class_logits`."""
    figure = Figure(figsize=(7.4, 2.3), layout="constrained")
    for axes, (groups, train) in zip(figure.subplots(1, len(networks)), networks):
        v = groups[digit][:, digit]
        at = np.linspace(v.min(), v.max(), 100)
        axes.hist(v, bins=16, density=True, alpha=0.6)
        axes.plot(
            at,
            stats.norm.pdf(at, v.mean(), v.std(ddof=1)),
            color="black",
            linewidth=1.2,
        )
        axes.set_title(
            f"accuracy {train:.2f}, p = {stats.shapiro(v).pvalue:.2g}",
            fontsize=plots.SMALL,
        )
        axes.set(
            xlabel=f"logit {digit} of images of the digit {digit}", ylabel="density"
        )
    return figure


def fig10(images, seed):
    """Draw Figs. 10 and 11: number of images per class and client, for three α."""
    figure = Figure(figsize=(7.8, 2.5), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    for axes, alpha in zip(panels, (0.1, 0.5, 5.0)):
        parts = dirichlet(images.y, CLIENTS, alpha, seed)
        counts = np.array(
            [count_labels(images.y[i], images.n_classes).cpu().numpy() for i in parts]
        )
        drawn = axes.imshow(counts.T, cmap="Blues", aspect="auto")
        axes.set(title=f"α = {alpha:g}", xlabel="client", xticks=range(len(parts)))
        axes.grid(False)
    panels[0].set_ylabel("class")
    figure.colorbar(drawn, ax=panels, label="images")
    return figure
