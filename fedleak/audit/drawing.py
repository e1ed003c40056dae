"""The figure of an audit: every attack beside the guesses, and what each remedy leaves."""

import io
import itertools
import textwrap
from typing import Any

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedleak.attacks.registry import ADVERSARIES

LOOK: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fedleak",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
}
STYLE = {
    adversary.name: {"color": colour, "marker": marker}
    for adversary, colour, marker in zip(ADVERSARIES, sns.color_palette("colorblind", 10), "vosDP^", strict=False)
}
"""Colour and marker of the weakest adversary that can run an attack."""
OTHER = {"color": "#949494", "marker": "v"}


def figure(attacks: pd.DataFrame, remedies: pd.DataFrame, guesses: pd.Series) -> Figure:
    """Draw two panels of dots with 95 % intervals over the instance accuracy; the guesses' means are lines."""
    rows = [max(len(attacks), 1), max(len(remedies), 1)]
    with mpl.rc_context(LOOK):
        drawn = Figure(figsize=(5.4, 2.6 + 0.32 * rows[0] + 0.66 * rows[1]), layout="constrained")
        top, bottom = drawn.subplots(2, 1, height_ratios=[rows[0] + 0.6, 2 * rows[1] + 0.6], sharex=True)
        _dots(top, attacks, list(attacks["attack"]), guesses)
        top.set_title("Attacks, on the updates as they are shared", loc="left", fontsize="medium")
        names = [f"{textwrap.fill(row['remedy'], 22)}\n({row['attack']})" for _, row in remedies.iterrows()]
        _dots(bottom, remedies, names, guesses)
        bottom.set_title("With one remedy on top: the best attack left", loc="left", fontsize="medium")
        count = attacks["n"].max() if len(attacks) else 0
        bottom.set_xlabel(f"labels named right (instance accuracy)\nn = {count} updates; bars: 95 % intervals")
        handles = {label: h for axes in (top, bottom) for h, label in zip(*axes.get_legend_handles_labels())}  # noqa: B905
        drawn.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=2, frameon=False, fontsize="small"
        )
    return drawn


def _dots(axes: Axes, table: pd.DataFrame, names: list[str], guesses: pd.Series) -> None:
    for place, (_, row) in enumerate(table.iterrows()):
        if row["n"]:
            style = STYLE.get(row["adversary"], OTHER)
            axes.plot([row["iacc_low"], row["iacc_high"]], [place, place], color=style["color"], linewidth=2.2)
            axes.plot(row["iacc"], place, **style, markersize=7, linestyle="", label=row["adversary"])
    for (name, mean), line in zip(guesses.items(), itertools.cycle((":", "--", "-.")), strict=False):
        axes.axvline(mean, color="#444444", linestyle=line, linewidth=1.4, label=f"{name} ({mean:.2f})")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    if not names:
        axes.text(0.5, 0.0, "none", ha="center", va="center")


def svg(drawn: Figure) -> str:
    """Return a figure as SVG with real text, the same for the same figure."""
    stream = io.StringIO()
    with mpl.rc_context(LOOK):
        drawn.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()
