"""LIA-SA: figures of rows. A figure takes cells, one row per cell, unless its docstring differs."""

import numpy as np
import pandas as pd
import torch
from fedleak import data, models
from notebooks import plots
from notebooks.show import bounded
from fedleak.federated.aggregation import plain_sum
from matplotlib.figure import Figure
from notebooks.lia_sa.claims import exponent
from notebooks.lia_sa.clients import LIA, RECIPES

WORDS = {"literal": "0.1, 0.2, …", "log": "log-spaced", "vector": "a random vector"}
RULES = {
    **{rule: f"LIA-SA, {WORDS[recipe]}" for rule, recipe in zip(LIA, RECIPES)},
    "zeros, target": "all zeros, by client",
    "zeros, all": "all zeros, summed",
}
MODES = {"train": "training mode", "eval": "evaluation mode"}
TEXT = {"fontsize": plots.SMALL}


def named(cells):
    """Replace keys of networks, rules and data sets by their names."""
    rules = {rule: RULES.get for rule in ("rule", "kind")}
    words = {"net": models.title, "data": data.title} | rules
    return cells.assign(
        **{
            k: cells[k].map(lambda name, of=of: of(name) or name)
            for k, of in words.items()
            if k in cells
        }
    )


def _panels(rows, columns, size, **options):
    """Return a figure and its axes."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(axes.flat)


def masked(updates, protocol, aggregate, name):
    """Draw one client's update, its masked version, and the sum of a tensor in the clear and unmasked."""
    values = torch.cat([t.flatten() for t in updates[0].tensors.values()]).numpy()
    sent = protocol.masked[1].astype(float)
    summed = plain_sum(updates), aggregate
    clear, masked_sum = (total.tensors[name].flatten().numpy() for total in summed)
    figure, axes = _panels(1, 3, (8.4, 2.7))
    axes[0].hist(values, bins=60, log=True)
    axes[0].set(title="client 1's update", xlabel="gradient", ylabel="entries")
    axes[1].hist(sent / 2**64, bins=60)
    axes[1].set(title="what client 1 sends", xlabel="integer / $2^{64}$")
    axes[2].plot(clear[::5], masked_sum[::5], ".", markersize=3)
    axes[2].set(
        title="the sum of five", xlabel="in the clear", ylabel="secure aggregation"
    )
    return figure


def condition(cells):
    """Draw the condition number by number of clients, with a line per recipe and a panel per network and mode."""
    figure, axes = _panels(2, 3, (8.0, 5.0), sharey=True)
    style = plots.style_of(RECIPES)
    groups = cells.groupby(["net", "mode"], sort=False)
    for ax, ((net, mode), panel) in zip(axes, groups, strict=True):
        for recipe, line in panel.sort_values("clients").groupby("recipe", sort=False):
            colour, marker = style[recipe]
            look = dict(color=colour, marker=marker, label=WORDS[recipe])
            ax.loglog(line["clients"], 10 ** line["log10"], **look)
        bound = ax.axhline(0.5 / (64 * 6e-8), color="black", linestyle="--", lw=0.9)
        name = models.title(net).replace(", ", ",\n")
        ax.set(title=f"{name},\n{MODES[mode]}", ylim=(1, 1e21))
        ticks = sorted(panel["clients"].unique())
        ax.set_xticks(ticks, [str(t) for t in ticks])
        ax.minorticks_off()
    for ax in axes[3:]:
        ax.set_xlabel("clients U")
    for ax in axes[::3]:
        ax.set_ylabel("condition number")
    bound.set_label("exact below, by the bound")
    return plots.legend_above(figure, axes[-1], 3, frameon=True)


def curve(lines):
    """Draw length and angle of e(C), from ``{(net, mode): (levels, embeddings, embedding at C = 1)}``."""
    figure, (norms, right) = _panels(1, 2, (8.2, 3.4))
    for (net, mode), (levels, e, last) in lines.items():
        angle = torch.cosine_similarity(e, last[None]).clamp(-1, 1).arccos()
        look = dict(marker=".", label=f"{models.title(net)}, {MODES[mode]}")
        norms.loglog(levels, (e.norm(dim=1) / last.norm()).numpy(), **look)
        right.semilogx(levels, np.degrees(angle.numpy()), **look)
    norms.set(xlabel="C", ylabel="‖a(C)‖ / ‖a(1)‖")
    right.set(xlabel="C", ylabel="angle to a(1) [degrees]")
    return plots.legend_above(figure, norms, 3, frameon=True, **TEXT)


def secagg(cells):
    """Draw the share of correct counts through Flower's SecAgg+ by the spread of a count, with the theory."""
    figure, (ax,) = _panels(1, 1, (6.5, 3.6))
    for (recipe, clients), line in cells.groupby(["recipe", "clients"]):
        label = f"{WORDS[recipe]}, U = {clients}"
        ax.semilogx(line["spread"], line["right"], "o", label=label)
    spread = torch.logspace(-2.5, 2, 200)
    theory = torch.erf(0.5 / 2**0.5 / spread)
    ax.semilogx(spread, theory, color="black", label="theory")
    ax.set(xlabel="σ, spread of a count", ylabel="counts that are right")
    return plots.legend_above(figure, ax, 3, frameon=True, **TEXT)


def lnacc(table):
    """Return LnAcc-target of LIA-SA and LnAcc-all of the others in one column, and zero answers as two rules."""
    is_ours, column = table["rule"].str.startswith("LIA-SA"), {}
    for end in ("", " low", " high"):
        column[f"lnacc{end}"] = table[f"target{end}"].where(is_ours, table[f"all{end}"])
    zeros = is_ours.map({True: "zeros, target", False: "zeros, all"})
    zeros = table.assign(rule=zeros, lnacc=table["floor"]).drop_duplicates(
        ["source", "net", "data", "rule", "clients", "batch_size"]
    )
    table_and_zeros = pd.concat([table.assign(**column), zeros], ignore_index=True)
    return table_and_zeros.assign(
        rule=[RULES.get(rule, rule) for rule in table_and_zeros["rule"]]
    )


def fig3(cells, published):
    """Draw LnAcc by batch size and by number of clients, on two networks; log-spaced constants, of few rounds, are in the notes."""
    rows, pieces = lnacc(cells), []
    rows = rows[rows["rule"] != RULES["LIA-SA, log"]]
    places = {}
    for net in ("vgg11_bn", "resnet18"):
        part = rows[rows["net"] == net]
        for column, words, fixed in (
            ("batch_size", "five clients", part["clients"] == 5),
            ("clients", "64 images each", part["batch_size"] == 64),
        ):
            line = part[fixed]
            panel = f"{models.title(net)}, {words}"
            pieces.append(line.assign(x=line[column], panel=panel))
            data = {"vgg11_bn": "cifar10", "resnet18": "cifar100"}[net]
            letter = "U" if column == "clients" else "B"
            places[f"fig3-{data}-{letter}-literal"] = {"panel": panel}
    axes = dict(x="x", y="lnacc", hue="rule", panel="panel", ylabel="LnAcc")
    axes |= dict(xlabel="", printed=plots.stated(published, places))
    figure = plots.curves(pd.concat(pieces), **axes)
    for panel, label in zip(figure.axes, ["batch size B", "clients U"] * 2):
        panel.set_xlabel(label)
    return figure


def fig4(cells, published):
    """Draw LnAcc by depth of VGG and ResNet."""
    titles = {"vgg": "VGG, CIFAR-10", "resnet": "ResNet, CIFAR-100"}
    rows = lnacc(cells).assign(
        depth=lambda t: t["net"].str.extract(r"(\d+)", expand=False).astype(int),
        panel=lambda t: t["net"].str.extract(r"([a-z]+)", expand=False).map(titles),
    )
    vgg, resnet = ({"panel": title} for title in titles.values())
    places = {
        "fig4-literal": vgg,
        "fig4-ilrg-resnet18": resnet | {"x": 18, "hue": "iLRG"},
        "fig4-ilrg-resnet152": resnet | {"x": 152, "hue": "iLRG"},
        "fig4-llg": resnet,
    }
    names = dict(hue="rule", panel="panel", xlabel="layers", ylabel="LnAcc")
    names["printed"] = plots.stated(published, places)
    return plots.curves(rows, x="depth", y="lnacc", **names)


def table1(table, published):
    """Return Table I as text: ours with the interval, and the paper's, by data set, network and rule."""
    texts = table.assign(ours=[bounded(row, "lnacc") for _, row in table.iterrows()])
    ours = texts.pivot(index=["data", "net"], columns="rule", values="ours")
    rows = named(pd.DataFrame(published.tables["table1"].rows))
    rows = rows.assign(paper=rows["target"].fillna(rows["all"]).astype(float))
    theirs = rows.pivot(index=["data", "net"], columns="rule", values="paper")
    sides = {}
    for rule in dict.fromkeys(table["rule"]):
        sides[rule] = ours[rule]
        if rule in theirs:
            sides[f"{rule}, paper"] = theirs[rule].map("{:.3g}".format)
    order = list(dict.fromkeys(zip(table["data"], table["net"])))
    frame = pd.DataFrame(sides).reindex(order).fillna("–").reset_index()
    return frame.rename(columns={"net": "network"})


def rivals(image, eluded, batches, reconstructions):
    """Draw images from a sum: EludingSA's target and reconstruction; batches and MANDRAKE's reconstructions."""
    figure, axes = _panels(2, 15, (8.4, 1.75))
    for ax in axes:
        ax.set_axis_off()
    pairs = [
        [image, eluded],
        *([b, f] for b, f in zip(batches, reconstructions, strict=True)),
    ]
    error = (image - eluded).square().mean()
    starts = 0, 3, 9
    titles = f"EludingSA, error {error:.0e}", "MANDRAKE, client 1", "client 2"
    for (above, below), start, title in zip(pairs, starts, titles, strict=True):
        for row, pictures in enumerate((above, below)):
            for k, image in enumerate(pictures[:6]):
                axes[15 * row + start + k].imshow(image[0], cmap="gray_r")
        axes[start].set_title(title, loc="left", **TEXT)
    return figure


def fig5(cells, published):
    """Draw seconds per round by batch size and by clients, with the fitted exponents and the paper's line and bound."""
    figure, axes = _panels(1, 2, (8.2, 3.2), sharey=True)
    names = {"batch_size": "batch size B (U = 5)", "clients": "clients U (B = 64)"}
    for ax, (by, words) in zip(axes, names.items(), strict=True):
        line, slope = exponent(cells, by)
        ax.loglog(line[by], line["total_seconds"], marker="o", label="the whole round")
        ax.loglog(
            line[by], line["server_seconds"], marker="s", ls="--", label="the server"
        )
        first = line.iloc[0]
        power = published.items[f"fig5-{'B' if by == 'batch_size' else 'U'}"].published
        stated = first["total_seconds"] * (line[by] / first[by]) ** power
        ax.loglog(line[by], stated, color="grey", alpha=0.35, lw=4, zorder=0)
        within = published.items["fig5-small"].published
        ax.vlines(first[by], 0, within, color="grey", alpha=0.3, lw=7, zorder=0)
        ax.set_xticks(list(line[by]), [str(v) for v in line[by]])
        ax.minorticks_off()
        ax.set(xlabel=words, title=f"exponent {slope:.2f}")
    axes[0].set_ylabel("seconds")
    return plots.legend_above(figure, axes[0], 3, paper=True)


def fig6(cells, published):
    """Draw LnAcc-target by batch size under noise and compression with a threshold per tensor."""
    two = cells["recipe"].isin(["literal", "vector"])
    selected = (cells["net"] == "resnet18") | (cells["defence"] == "noise")
    rows = cells[two & selected & cells["defence"].isin(["noise", "compression"])]
    symbol = {"noise": "σ", "compression": "θ"}
    order = ["recipe", "defence", "net"]
    rows = rows.sort_values(
        order, key=lambda c: c.ne("noise") if c.name == "defence" else c
    )
    names = zip(rows["net"], rows["defence"], rows["recipe"], strict=True)
    rows = rows.assign(
        panel=[
            f"{models.title(net)}, {kind}\n{WORDS[recipe]}"
            for net, kind, recipe in names
        ],
        what=[f"{symbol[d]} = {v:g}" for d, v in zip(rows["defence"], rows["level"])],
    )
    places = {}
    claimed = rows[rows["net"] == "resnet18"].groupby(["defence", "recipe"])["panel"]
    for (kind, recipe), panels in claimed:
        names = (
            [f"sparse-{recipe}"]
            if kind == "compression"
            else [f"noise-{recipe}-16", f"noise-{recipe}-64"]
        )
        hue = "θ = 0.8" if kind == "compression" else "σ = 0.001"
        for name in names:
            x = 64 if name.endswith("64") else 16
            place = {"panel": panels.iloc[0], "x": x, "hue": hue}
            places[f"fig6-{name}"] = place
    ends = dict(xlabel="batch size B", ylabel="LnAcc-target", columns=3)
    ends["printed"] = plots.stated(published, places)
    return plots.curves(
        rows, x="batch_size", y="target", hue="what", panel="panel", **ends
    )


def notice(cells):
    """Return a table of alarms and of the server's accuracy, by the model that it sends and γ."""
    texts = [
        f"{alarm:.0%}" + f"; {target:.3f}" * (target == target)
        for alarm, target in zip(cells["alarm"], cells["target"], strict=True)
    ]
    cells = cells.assign(text=texts, gamma=[f"γ = {g:g}" for g in cells["gamma"]])
    keys = dict(index=["kind", "net"], columns="gamma", values="text")
    table = cells.pivot_table(**keys, aggfunc="first", sort=False).fillna("")
    table = table[list(dict.fromkeys(cells["gamma"]))].reset_index()
    names = {"kind": "what is sent", "net": "network"}
    return named(table).rename(columns=names).rename_axis(columns=None)
