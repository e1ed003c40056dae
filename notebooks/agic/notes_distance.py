"""AGIC: what stopping before the paper's 10,000 iterations changes, and how SSIM differs by library; for the evidence page."""

import inspect

import pandas as pd
from skimage.metrics import structural_similarity
from torchmetrics.functional.image import structural_similarity_index_measure

from fedleak import metrics
from notebooks.agic.clients import STORED, unhexed
from notebooks.agic.clients import LEVEL, METHODS

HALF = {"psnr": 1.0, "ssim": 0.05, "lpips": 0.025}
"""Half of Table IV's tolerances: the change below which a method counts as settled."""


def markdown(lines):
    """Return lines of cells as a Markdown table, with the first line as head."""
    head, *body = lines
    return "\n".join(
        f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *body]
    )


def change(run, value, start, end=10000, **settings):
    """Return the paired change of a value between two numbers of iterations, with its interval."""
    start, end = (
        run.by_trial("distance", value, iteration=t, **settings) for t in (start, end)
    )
    return run.mean(end - start)


def settled(number, value):
    """Return whether the interval of a change lies within half the tolerance."""
    return -HALF[value] <= number.low and number.high <= HALF[value]


def curves(run):
    """Return the table of PSNR by iterations, method and batch size, with the change after the 2,000th iteration."""
    lines = [
        [
            "images",
            "attack",
            "500",
            "1,000",
            "2,000",
            "5,000",
            "10,000",
            "change after 2,000",
        ]
    ]
    for size, last in (
        (1, dict.fromkeys(METHODS, 10000)),
        (4, {"InvG": 5000, "DLG-Adam": 5000, "AGIC": 10000}),
    ):
        for method, end in last.items():
            settings = dict(batch_size=size, method=method)
            stops = [t for t in (500, 1000, 2000, 5000, 10000) if t <= end]
            values = [
                f"{run.cell('distance', iteration=t, **settings):.1f}" for t in stops
            ]
            after = f"{change(run, 'psnr', 2000, end, **settings):+.1f ci}"
            lines.append(
                [str(size), method, *values, *["–"] * (5 - len(values)), after]
            )
    return markdown(lines)


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


def by_iterations(run):
    """The gain by 10,000 iterations, and its use as a transport."""
    still = {
        t: [
            f"{m} ({value.upper()})"
            for m in METHODS
            for value in HALF
            if not settled(change(run, value, t, batch_size=1, method=m), value)
        ]
        for t in (2000, 5000)
    }
    unsettled = {t: ", ".join(names) or "none" for t, names in still.items()}
    values, covered, width = backtest(run)
    agic = run.cell("distance", batch_size=4, method="AGIC", iteration=10000)
    text = f"""
    **PSNR by iterations**, in dB, at the steady rate without sign: 24 images and 12 batches of four, others than those of the records
    above, on a GPU. With four images InvG and DLG-Adam end at 5,000.

    TABLE

    A method counts as settled if the interval of the change to 10,000 lies within half the tolerance: 1 dB, .05 of SSIM, .025 of LPIPS. With
    one image these are not settled after 2,000 iterations: {unsettled[2000]}; after 5,000: {unsettled[5000]}. With four images AGIC ends at
    {agic:.1f ci} dB, where the paper prints 17.2.

    **As a transport** the change widens the interval of other images at 1,000, 2,000 or 5,000 iterations. That covers {covered} of {values}
    values that are known at 10,000 (`choices`, `table4`; six to eight images, so that they are not independent), but with a mean half-width of {width:.1f} dB. At most 1 dB was allowed, so the transport
    does not count and raises no grade.
    """
    return inspect.cleandoc(text).replace("TABLE", curves(run))


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


def libraries(run):
    """Return the table of SSIM by library and in the paper, and the records with the earlier SSIM."""
    ends = run.best_rows("table4").query("final and batch_size == 1")
    table = ends.apply(by_library, axis=1).groupby("attack").mean()
    printed = pd.DataFrame(run.published.tables["table4"].rows)
    printed = printed.query("data == 'cifar10' and batch_size == 1")
    table["paper"] = printed.set_index("method")["ssim"].astype(float)
    less = table.iloc[:, 0] - table["torchmetrics"]
    text = f"""
    **SSIM by library.** Wang et al. average over the Gaussian windows of 11 pixels inside the image, as piq does. torchmetrics averages over
    the reflected border too: {less.min():.2f} to {less.max():.2f} less on these pictures. scikit-image takes even windows of 7 by default.
    Every record of AGIC but `distance` was made with torchmetrics, so its SSIM is too low by about as much. Means over the pictures of `table4`:

    TABLE
    """
    lines = [
        ["attack", *table],
        *([name, *map("{:.2f}".format, row)] for name, row in table.iterrows()),
    ]
    return inspect.cleandoc(text).replace("TABLE", markdown(lines))
