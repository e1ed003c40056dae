"""LLG: figures and small tables of rows. A figure takes cells, one row per cell, or trial rows if its docstring says so."""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from fedleak import models
from notebooks import plots
from notebooks.llg.claims import LETTERS, NAMED
from fedleak_book.evidence.estimates import having
from notebooks.llg.clients import LEVELS, PLACES, SIZES, STEPS, TITLE

AXES = dict(
    x="batch_size",
    y="asr",
    panel="panel",
    xlabel="batch size B",
    ylabel="label accuracy (iAcc)",
)
SIDES = {"FedSGD": "(a) FedSGD", "FedAvg": "(b) FedAvg"}
DEFENCES = {  # its name, how its levels are written, and the paper's panels
    "noise": ("noise σ", "{:g}", "ad"),
    "dp": ("clipping β", "{:g}", "be"),
    "sparse": ("compression θ", "{:.0%}", "cf"),
    "released": ("as released, θ", "{:.0%}", "  "),
}


def fig3(rows):
    """Draw a class's gradients by its occurrences, from trial rows: raw, share of negative ones, calibrated."""
    rows = rows[rows["init"] == "fresh"]
    figure = Figure(figsize=(8.4, 3.0), layout="constrained")
    raw_axes, share_axes, calibrated_axes = figure.subplots(
        1, 3, width_ratios=[1, 1.25, 0.9]
    )
    for axes, gradient, scale in (
        (raw_axes, "raw", lambda size: 1),
        (calibrated_axes, "calibrated", lambda size: size),
    ):
        for (size, part), marker in zip(
            rows.groupby("batch_size"), "osD^", strict=True
        ):
            groups = part.groupby("occurrences")[gradient]
            line = groups.quantile([0.05, 0.5, 0.95]).unstack()[groups.size() >= 5]
            at = line.index / scale(size)
            (drawn,) = axes.plot(
                at, line[0.5], marker=marker, markersize=3.5, label=f"B = {size}"
            )
            axes.fill_between(
                at,
                line[0.05],
                line[0.95],
                color=drawn.get_color(),
                alpha=0.2,
                linewidth=0,
            )
        axes.axhline(0, color="black", linewidth=0.8)
    ticks = [0, *SIZES[:-1:2]]
    raw_axes.set_xscale("symlog", base=2, linthresh=1)
    raw_axes.set_xticks(ticks, map(str, ticks))
    raw_axes.set(
        xlabel="occurrences of the label, λ", ylabel="gradient $g_i$", title="(a) raw"
    )
    calibrated_axes.legend(loc="lower left", fontsize=plots.SMALL)
    calibrated_axes.set(
        xlabel="share of the batch, λ / B",
        ylabel="gradient $g_i$ less its offset",
        title="(c) calibrated",
    )
    few = rows[rows["occurrences"] <= 8].assign(negative=lambda t: 100 * (t["raw"] < 0))
    shares = few.pivot_table(
        index="batch_size", columns="occurrences", values="negative"
    )
    look = dict(
        cmap="rocket_r",
        annot=True,
        fmt=".0f",
        annot_kws={"size": plots.SMALL},
        vmin=0,
        vmax=100,
        cbar=False,
    )
    sns.heatmap(shares, ax=share_axes, **look)
    share_axes.set(
        xlabel="occurrences of the label, λ",
        ylabel="batch size B",
        title="(b) negative ones [%]",
    )
    return figure


def titled(algorithm, title):
    """Return a panel's title."""
    return f"({LETTERS[algorithm, title]}) {title}, {algorithm}"


def values_of_fig4(published):
    """Return what Sec. 6.2 says of the panels of Fig. 4: where each variant, or all of them, lies."""
    places = {}
    for (algorithm, title), letter in LETTERS.items():
        for name in (*NAMED.values(), "llgstar-range", "range"):
            if (id := f"fig4{letter}-{name}") in published.items:
                places[id] = {"panel": titled(algorithm, title)}
    return plots.stated(published, places)


def with_more_networks(cells, others):
    """Return cells in which those of `others`, which have more networks, replace those of the same settings."""
    keys = ["algorithm", "data", "attack", "batch_size"]
    table = pd.concat([others, cells], ignore_index=True)
    return table.drop_duplicates(keys).sort_values("batch_size", kind="stable")


def extraction(cells, dlg, composition, published=None):
    """Draw Figs. 4 and 8: the ASR of every attack by batch size, with a panel per data set and algorithm."""
    table = pd.concat(
        [cells, dlg[having(composition=composition, net="cnn")(dlg)]], ignore_index=True
    )
    keys = [
        (a, TITLE[d]) for a, d in zip(table["algorithm"], table["data"], strict=True)
    ]
    table = table.assign(panel=[titled(*key) for key in keys])
    printed = published and values_of_fig4(published)
    ordered = table.sort_values("panel", kind="stable")
    return plots.curves(ordered, hue="attack", columns=4, printed=printed, **AXES)


def fig5(cells, dlg, published):
    """Draw the ASR of LLG+ by network, and of DLG where it was run."""
    drawn = pd.concat(
        [cells, dlg[having(composition="unbalanced", data=PLACES["MNIST"])(dlg)]],
        ignore_index=True,
    )
    lines = drawn["attack"].fillna("LLG+") + ", " + drawn["net"].map(models.title)
    panels = drawn.assign(panel=drawn["algorithm"].map(SIDES), line=lines)
    above = {"fig5a-cnn": {"panel": SIDES["FedSGD"]}}  # LeNet's sentence is the same
    said_of = plots.stated(published, above)
    return plots.curves(panels, hue="line", printed=said_of, **AXES)


ENDS = {"LLG*": "llgstar", "LLG+": "llgplus", "DLG": "dlg", "random guess": "random"}


def said_of_training(published, last):
    """Return what Sec. 6.4 says of the two panels, at the end and, under FedAvg, at iteration 300."""
    a, b = ({"panel": SIDES[algorithm]} for algorithm in ("FedSGD", "FedAvg"))
    places = {"fig6a-llg": a, "fig6b-all": b, "fig6a-random": a | {"x": last}}
    places["fig6a-random"]["hue"] = "random guess"
    for attack, name in ENDS.items():
        places[f"fig6b-{name}"] = b | {"x": last, "hue": attack}
        if (peak := f"fig6b-peak-{name}") in published.items:
            places[peak] = b | {"x": 300, "hue": attack}
    for letter, side in (("a", a), ("b", b)):
        places[f"fig6{letter}-accuracy"] = side | {"x": last, "hue": "test accuracy"}
    return plots.stated(published, places)


def fig6(cells, early, published):
    """Draw the ASR during training, and the network's accuracy; `early` has more trainings of some of the cells."""
    same = ["algorithm", "attack", "iteration"]
    joined = pd.concat([cells, early]).drop_duplicates(same, keep="last")
    cells = joined.sort_values("iteration", kind="stable")
    names = dict(
        x="iteration",
        xlabel="training iterations",
        ylabel="label accuracy; test accuracy",
    )
    panels = cells.assign(panel=cells["algorithm"].map(SIDES))
    printed = said_of_training(published, panels["iteration"].max())
    look = dict(hue="attack", log2=False, printed=printed)
    figure = plots.curves(panels, **look, **AXES | names)
    note = dict(
        xytext=(0, 5),
        textcoords="offset points",
        ha="right",
        color="dimgrey",
        fontsize=plots.SMALL,
    )
    for axes, algorithm in zip(figure.axes, STEPS, strict=True):
        line = cells[cells["algorithm"] == algorithm].drop_duplicates("iteration")
        axes.plot(line["iteration"], line["accuracy"], color="grey", linestyle="--")
        axes.annotate("test accuracy", line[["iteration", "accuracy"]].iloc[-1], **note)
    return figure


BY_GUESS = {  # where Sec. 6.5 puts LLG+ against the random guess: above it or below, at which batch sizes
    "a": ("above", SIZES),
    "b": ("below", [size for size in SIZES if size >= 16]),
    "c": ("below", SIZES[2:]),
    "d": ("above", SIZES),
    "e": ("below", SIZES),
    "f": ("below", SIZES),
}


def said_of_defences(panels, published):
    """Return what Sec. 6.5 says: above the guess under noise, below it under strong clipping and compression."""
    rows = []
    for panel, lines in panels.groupby("panel", sort=False):
        side, sizes = BY_GUESS.get(panel[1], ("", []))
        guess = lines[lines["line"] == "random guess"].set_index("batch_size")["asr"]
        for size in guess.index.intersection(sizes):
            low, high = (guess[size], 1) if side == "above" else (0, guess[size])
            place = {"panel": panel, "x": size, "hue": ""}
            rows.append(place | {"low": low, "high": high})
        if panel.startswith("(e)"):
            last = {"panel": panel, "x": guess.index.max(), "hue": "strong"}
            rows += plots.stated(published, {"fig7e-strong": last}).to_dict("records")
    return pd.DataFrame(rows)


def fig7(cells, untrained, published):
    """Draw the ASR of LLG+ under every defence and strength, with the random guess of Fig. 4."""
    guesses = untrained[having(data=PLACES["MNIST"], attack="random guess")(untrained)]
    pieces = []
    for kind, (title, text, letters) in DEFENCES.items():
        levels = [level for name, level in LEVELS if name == kind]
        names = dict(zip(levels, ("weak", "medium", "strong"), strict=True)) | {
            0.0: "no defence"
        }
        rows = cells[cells["defence"].isin([kind, "none"])]
        lines = pd.concat(
            [
                rows.assign(line=rows["level"].map(names)),
                guesses.assign(line="random guess"),
            ]
        )
        strengths = ", ".join(map(text.format, levels))
        for letter, algorithm in zip(letters, STEPS, strict=True):
            panel = (
                f"({letter}) ".replace("( ) ", "")
                + f"{title}, {algorithm}\n{strengths}"
            )
            pieces.append(lines[lines["algorithm"] == algorithm].assign(panel=panel))
    order = [piece for half in (pieces[::2], pieces[1::2]) for piece in half]
    panels = pd.concat(order)
    look = dict(hue="line", columns=4, printed=said_of_defences(panels, published))
    return plots.curves(panels, **look, **AXES | {"ylabel": "iAcc of LLG+"})


def table1(cells, printed):
    """Return accuracy under the defences, ours and the paper's: a row per defence and level, two columns per algorithm."""
    names = {
        "none": "no defence",
        **{kind: title for kind, (title, *_) in DEFENCES.items()},
    }

    def format_accuracy(row):
        spread = (row["accuracy high"] - row["accuracy low"]) / 2
        return f"{row['accuracy']:.3f}" + (
            f" ± {spread:.3f}" if np.isfinite(spread) else ""
        )

    keys = ["defence", "level"]
    ours = cells.assign(
        text=[format_accuracy(row) for _, row in cells.iterrows()]
    ).pivot(index=keys, columns="algorithm", values="text")
    theirs = printed.pivot(index=keys, columns="algorithm", values="accuracy")
    sides = {
        f"{a}, {who}": t[a]
        for a in STEPS
        for who, t in (("ours", ours), ("paper", theirs))
        if a in t
    }
    table = (
        pd.concat(sides, axis=1)
        .reindex([level for level in LEVELS if level in ours.index])
        .reset_index()
    )
    level = table["level"].map("{:g}".format)
    return table.assign(defence=table["defence"].map(names), level=level)
