"""LLG: the notes of the evidence page on each figure; every measured number comes from the rows."""

import pandas as pd

from fedleak_book.evidence.estimates import having
from notebooks.llg.clients import PLAIN, RESIDUAL, SIZES, STEPS
from notebooks.show import table

QUARTILES = ("smallest", "lower quartile", "median", "upper quartile", "largest")


def mean(run, experiment, value="asr", **settings):
    """The mean of some recorded cells."""
    cells = run.best(experiment)
    return cells[having(**settings)(cells)][value].mean()


def fig_llg_4(run):
    def step(k, column, lr):
        """A step's number, mean over the two batch sizes."""
        return run.best("by_step").query("step == @k and lr == @lr")[column].mean()

    return locals()


def fig_llg_5(run):
    large = {
        net: mean(run, "fig5", algorithm="FedAvg", net=net, batch_size=SIZES[5:])
        for net in RESIDUAL + PLAIN
    }
    return locals()


def by_training(run):
    """Table the distribution over trainings of Sec. 6.4's rise and peaks under FedAvg."""
    rows = run.best_rows("fig6_early").pivot(
        index="trial", columns=["iteration", "attack"], values="asr"
    )
    peak = rows[300][["LLG*", "LLG+"]]
    parts = {
        "rise from iteration 100 to 300, smaller of LLG\\* and LLG+": (
            (peak - rows[100]).min(axis=1),
            0.0,
        ),
        "LLG\\* at iteration 300": (peak["LLG*"], 0.75),
        "LLG+ at iteration 300": (peak["LLG+"], 0.75),
    }
    lines = [
        {
            "ASR": name,
            **dict(
                zip(QUARTILES, values.quantile([0, 0.25, 0.5, 0.75, 1]), strict=True)
            ),
            "trainings": f"{(values >= least).sum()} of {len(values)} at or above {least:g}",
        }
        for name, (values, least) in parts.items()
    ]
    return table(pd.DataFrame(lines))


def fig_llg_6(run):
    parts = run.best("two_parts").set_index(["algorithm", "impact", "offset"])["asr"]
    texts = [
        f"{algorithm}: {parts[algorithm, 'own', 'none']:.2f} by LLG, {parts[algorithm, 'auxiliary', 'none']:.2f} with LLG+'s impact, "
        f"{parts[algorithm, 'own', 'auxiliary']:.2f} with LLG+'s offset"
        for algorithm in STEPS
    ]
    end, ids = (
        {"iteration": 1000},
        {"LLG*": (r"LLG\*", "llgstar"), "LLG+": ("LLG+", "llgplus")},
    )
    ends = [
        f"{title} ends at {run.cell('fig6_rounds', attack=attack, **end):.2f ci} (local steps: {run[f'fig6b-{id}']:.2f ci})"
        for attack, (title, id) in ids.items()
    ]
    trainings = by_training(run)
    return locals()


def fig_llg_7(run):
    def cost(defence, level, **settings):
        at = [
            mean(run, "fig7", defence=d, level=v, **settings)
            for d, v in (("none", 0.0), (defence, level))
        ]
        return 100 * (at[0] - at[1])

    forty = [cost("sparse", 0.4, algorithm="FedSGD", batch_size=size) for size in SIZES]
    twenty = [cost("released", 0.2, algorithm=algorithm) for algorithm in STEPS]
    noisy = mean(
        run, "fig7", algorithm="FedSGD", defence="noise", level=1.0, batch_size=8
    )

    def above_guess(cells, algorithm):
        rows = cells.query("algorithm == @algorithm and level in (0, 1)")
        wide = rows.pivot_table("asr", "batch_size", "defence")
        return 100 * (wide["dp"] - wide["random guess"])

    clippings = [run.best(blocks) for blocks in ("fig7_blocks", "fig7_whole")]
    at_16 = [-above_guess(cells, "FedSGD")[16] for cells in clippings]
    averaged = [above_guess(cells, "FedAvg") for cells in clippings]
    one_image = [excess.pop(1) for excess in averaged]
    below = [f"{-excess.max():.0f} to {-excess.min():.0f}" for excess in averaged]
    return locals()


def tab_llg_1(run):
    cells = run.best("table1").set_index(["algorithm", "defence", "level"])["accuracy"]
    lost = [100 * (cells[a, "none", 0.0] - cells[a, "noise", 1.0]) for a in STEPS]
    axes = ["algorithm", "defence", "level", "iterations"]
    nine, three = (
        run.best(name).set_index(axes)["accuracy"]
        for name in ("table1_short", "table1_lengths")
    )
    lengths = nine.combine_first(three).unstack().sort_index(axis=1)
    listed = lambda key: ", ".join(map("{:.3f}".format, lengths.loc[key]))  # noqa: E731
    ends = {a: listed((a, "none", 0.0)) for a in STEPS}
    clipped = {a: listed((a, "dp", 1.0)) for a in STEPS}
    read = run.best("table1_readings").set_index(["algorithm", "defence", "iterations"])
    read = read["accuracy"].unstack().sort_index(axis=1)
    averaged = {
        key: ", ".join(map("{:.3f}".format, read.loc[key].dropna()))
        for key in read.index
    }
    return locals()
