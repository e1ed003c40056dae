"""AGIC: the notes of the evidence page on each figure; every measured number comes from the rows."""

import itertools

import numpy as np
import pandas as pd
from skimage.metrics import structural_similarity
from torchmetrics.functional.image import structural_similarity_index_measure

from fedleak import metrics
from notebooks.agic.clients import BENT, DESCENTS, LEVEL, METHODS, STORED, VARIANTS
from notebooks.agic.clients import WHOLE, unhexed
from notebooks.show import enumerated

STEADY = LEVEL


def psnr_by_trial(run, method, iteration, size=1):
    """PSNR by trial from one gradient at 32 x 32 pixels and the steady rate."""
    settings = dict(batch_size=size, method=method, iteration=iteration)
    return run.by_trial("table4", **settings)


def scheduled(run, method, schedule, net="resnet20-4", side=16, iteration=800):
    """PSNR by trial under a schedule."""
    settings = dict(net=net, side=side, iteration=iteration)
    return run.by_trial("schedules", method=method, schedule=schedule, **settings)


def fig_agic_error(run):
    logs = run.best("error").set_index(["precision", "steps", "lr"])["log_error"]
    grows = [
        10 ** (logs["float64", t, 1e-6] - logs["float64", t, 1e-7]) for t in (2, 4, 8)
    ]
    eight = run.by_trial("error", "log_error", precision="float64", steps=8, lr=1e-2)
    errors = run.best_rows("smooth").pivot(
        index=["activation", "steps", "trial"], columns="lr", values="error"
    )
    bent = (errors[1e-7] / errors[1e-8])["relu"].gt(10.5).groupby("steps").sum()
    finite = eight[np.isfinite(eight)]
    log_errors, _ = (
        run.by_trial("error_training_mode", value, lr=1e-4)
        for value in ("error", "log_error")
    )
    return locals()


HALF = {"psnr": 1.0, "ssim": 0.05, "lpips": 0.025}
"""Half of Table IV's tolerances: the change below which a method counts as settled."""
STOPS = (500, 1000, 2000, 5000, WHOLE)


def change(run, value, start, end=WHOLE, **settings):
    """Return the paired change of a value between two numbers of iterations, with its interval."""
    start, end = (
        run.by_trial("distance", value, iteration=t, **settings) for t in (start, end)
    )
    return run.mean(end - start)


def psnr_by_iterations(run):
    """Return PSNR by iterations, method and batch size, with the change after the 2,000th iteration, as rows of a table."""
    ends = [(1, method, WHOLE) for method in METHODS]
    ends += [(4, "InvG", 5000), (4, "DLG-Adam", 5000), (4, "AGIC", WHOLE)]
    for size, method, end in ends:
        settings = dict(batch_size=size, method=method)
        row = {"images": size, "attack": method, **{f"{t:,}": "–" for t in STOPS}}
        for t in STOPS[: STOPS.index(end) + 1]:
            row[f"{t:,}"] = f"{run.cell('distance', iteration=t, **settings):.1f}"
        after = change(run, "psnr", 2000, end, **settings)
        yield row | {"change after 2,000": f"{after:+.1f ci}"}


def backtest(run):
    """Predict 10,000 iterations of other images from fewer; return numbers of values and covered values, and mean half-width in dB."""
    hits, widths = [], []
    level = dict(schedule=LEVEL, batch_norm=STORED)
    cells = [("choices", m, level) for m in METHODS]
    cells.append(("table4", "AGIC", dict(batch_size=1)))
    for (record, method, settings), value, stop in itertools.product(
        cells, ("psnr", "lpips"), (1000, 2000, 5000)
    ):
        part, whole = (
            run.cell(record, value, method=method, iteration=t, **settings)
            for t in (stop, WHOLE)
        )
        effect = change(run, value, stop, batch_size=1, method=method)
        low, high = part.low + min(0.0, effect.low), part.high + max(0.0, effect.high)
        hits.append(low <= whole <= high)
        widths += [(high - low) / 2] if value == "psnr" else []
    return len(hits), sum(map(bool, hits)), sum(widths) / len(widths)


def unsettled(run, iteration):
    """Return the methods whose values still change after an iteration, with one image, in words."""
    names = []
    for method, (value, half) in itertools.product(METHODS, HALF.items()):
        number = change(run, value, iteration, batch_size=1, method=method)
        if not (-half <= number.low and number.high <= half):
            names.append(f"{method} ({value.upper()})")
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


def tab_agic_4(run):
    ended = {
        (m, s): run.by_trial(
            "choices", method=m, schedule=s, batch_norm=STORED, final=True
        )
        for m in METHODS
        for s in DESCENTS
    }
    ends = "; ".join(
        f"{s}: " + ", ".join(f"{m} {run.mean(ended[m, s]):.1f ci}" for m in METHODS[1:])
        for s in DESCENTS
    )
    ends += f"; DLG-Adam, which has none: {run.mean(ended[METHODS[0], STEADY]):.1f ci}"
    device = run.mean(ended["AGIC", STEADY] - psnr_by_trial(run, "AGIC", 10000))
    more = {
        m: run.mean(psnr_by_trial(run, m, 2000) - psnr_by_trial(run, m, 1000))
        for m in ("InvG", "DLG-Adam")
    }
    agic = run.mean(psnr_by_trial(run, "AGIC", 2000) - psnr_by_trial(run, "AGIC", 1000))
    four = {m: run.mean(psnr_by_trial(run, m, 1000, 4)) for m in METHODS}
    half = run.mean(
        psnr_by_trial(run, "AGIC", 1000, 4) - psnr_by_trial(run, "AGIC", 500, 4)
    )
    wide = {s: scheduled(run, "AGIC", s) for s in DESCENTS}
    thin = {s: scheduled(run, "AGIC", s, "resnet20-1", 12) for s in DESCENTS}
    lead = {s: run.mean(wide[s] - scheduled(run, "InvG", s)) for s in DESCENTS}
    invg_thin = {s: scheduled(run, "InvG", s, "resnet20-1", 12) for s in DESCENTS}
    ahead = {s: run.mean(thin[s] - invg_thin[s]) for s in DESCENTS}
    fall = {
        m: scheduled(run, m, BENT, side=32, iteration=t)
        for m, t in (("AGIC", 5000), ("InvG", 3000))
    }
    at_5000 = run.mean(fall["AGIC"] - psnr_by_trial(run, "AGIC", 5000))
    invg = run.mean(fall["InvG"] - psnr_by_trial(run, "InvG", 2000))
    large = psnr_by_trial(run, "AGIC", 800).iloc[:5]
    smooth = run.by_trial("sizes", data="cifar10, smooth", iteration=800)
    leads = "; ".join(f"{s}: {x:.1f ci}" for s, x in lead.items())
    start = run.best("early").set_index(["beta", "iteration"])["psnr"]
    early = "; ".join(
        f"{t} iterations: falling {start[0.02, t]:.1f}, equal {start[1.0, t]:.1f}, rising {start[50.0, t]:.1f}"
        for t in (20, 40, 100, 150)
    )
    ssim = ssim_by_library(run)
    less = ssim.iloc[:, 0] - ssim["torchmetrics"]
    ssim = ssim.map("{:.2f}".format).reset_index()
    by_iterations = list(psnr_by_iterations(run))
    still = {t: unsettled(run, t) for t in (2000, 5000)}
    values, covered, width = backtest(run)
    return locals()


def fig_agic_6(run):
    last = psnr_by_trial(run, "AGIC", 10000)
    return locals()


def fig_agic_9(run):
    cells = run.best("fig9").set_index(["state", "beta", "iteration"])["psnr"]
    cells = cells.unstack()

    def gaps(state):
        """The untrained network's lead over a variant, by ratio."""
        differences = {}
        for b in (1.0, 2.0, 20.0, 50.0):
            ends = [
                run.by_trial("fig9", state=s, beta=b, final=True)
                for s in ("untrained", state)
            ]
            differences[b] = run.mean(ends[0] - ends[1])
        return "; ".join(f"β = {b:g}: {gap:.1f ci}" for b, gap in differences.items())

    relu, norms, trained = map(gaps, [*VARIANTS, "trained"])
    return locals()


def tab_agic_1(run):
    psnr = run.best("table1").set_index(["shape", "beta"])[["data", "psnr"]]
    sentences = {
        data: ", ".join(f"{s} to {b:g} {v:.1f}" for (s, b), v in rows["psnr"].items())
        for data, rows in psnr.groupby("data")
    }
    return locals()


def tab_agic_2(run):
    def at(method, iteration):
        return run.by_trial("table2", method=method, iteration=iteration)

    level = {m: run.mean(at(m, 500)) for m in ("DLG-Adam", "InvG", "one batch")}
    levels = ", ".join(f"{m} {value:.1f}" for m, value in level.items())
    more = {m: run.mean(at(m, 2000) - at(m, 1000)) for m in ("AGIC", "one batch")}
    lpips = run.best("table2").query("final").set_index("method")["lpips"]
    return locals()


def tab_agic_5(run):
    def plain(size):
        settings = dict(batch_size=size, labels="no labels", pooling="no pool")
        return enumerated(
            run.cell("table5", iteration=t, **settings) for t in (25, 50, 100, 150)
        )

    ends = run.best("table5").query("final and batch_size == 4")["rate"]
    return locals()
