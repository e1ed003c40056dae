"""The table of growth on the page *Compared*, from `data/growth.csv`; `python book/_ext/growth.py` draws its figure."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from render import save
from scipy.stats import linregress

from fedleak_book import paths
from notebooks import plots
from notebooks.show import ATTACKS, table

MEASURABLE = 0.05
"""Processor seconds below which a time is mostly the call's, so that no exponent is fitted to it."""
SHOWN = {"classes": (10, 100, 1000, 10000), "inputs": (64, 2048), "batch": (128, 2048, 16384)}


def measured() -> pd.DataFrame:
    """Read the measurements; a size that several series share stands in each."""
    return pd.read_csv(paths.root() / "data" / "growth.csv")


def exponent(rows: pd.DataFrame) -> str:
    """Return the slope of log time against log classes, with its standard error from three points on."""
    rows = rows[(rows.outcome == "answered") & (rows.seconds >= MEASURABLE)]
    if len(rows) < 2:
        return "–"
    fit = linregress(np.log10(rows.classes), np.log10(rows.seconds))
    return f"{fit.slope:.1f}" + f" ± {fit.stderr:.1f}" * (len(rows) > 2)


def entry(row: pd.Series) -> str:
    """Return seconds and memory of one answer, or why there is none."""
    if row.outcome != "answered":
        return "refuses" if row.outcome.startswith("refused") else row.outcome
    seconds = f"{row.seconds:.0f} s" if row.seconds >= 9.5 else f"{row.seconds:.2g} s"
    return f"{seconds}, {row.mib / 1024:.1f} GiB" if row.mib >= 52 else seconds


def rows() -> pd.DataFrame:
    """Return the table: an attack a row, a size a column."""
    found = measured()
    shown = pd.DataFrame({"Attack": found.attack.unique()})
    for grows, values in SHOWN.items():
        series = found[found.grows == grows]
        for value in values:
            at = series[series[grows] == value].set_index("attack")
            shown[f"{value:,} {grows}"] = [entry(at.loc[name]) for name in shown["Attack"]]
    by_classes = found[found.grows == "classes"].groupby("attack")
    shown.insert(5, "Exponent", [exponent(by_classes.get_group(name)) for name in shown["Attack"]])
    return shown


def drawn() -> Figure:
    """Draw processor seconds against classes, with the slopes of n and n²."""
    found = measured().query("grows == 'classes' and outcome == 'answered'")
    figure = Figure(figsize=(6.4, 3.9), layout="constrained")
    axes, styles = figure.subplots(), plots.style_of(list(found.attack.unique()))
    for name, line in found.groupby("attack", sort=False):
        colour, marker = styles[name]
        axes.plot(line.classes, line.seconds, color=colour, marker=marker, markersize=5, label=ATTACKS.get(name, name))
    ends = np.array([10, 10000])
    for power, label in ((1, "$n$"), (2, "$n^2$")):
        axes.plot(ends, 1e-3 * (ends / 10.0) ** power, color="grey", linestyle=":", linewidth=1)
        axes.annotate(label, (1000, 1e-3 * 100.0**power), color="grey", xytext=(4, -10), textcoords="offset points")
    axes.set(xscale="log", yscale="log", xlabel="classes", ylabel="processor seconds", ylim=(5e-4, 100))
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    return figure


def fragments() -> dict[str, str]:
    """Return the fragment by name."""
    return {"growth": table(rows())}


if __name__ == "__main__":
    save(drawn, paths.root() / "book" / "figures" / "growth.svg")
