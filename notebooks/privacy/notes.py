"""The page on differential privacy: claims, canaries' bounds and the labels read, from the arena's records."""

from typing import Any

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedleak.audit.report import LOOK, write_svg
from fedleak_book import paths
from fedleak_book.evidence import predictions
from fedleak_book.evidence.results import Recorded
from notebooks.show import markdown, number, table
from notebooks.filters.notes import baseline_accuracy, best, with_interval

SAMPLE, CLIENT = "DP-SGD", "clipped update"
UNCLIPPED, AFTER = "no clipping", "noise after aggregation"
WORDS = {
    SAMPLE: "DP-SGD (one sample)",
    CLIENT: "clipped update (one client)",
    UNCLIPPED: "the same noise, no clipping",
    AFTER: "noise after aggregation",
}
COLOURS = sns.color_palette("colorblind", 4)
LOOKS = {
    name: {"color": colour, "marker": marker}
    for name, colour, marker in zip(WORDS, COLOURS, "osX^", strict=True)
}
CELL = ["mechanism", "epsilon", "state"]


def named_by(read: pd.DataFrame) -> pd.DataFrame:
    """Return the label accuracy of the best attack and of the best baseline, one row per cell."""
    named = {"iacc low": "low", "iacc high": "high"}
    best_attacks = best(read, CELL).rename(columns=named)
    guesses = [baseline_accuracy(group) for _, group in read.groupby(CELL, sort=False)]
    return best_attacks[[*CELL, "iacc", "low", "high", "attack"]].assign(guess=guesses)


def figure(named: pd.DataFrame, bounds: pd.DataFrame) -> Figure:
    """Draw label accuracy and lower bounds against the claimed ε, on fresh and on trained networks."""
    with mpl.rc_context(LOOK):
        drawn = Figure(figsize=(7.2, 6.4), layout="constrained")
        axes = drawn.subplots(2, 2, sharex=True, sharey="row")
        for (top, bottom), state in zip(axes.T, ("untrained", "trained"), strict=True):
            in_state = named[named["state"] == state]
            for name, group in in_state.groupby("mechanism", sort=False):
                x, look = group["epsilon"], LOOKS[name]
                top.plot(x, group["iacc"], **look, label=WORDS[name])
                ends = group["low"], group["high"]
                top.vlines(x, *ends, color=look["color"], alpha=0.5)
            floor = {"color": "#444444", "linestyle": ":", "label": "best baseline"}
            top.axhline(in_state["guess"].mean(), **floor)
            top.set_title(f"{state} network", loc="left")
            draw_bounds(bottom, bounds[bounds["state"] == state])
            bottom.set_xlabel("claimed ε per client and round")
        axes[0, 0].set(ylabel="label accuracy (iAcc)", ylim=(0, 1.03), xscale="log")
        axes[1, 0].set(ylabel="lower bound on ε by canaries", yscale="log")
        lines = (ax.get_legend_handles_labels() for ax in axes.flat)
        handles = {label: h for line in lines for h, label in zip(*line, strict=True)}
        look = {"loc": "outside lower center", "ncols": 2, "frameon": False}
        drawn.legend(handles.values(), handles.keys(), **look)
    return drawn


def draw_bounds(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw each network's lower bounds: filled for normal noise, hollow for any mechanism; above the line is wrong."""
    for name, group in rows.groupby("mechanism", sort=False):
        look = LOOKS[name] | {"linestyle": ""}
        axes.plot(group["epsilon"], group["gaussian"], **look, label=WORDS[name])
        plain = group[group["bound"] > 0]
        axes.plot(plain["epsilon"], plain["bound"], **look, fillstyle="none")
    ends = [rows["epsilon"].min(), 64]
    axes.plot(ends, ends, color="#444444", label="as claimed")


def spread(values: pd.Series) -> str:
    """Return a mean over the networks, with the lowest and the highest."""
    return f"{number(values.mean())} ({number(values.min())} to {number(values.max())})"


def side_by_side(named: pd.DataFrame, bounds: pd.DataFrame) -> str:
    """Return one row per mechanism and claimed ε."""
    rows, at = [], dict(list(bounds.groupby(CELL)))
    for (mechanism, epsilon), group in named.groupby(CELL[:2], sort=False):
        row: dict[str, Any] = {"Mechanism": WORDS[mechanism], "Claimed ε": epsilon}
        for cell in group.to_dict("records"):
            state = cell["state"]
            canaries = at.get((mechanism, epsilon, state))
            lower = (
                ["–", "–"]
                if canaries is None
                else [spread(canaries[name]) for name in ("bound", "gaussian")]
            )
            row |= {f"At least, {state}": lower[0]}
            row |= {f"for normal noise, {state}": lower[1]}
            labels = with_interval(*(cell[k] for k in ("iacc", "low", "high")))
            row |= {f"Labels, {state}": f"{labels} ({cell['attack']})"}
        rows.append(row)
    return table(pd.DataFrame(rows))


def in_short(named: pd.DataFrame, bounds: pd.DataFrame) -> str:
    """Return the label accuracy at ε = 4, and the number of bounds that exceed their claims."""
    fresh = named[(named["state"] == "untrained") & (named["epsilon"] == 4)]
    fresh = fresh.set_index("mechanism")
    share = fresh["iacc"].map("{:.0%}".format)
    above = bounds.groupby("mechanism")["above"].agg(["sum", "size"])
    above = {m: f"{n:.0f} of {of}" for m, n, of in above.itertuples()}
    return (
        f"At ε = 4 for one sample the best attack recovers {share[SAMPLE]} of the labels of an untrained network. "
        f"At ε = 4 for the client it recovers {share[CLIENT]}, and the best baseline {fresh.loc[CLIENT, 'guess']:.0%}. "
        f"The bound exceeds the claim for {above[SAMPLE]} canaries of DP-SGD, {above[CLIENT]} of the clipped update, "
        f"{above[UNCLIPPED]} without clipping and {above[AFTER]} with noise after aggregation."
    )


def fragments() -> dict[str, str]:
    """Return the table and sentences, and draw the figure."""
    run = Recorded("arena", device="cpu")
    named, bounds = named_by(run.best_rows("private")), run.best_rows("private_canary")
    file = paths.root() / "book" / "_generated" / "private.svg"
    file.write_text(write_svg(figure(named, bounds)), encoding="utf-8")
    expected = predictions.table(run, *predictions.ids(run, "D"))
    return {
        "private": side_by_side(named, bounds),
        "private_in_short": in_short(named, bounds),
        "private_expected": markdown(expected),
    }
