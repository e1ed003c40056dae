"""The look of every figure, and the one plot shape that the notebooks share: panels of curves with intervals."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fedleak_book.evidence.published import Paper

_MARKERS = "osD^vPX*<>"
_COLOURS = sns.color_palette("colorblind", 10)
STYLE = {
    "LLG": (_COLOURS[0], "o"),
    "LLG*": (_COLOURS[1], "s"),
    "LLG+": (_COLOURS[2], "D"),
    "DLG": (_COLOURS[3], "^"),
    "random guess": (_COLOURS[7], "p"),
    "DLG-Adam": (_COLOURS[0], "o"),
    "InvG": (_COLOURS[1], "s"),
    "AGIC": (_COLOURS[2], "D"),
}
"""Colour and marker of an attack, the same in every figure."""


SMALL = 9.8
"""Points of the smallest text: 11 pixels where a page is 1,300 wide."""


def use_theme() -> None:
    """Set the theme: SVG with real text, a white grid, colours that colour-blind readers distinguish."""
    from matplotlib_inline.backend_inline import set_matplotlib_formats

    set_matplotlib_formats("svg")
    sns.set_theme(
        style="whitegrid", palette="colorblind", context="notebook", font_scale=0.9
    )
    mpl.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "fedleak",
            "figure.constrained_layout.use": True,
            "axes.titlesize": "medium",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "font.sans-serif": ["DejaVu Sans"],
        }
    )


def style_of(names: Sequence[str]) -> dict[str, tuple]:
    """Return a colour and a marker for every name: an attack's own, or the next free ones."""
    taken, count = {STYLE[n] for n in names if n in STYLE}, len(_MARKERS)
    pairs = (
        (c, _MARKERS[(i + turn) % count])
        for turn in range(count)
        for i, c in enumerate(_COLOURS)
    )
    rest = (pair for pair in pairs if pair not in taken)
    return {name: STYLE.get(name) or next(rest) for name in names}


def bars(rows: pd.DataFrame, value: str) -> np.ndarray:
    """Return the distances from a value to both ends of its interval, ``[2, rows]``; 0 where it has none."""
    ends = [rows[value] - rows[f"{value} low"], rows[f"{value} high"] - rows[value]]
    return np.nan_to_num(np.clip(ends, 0, None))


def legend_above(
    figure: Figure, axes: Axes, columns: int, paper: bool = False, **look: Any
) -> Figure:
    """Draw the legend of one panel above all panels, and return the figure; `paper` adds the entry of its grey bands."""
    handles, names = axes.get_legend_handles_labels()
    if paper:
        handle, name = paper_entry(bands=True, crosses=False)
        handles, names = [*handles, handle], [*names, name]
    look = {"loc": "outside upper center", "frameon": False, "ncols": columns} | look
    figure.legend(handles, names, **look)
    return figure


def stated(published: Paper, places: Mapping[str, Mapping]) -> pd.DataFrame:
    """Return what a paper says in words as `curves` draws it: a row an id of a claim, low to high, with its place.

    A place names the ``panel``, and ``x`` where one point is meant; otherwise all of the panel is.
    """
    lines = []
    for name, place in places.items():
        item = published.items[name]
        low, high = {
            "at least": (item.published, 1.0),
            "at most": (0.0, item.published),
            "value": (item.published, item.published),
        }.get(item.kind) or item.published
        lines.append({"x": math.nan, "hue": "", "low": low, "high": high, **place})
    return pd.DataFrame(lines)


def tabled(published: Paper, table: str, value: str) -> pd.DataFrame:
    """Return a column of a printed table as `curves` draws it: the table's rows, with ``low`` and ``high``."""
    rows = pd.DataFrame(published.tables[table].rows)
    return rows.assign(low=rows[value].astype(float), high=rows[value].astype(float))


CROSS = {"marker": "x", "s": 32, "linewidths": 1.6, "zorder": 5}


def draw_printed(axes: Axes, rows: pd.DataFrame, style: Mapping[str, tuple]) -> None:
    """Draw a paper's values: a cross in its line's colour, or a grey bar, at an x; a grey band or line without one."""
    for row in rows.to_dict("records"):
        colour = style.get(row["hue"], ("black",))[0]
        if not math.isnan(row["x"]) and row["low"] < row["high"]:
            bar = dict(color="grey", alpha=0.3, linewidth=7, zorder=0)
            axes.vlines(row["x"], row["low"], row["high"], **bar)
        elif not math.isnan(row["x"]):
            axes.scatter(row["x"], row["low"], color=colour, **CROSS)
        elif row["low"] == row["high"]:
            axes.axhline(row["low"], color="grey", alpha=0.35, linewidth=4, zorder=0)
        else:
            axes.axhspan(
                row["low"], row["high"], color="grey", alpha=0.18, lw=0, zorder=0
            )


def paper_entry(bands: bool = False, crosses: bool = True) -> tuple:
    """Return the one entry of a legend for a paper's values, and its name."""
    cross = Line2D([], [], color="black", marker="x", linestyle="", mew=1.6)
    band = Patch(color="grey", alpha=0.25)
    return ((band,) if bands else ()) + ((cross,) if crosses else ()), "paper"


def curves(
    table: pd.DataFrame,
    *,
    x: str,
    hue: str,
    panel: str,
    y: str = "mean",
    xlabel: str,
    ylabel: str,
    log2: bool = True,
    columns: int = 2,
    ylim: tuple[float, float] | None = (0, 1.03),
    printed: pd.DataFrame | None = None,
) -> Figure:
    """Draw `y` with its interval, ``y low`` to ``y high``, over `x`: a line per `hue`, an axes per `panel`.

    `printed` are the paper's values (`stated`, `tabled`), with the columns ``panel``, ``hue``, ``x``, ``low``, ``high``.
    """
    table = table.rename(columns={y: "mean", f"{y} low": "low", f"{y} high": "high"})
    panels, style = (
        list(dict.fromkeys(table[panel])),
        style_of(list(dict.fromkeys(table[hue]))),
    )
    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    width, height = {1: (5.6, 3.0), 2: (8.2, 3.0), 3: (7.35, 2.4), 4: (8.4, 2.2)}[
        columns
    ]  # a page is 7.2 inches wide
    words = SMALL if columns == 4 else "medium"
    figure = Figure(figsize=(width, height * rows + 0.7), layout="constrained")
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axes, title in zip(grid, panels, strict=False):
        part = table[table[panel] == title]
        for name, (colour, marker) in style.items():
            line = part[part[hue] == name].sort_values(x)
            axes.plot(line[x], line["mean"], color=colour, marker=marker, markersize=5)
            band = {"color": colour, "alpha": 0.18, "linewidth": 0}
            axes.fill_between(line[x], line["low"], line["high"], **band)
        if printed is not None:
            draw_printed(axes, printed[printed["panel"] == title], style)
        axes.set_title(title, fontsize=words)
        axes.set_xlabel(xlabel, fontsize=words)
        if ylim is not None:
            axes.set_ylim(*ylim)
        if log2:
            axes.set_xscale("log", base=2)
            ticks = sorted(part[x].unique())
            crowded = columns > 2
            shown = ticks[:: 2 if crowded and len(ticks) > 5 else 1]
            labels = [f"{t:g}" if t in shown else "" for t in ticks]
            axes.set_xticks(ticks, labels, fontsize=SMALL if crowded else None)
            axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[::columns]:
        axes.set_ylabel(ylabel, fontsize=words)
    handles: list = [
        Line2D([], [], color=c, marker=m, label=name) for name, (c, m) in style.items()
    ]
    handles.append(Patch(color="grey", alpha=0.3, label="95 % interval of the mean"))
    names = [handle.get_label() for handle in handles]
    if printed is not None:
        crosses = printed["x"].notna() & (printed["low"] == printed["high"])
        handle, name = paper_entry(not crosses.all(), bool(crosses.any()))
        handles, names = [*handles, handle], [*names, name]
    most = min(2 * columns, 6) if columns > 1 else 3
    even = math.ceil(len(names) / math.ceil(len(names) / most))  # per line
    look = {"frameon": False, "fontsize": SMALL, "loc": "outside upper center"}
    legend = figure.legend(
        handles, names, ncols=even, **look
    )  # seen with the first panels
    figure.draw_without_rendering()
    while (
        legend.get_window_extent().width > figure.bbox.width and even > 1
    ):  # else all would shrink
        even -= 1
        legend.remove()
        legend = figure.legend(handles, names, ncols=even, **look)
        figure.draw_without_rendering()
    return figure
