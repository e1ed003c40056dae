"""AGIC: what stopping before the paper's 10,000 iterations changes, and how SSIM differs by library; for the evidence page."""

import pandas as pd
from skimage.metrics import structural_similarity
from torchmetrics.functional.image import structural_similarity_index_measure

from fedleak import metrics
from notebooks.agic.clients import STORED, unhexed
from notebooks.agic.clients import LEVEL, METHODS

HALF = {"psnr": 1.0, "ssim": 0.05, "lpips": 0.025}
"""Half of Table IV's tolerances: the change below which a method counts as settled."""


def change(run, value, start, end=10000, **settings):
    """Return the paired change of a value between two numbers of iterations, with its interval."""
    start, end = (
        run.by_trial("distance", value, iteration=t, **settings) for t in (start, end)
    )
    return run.mean(end - start)


def settled(number, value):
    """Return whether the interval of a change lies within half the tolerance."""
    return -HALF[value] <= number.low and number.high <= HALF[value]


STOPS = (500, 1000, 2000, 5000, 10000)


def psnr_by_iterations(run):
    """Return PSNR by iterations, method and batch size, with the change after the 2,000th iteration, as rows of a table."""
    rows = []
    for size, last in (
        (1, dict.fromkeys(METHODS, 10000)),
        (4, {"InvG": 5000, "DLG-Adam": 5000, "AGIC": 10000}),
    ):
        for method, end in last.items():
            settings = dict(batch_size=size, method=method)
            row = {"images": size, "attack": method} | dict.fromkeys(
                (f"{t:,}" for t in STOPS), "–"
            )
            for t in STOPS[: STOPS.index(end) + 1]:
                row[f"{t:,}"] = f"{run.cell('distance', iteration=t, **settings):.1f}"
            change_after = change(run, "psnr", 2000, end, **settings)
            rows.append(row | {"change after 2,000": f"{change_after:+.1f ci}"})
    return rows


def backtest(run):
    """Predict 10,000 iterations of other images from fewer; return numbers of values and covered values, and mean half-width in dB."""
    hits, widths = [], []
    cells = [("choices", m, dict(schedule=LEVEL, batch_norm=STORED)) for m in METHODS]
    for experiment, method, settings in [
        *cells,
        ("table4", "AGIC", dict(batch_size=1)),
    ]:
        for value in ("psnr", "lpips"):
            for stop in (1000, 2000, 5000):
                part, whole = (
                    run.cell(experiment, value, method=method, iteration=t, **settings)
                    for t in (stop, 10000)
                )
                effect = change(run, value, stop, batch_size=1, method=method)
                low, high = (
                    part.low + min(0.0, effect.low),
                    part.high + max(0.0, effect.high),
                )
                hits.append(low <= whole <= high)
                widths += [(high - low) / 2] if value == "psnr" else []
    return len(hits), sum(map(bool, hits)), sum(widths) / len(widths)


def unsettled(run, iteration):
    """Return the methods whose values still change after an iteration, with one image, in words."""
    names = [
        f"{method} ({value.upper()})"
        for method in METHODS
        for value in HALF
        if not settled(
            change(run, value, iteration, batch_size=1, method=method), value
        )
    ]
    return ", ".join(names) or "none"


def by_library(row):
    """Compute SSIM of a picture and its original by library: Wang et al.'s, and other libraries' defaults."""
    recovered, original = (unhexed(row[name]) for name in ("found", "original"))
    whole = (recovered.shape[-1] - 1) // 2 * 2 - 1

    def even(size):
        arrays = (image.numpy() for image in (recovered, original))
        return structural_similarity(
            *arrays, channel_axis=0, data_range=1.0, win_size=size
        )

    bordered = structural_similarity_index_measure(
        recovered[None], original[None], data_range=1.0
    )
    return pd.Series(
        {
            "attack": row["method"],
            "Wang et al. (ours, piq)": metrics.ssim(
                recovered[None], original[None]
            ).item(),
            "torchmetrics": bordered.item(),
            "scikit-image": even(7),
            f"even window of {whole}": even(whole),
        }
    )


def ssim_by_library(run):
    """Return mean SSIM by method: by Wang et al.'s windows, by other libraries, and the paper's."""
    ends = run.best_rows("table4").query("final and batch_size == 1")
    table = ends.apply(by_library, axis=1).groupby("attack").mean()
    printed = pd.DataFrame(run.published.tables["table4"].rows)
    printed = printed.query("data == 'cifar10' and batch_size == 1")
    return table.assign(paper=printed.set_index("method")["ssim"].astype(float))
