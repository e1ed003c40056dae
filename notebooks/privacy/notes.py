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
STYLE = dict(
    zip(
        WORDS, zip(sns.color_palette("colorblind", 4), "osX^", strict=True), strict=True
    )
)
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
        for column, state in enumerate(("untrained", "trained")):
            top, bottom = axes[:, column]
            in_state = named[named["state"] == state]
            for name, group in in_state.groupby("mechanism", sort=False):
                colour, marker = STYLE[name]
                top.plot(
                    group["epsilon"],
                    group["iacc"],
                    color=colour,
                    marker=marker,
                    label=WORDS[name],
                )
                top.vlines(
                    group["epsilon"],
                    group["low"],
                    group["high"],
                    color=colour,
                    alpha=0.5,
                )
            top.axhline(
                in_state["guess"].mean(),
                color="#444444",
                linestyle=":",
                label="best baseline",
            )
            top.set_title(
                "untrained network" if state == "untrained" else "trained network",
                loc="left",
            )
            bounded(bottom, bounds[bounds["state"] == state])
            bottom.set_xlabel("claimed ε per client and round")
        axes[0, 0].set(ylabel="label accuracy (iAcc)", ylim=(0, 1.03), xscale="log")
        axes[1, 0].set(ylabel="lower bound on ε by canaries", yscale="log")
        handles = {
            label: h
            for ax in axes.flat
            for h, label in zip(*ax.get_legend_handles_labels(), strict=True)
        }
        drawn.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=2,
            frameon=False,
        )
    return drawn


def bounded(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw each network's lower bounds: filled for normal noise, hollow for any mechanism; above the line is wrong."""
    for name, group in rows.groupby("mechanism", sort=False):
        colour, marker = STYLE[name]
        axes.plot(
            group["epsilon"],
            group["gaussian"],
            color=colour,
            marker=marker,
            linestyle="",
            label=WORDS[name],
        )
        plain = group[group["bound"] > 0]
        axes.plot(
            plain["epsilon"],
            plain["bound"],
            color=colour,
            marker=marker,
            linestyle="",
            fillstyle="none",
        )
    ends = [rows["epsilon"].min(), 64]
    axes.plot(ends, ends, color="#444444", label="as claimed")


def spread(values: pd.Series) -> str:
    """Return a mean over the networks, with the lowest and the highest."""
    return f"{number(values.mean())} ({number(values.min())} to {number(values.max())})"


def side_by_side(named: pd.DataFrame, bounds: pd.DataFrame) -> str:
    """Return one row per mechanism and claimed ε."""
    rows = []
    for (mechanism, epsilon), group in named.groupby(CELL[:2], sort=False):
        row: dict[str, Any] = {"Mechanism": WORDS[mechanism], "Claimed ε": epsilon}
        for cell in group.to_dict("records"):
            state = cell["state"]
            at = bounds[(bounds[CELL] == [mechanism, epsilon, state]).all(axis=1)]
            row[f"At least, {state}"] = spread(at["bound"]) if len(at) else "–"
            row[f"for normal noise, {state}"] = (
                spread(at["gaussian"]) if len(at) else "–"
            )
            row[f"Labels, {state}"] = (
                f"{with_interval(*(cell[k] for k in ('iacc', 'low', 'high')))} ({cell['attack']})"
            )
        rows.append(row)
    return table(pd.DataFrame(rows))


def in_short(named: pd.DataFrame, bounds: pd.DataFrame) -> str:
    """Return the label accuracy at ε = 4, and the number of bounds that exceed their claims."""
    fresh = named[(named["state"] == "untrained") & (named["epsilon"] == 4)].set_index(
        "mechanism"
    )
    share = fresh["iacc"].map("{:.0%}".format)
    above = {
        m: f"{int(exceeded.sum())} of {len(exceeded)}"
        for m, exceeded in bounds.groupby("mechanism")["above"]
    }
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
    (paths.root() / "book" / "_generated" / "private.svg").write_text(
        write_svg(figure(named, bounds)), encoding="utf-8"
    )
    expected = markdown(predictions.table(run, *predictions.ids(run, "D")))
    return {
        "private": side_by_side(named, bounds),
        "private_in_short": in_short(named, bounds),
        "private_expected": expected,
    }
