"""AGIC: figures of rows. A figure takes cells, one row per cell, or trial rows if its docstring says so."""

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from fedleak import metrics
from notebooks import plots
from notebooks.agic.clients import FALLING, STORED, unhexed
from notebooks.agic.clients import LEVEL, PLAIN, STATES

DECIBELS = dict(y="psnr", ylabel="PSNR [dB]", ylim=None, log2=False)
RUNS = {  # panels of the curves: network, side, batch size, schedule
    ("resnet20-4", 32, 1, LEVEL): "(a) 32 × 32, one image,\nsteady rate",
    ("resnet20-4", 32, 1, FALLING): "(b) 32 × 32, one image,\nsign, falling rate",
    ("resnet20-4", 32, 4, LEVEL): "(c) 32 × 32, four images,\nsteady rate",
    ("resnet20-4", 16, 1, FALLING): "(d) 16 × 16, one image,\nsign, falling rate",
    ("resnet20-1", 12, 1, LEVEL): "(e) narrow network, 12 × 12,\nsteady rate",
    ("resnet20-1", 12, 1, FALLING): "(f) narrow network, 12 × 12,\nsign, falling rate",
}


def logarithmic(figure):
    """Make the axis of iterations logarithmic, with its numbers written out."""
    for axes in figure.axes:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    return figure


def error(cells):
    """Draw the error of Eq. 4 against the learning rate, in single and in double precision."""
    figure = Figure(figsize=(8.5, 3.3), layout="constrained")
    panels = {
        "float32": "single precision, as clients send",
        "float64": "double precision",
    }
    grid = figure.subplots(1, 2, sharey=True)
    for axes, (precision, title) in zip(grid, panels.items(), strict=True):
        part = cells[cells["precision"] == precision]
        for (steps, line), marker in zip(part.groupby("steps"), "osD", strict=True):
            mean, low, high = (
                10 ** line[f"log_error{end}"] for end in ("", " low", " high")
            )
            axes.loglog(line["lr"], mean, marker=marker, label=f"{steps} steps")
            axes.fill_between(line["lr"], low, high, alpha=0.2)
        axes.axhline(0.1, color="grey", linestyle="--", linewidth=0.9)
        axes.set(xlabel="local learning rate η", title=title)
    grid[0].set_ylim(1e-4, 30)  # of four steps at the largest rate some diverge
    grid[0].set_ylabel("relative error, geometric mean")
    return plots.legend_above(figure, grid[0], 3, frameon=True)


def gallery(rows, column, titles):
    """Draw originals above reconstructions with their PSNR, from trial rows, with a line per value of a column."""
    trials = sorted(rows["trial"].unique())
    size = dict(figsize=(1.4 + 0.87 * len(trials), 1.12 * (1 + len(titles))))
    figure = Figure(**size, layout="constrained")
    grid = figure.subplots(1 + len(titles), len(trials), squeeze=False)
    cells = rows.set_index([column, "trial"])
    for line, (value, title) in zip(grid, {None: "truth", **titles}.items()):
        for axes, trial in zip(line, trials):
            cell = cells.loc[next(iter(titles)) if value is None else value, trial]
            picture = unhexed(cell["original" if value is None else "found"])
            axes.imshow(picture.permute(1, 2, 0).numpy(), interpolation="nearest")
            if value is not None:
                axes.set_title(f"{cell['psnr']:.1f} dB", fontsize=plots.SMALL, pad=3)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        name = dict(rotation=0, ha="right", va="center")
        line[0].set_ylabel(title, **name)
    return figure


def came_back(rows):
    """Draw images, a line per threat model, from pairs of its name and ``[n, 3, H, W]``; the originals come first."""
    (_, originals), *_ = rows
    size = 4.6, 1.5 * len(rows)  # as wide as a phone
    figure = Figure(figsize=size, layout="constrained")
    for line, (name, images) in zip(figure.subfigures(len(rows)), rows, strict=True):
        line.suptitle(name, fontsize="medium")
        scores = metrics.psnr(images.double().clamp(0, 1), originals)
        panels = zip(line.subplots(1, len(images)), images, scores, strict=True)
        for axes, image, score in panels:
            picture = image.clamp(0, 1).permute(1, 2, 0).float().numpy()
            axes.imshow(picture, interpolation="nearest")
            if images is not originals:
                axes.set_xlabel(f"{score:.1f} dB", fontsize=plots.SMALL, labelpad=2)
            axes.set(xticks=[], yticks=[], frame_on=False)
    return figure


def grey(rows):
    """Compute the PSNR of flat images in their originals' mean grey, from trial rows with pictures."""
    pictures = rows.drop_duplicates("trial")["original"]
    x = torch.stack([unhexed(picture) for picture in pictures])
    return metrics.psnr(x.mean((1, 2, 3), keepdim=True).expand_as(x), x).mean()


def at_the_end(published, table, panels):
    """Return a table's PSNR on CIFAR-10 as crosses at the paper's 10,000 iterations, a panel a size of the batch."""
    rows = plots.tabled(published, table, "psnr").query("data == 'cifar10'")
    sizes = rows["batch_size"] if "batch_size" in rows else pd.Series(1, rows.index)
    names = rows["method"].replace({"one batch": "one batch, equal weights"})
    return rows.assign(panel=sizes.map(panels), hue=names, x=10_000.0)


def iterations(table4, schedules, choices, published):
    """Draw PSNR against iterations, with a panel per run in `RUNS`; no setting of the paper tells (a) from (b)."""
    chosen = choices["batch_norm"].eq(STORED) & choices["schedule"].eq(FALLING)
    cells = pd.concat([table4, schedules, choices[chosen]])
    keys = zip(*(cells[k] for k in ("net", "side", "batch_size", "schedule")))
    drawn = cells.assign(panel=[RUNS.get(key) for key in keys]).dropna(subset="panel")
    drawn = drawn.sort_values("panel", kind="stable")
    steady, falling = (
        at_the_end(
            published,
            "table4",
            {n: RUNS.get(("resnet20-4", 32, n, how)) for n in (1, 4)},
        )
        for how in (LEVEL, FALLING)
    )
    printed = pd.concat([steady, falling]).dropna(subset="panel")
    names = dict(hue="method", panel="panel", columns=3, printed=printed)
    return logarithmic(
        plots.curves(drawn, x="iteration", xlabel="iterations", **names, **DECIBELS)
    )


def fedavg(cells, published):
    """Draw PSNR against iterations on updates of four local steps."""
    named = cells.replace({"method": {"one batch": "one batch, equal weights"}})
    title = "four steps of one image, 32 × 32"
    panels, printed = (
        named.assign(panel=title),
        at_the_end(published, "table2", {1: title}),
    )
    names = dict(hue="method", panel="panel", printed=printed)
    return logarithmic(
        plots.curves(panels, x="iteration", xlabel="iterations", **names, **DECIBELS)
    )


def time(cells):
    """Draw Fig. 8b: seconds per iteration against local steps."""
    return plots.curves(
        cells.assign(panel="eight images of 32 × 32"),
        x="steps",
        y="seconds",
        hue="method",
        panel="panel",
        ylim=None,
        xlabel="local steps of the same images",
        ylabel="seconds an iteration",
    )


def weights(cells):
    """Draw Fig. 9: PSNR against the ratio of the weights, with a line per state of the network."""
    names = ["untrained", "no ReLU modifier", "batch norm at 1", "trained"]
    states = dict(zip([*STATES, "trained"], names, strict=True))
    drawn = cells[cells["final"]].replace({"state": states})
    names = dict(
        x="beta",
        hue="state",
        panel="panel",
        xlabel="weight of the last layer over the first",
    )
    look = DECIBELS | dict(log2=True)
    return plots.curves(drawn.assign(panel="one image, 32 × 32"), **names, **look)


def ratios(rows):
    """Draw Fig. 10: the untrained network's pictures from trial rows, by ratio of the weights."""
    rows = rows[rows["final"] & (rows["state"] == PLAIN)]
    return gallery(rows, "beta", {b: f"β = {b:g}" for b in np.unique(rows["beta"])})
