"""AGIC: the notes of the evidence page on each figure; every measured number comes from the rows."""

import inspect

import numpy as np

from fedleak_book.evidence.results import Number
from notebooks.agic.clients import BENT, FALLING, SIGNED, STORED
from notebooks.agic.notes_distance import by_iterations, libraries
from notebooks.show import enumerated
from notebooks.agic.clients import DESCENTS, LEVEL, METHODS, VARIANTS

STEADY = LEVEL


def psnr_by_trial(run, method, iteration, size=1):
    """PSNR by trial from one gradient at 32 x 32 pixels and the steady rate."""
    settings = dict(batch_size=size, method=method, iteration=iteration)
    return run.by_trial("table4", **settings)


def scheduled(run, method, schedule, net="resnet20-4", side=16, iteration=800):
    """PSNR by trial under a schedule."""
    settings = dict(net=net, side=side, iteration=iteration)
    return run.by_trial("schedules", method=method, schedule=schedule, **settings)


def error(run):
    """Eq. 4: ReLU and Tanh, runs that diverge, zeros."""
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
    return f"""
    From 1e-7 to 1e-6 the geometric mean of the error in double precision grows by factors of {enumerated(grows, ".0f")} for 2, 4 and 8 steps;
    the bound has 10. With Tanh the error is linear from 1e-8 to 1e-4. With ReLU it is not linear even below 1e-7 in {bent[4]} of
    {len(errors.loc["relu", 4])} batches for four steps, and in {bent[8]} for eight. This test used a network a quarter as wide and 12 × 12
    pixels, for which the error is smaller. In the number of steps the error grows more slowly than the bound.

    At 1e-2 some clients diverge. For eight steps the error is {10 ** finite.mean():.0%} over the {len(finite)} of {len(eight)} batches that
    stay finite, in double precision too. For four steps one batch overflows single precision, so this point is not drawn.

    The paper may also mean batch norm in training mode. The error of four steps at 1e-4 is then {run.mean(log_errors):.2f ci}. The verdicts
    on both learning rates are the same in either mode.

    The ReLU modifier counts exact zeros in the gradients of the convolutions under FedSGD. A
    FedAvg client sends a difference of weights in single precision. Small steps round to zero in it, so the modifier counts rounding too.
    """


def table4(run):
    """Table IV: length of the runs, schedules, batches of four, SSIM."""
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
    text = f"""
    **The length of the runs.** From the 1,000th to the 2,000th iteration PSNR changes by {more["InvG"]:.1f ci} dB for InvG,
    {more["DLG-Adam"]:.1f ci} for DLG-Adam and {agic:.1f ci} for AGIC. On a GPU all ran to 10,000 on six of the images; PSNR by schedule: {ends}.
    At the steady rate AGIC's result on the GPU differs by {device:.1f ci} dB from the CPU's on the same images.
    With four images at once InvG reaches {four["InvG"]:.1f ci} dB, which includes the paper's 14.4. DLG-Adam reaches {four["DLG-Adam"]:.1f ci} (14.0) and AGIC
    {four["AGIC"]:.1f ci} (17.2); AGIC gains {half:.1f} dB in its second half. On single images InvG is {run["tab4-invg"]:.1f ci} dB ahead of DLG-Adam.

    **A falling rate at 32 × 32.** The rate falls to a tenth after 3/8, 5/8 and 7/8 of the iterations, so a longer run has a different curve. AGIC's run of 5,000 ends
    {at_5000:.1f ci} dB above the 5,000th iteration at the steady rate; 29.3 to 33.3 dB would agree with the paper's 31.3. InvG's run of 3,000
    iterations gains {invg:.1f ci} dB on {invg.n} of the images; AGIC's lead on these is {run.mean(fall["AGIC"] - fall["InvG"]):.1f ci}.
    We first tried the steady rate and InvG's schedule on two images of CIFAR-10's training part, which are not scored. Therefore
    both are shown. We added the falling rate without sign after AGIC had stayed below the paper's value. We extended it from
    one image to four and to eight after looking at its interval, so this interval may have a coverage below 95 %.

    **Sign and falling rate at 16 × 16**, after 800 iterations. AGIC's lead over InvG by schedule is {leads} dB. The sign alone costs AGIC
    {run.mean(wide[STEADY] - wide[SIGNED]):.1f ci} dB. The falling rate adds {run.mean(wide[FALLING] - wide[SIGNED]):.1f ci} with the sign and
    {run.mean(wide[BENT] - wide[STEADY]):.1f ci} without it, with one image at {wide[BENT].max():.0f} dB and one at {wide[BENT].min():.0f}. On the
    narrow network with 12 × 12 pixels the falling rate alone costs {run.mean(thin[STEADY] - thin[BENT]):.1f ci} dB, and with the sign
    {run.mean(thin[STEADY] - thin[FALLING]):.1f ci}. AGIC's lead there is {ahead[FALLING]:.1f ci} with both, and {ahead[STEADY]:.1f ci} without. We did not separate the effects of width, image size and number of iterations there.

    **Smoothness.** Five images do not decide whether large images gain by being smooth: {run.mean(smooth - large):.1f ci} dB. The slider's patch is
    a different picture, from photographs, at 16 × 16.

    **The start** (PSNR in dB by the weights, means of three images): {early}.

    **SSIM is below the paper's at the same PSNR.** The paper does not print its windows; with even windows of nearly the full image
    ours come close.
    """
    return "\n\n".join([inspect.cleandoc(text), libraries(run), by_iterations(run)])


def fig6(run):
    """Fig. 6: the best picture."""
    last = psnr_by_trial(run, "AGIC", 10000)
    return f"""
    The largest PSNR among AGIC's {len(last)} images is {last.max():.1f} dB, the smallest {last.min():.1f}.
    """


def fig7(run):
    """Fig. 7 and the columns of ImageNet."""
    return """
    We did not try ResNet-50 with 224 × 224 pixels: an iteration takes seconds on a CPU, and 10,000 are needed.
    """


def fig8(run):
    """Fig. 8: the timed computation."""
    return f"""
    Eight images are split into 1, 2, 4 or 8 local steps on the paper's network; both attacks use the same layers. We time ten iterations with their
    set-up, the paper 10,000. The client's own steps take a few hundredths of one batch's time. One batch's slowest number of steps
    takes {run["fig8-constant"]:.2f ci} times as long as its fastest. The quality (Fig. 8a) is that of four CIFAR-100 images in 1, 2 or 4 steps, after 1,000
    iterations on a GPU.
    """


def fig9(run):
    """Fig. 9: differences at single ratios."""
    cells = run.best("fig9").set_index(["state", "beta", "iteration"])["psnr"]
    cells = cells.unstack()
    moved = cells[2000] - cells[1000]

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
    return f"""
    Four images ran for 2,000 of the paper's 10,000 iterations. In the second thousand the untrained runs rise by {moved.drop("trained").min():.1f} to {moved.drop("trained").max():.1f} dB, the trained
    ones change by {Number(moved.loc["trained"].min()):+.1f} to {Number(moved.loc["trained"].max()):+.1f}. Gains in dB, by ratio: the ReLU modifier {relu}; the convolution's weight instead of 1 for batch norm's parameters
    {norms}; the untrained network instead of the trained one {trained}.
    """


def table1(run):
    """Table I: the rules."""
    psnr = run.best("table1").set_index(["shape", "beta"])[["data", "psnr"]]
    sentences = {
        data: ", ".join(f"{s} to {b:g} {v:.1f}" for (s, b), v in rows["psnr"].items())
        for data, rows in psnr.groupby("data")
    }
    return f"""
    Four batches of four images, 1,000 iterations on a GPU. PSNR by function and value at the last layer, on CIFAR-10: {sentences["cifar10"]}; on
    CIFAR-100: {sentences["cifar100"]}.
    """


def table2(run):
    """Table II: the second half of the runs, equal weights, LPIPS."""

    def at(method, iteration):
        return run.by_trial("table2", method=method, iteration=iteration)

    level = {m: run.mean(at(m, 500)) for m in ("DLG-Adam", "InvG", "one batch")}
    levels = ", ".join(f"{m} {value:.1f}" for m, value in level.items())
    more = {m: run.mean(at(m, 2000) - at(m, 1000)) for m in ("AGIC", "one batch")}
    lpips = run.best("table2").query("final").set_index("method")["lpips"]
    return f"""
    After 500 iterations PSNR is {levels} dB. After 1,000 AGIC's lead over InvG is {run.mean(at("AGIC", 1000) - at("InvG", 1000)):.1f ci}. In its second half
    AGIC gains {more["AGIC"]:.1f} dB, and one batch with equal weights {more["one batch"]:.1f}. By LPIPS at the end of each run, the best is
    {lpips.idxmin()} ({lpips.min():.3f}) and the worst {lpips.idxmax()} ({lpips.max():.3f}). AGIC infers
    {run.cell("table2", "labels_right", method="AGIC", iteration=2000):.0%} of the labels correctly; the simulations are given each step's labels.
    """


def table3(run):
    """Table III: the assumptions of matching."""
    return """
    Joined updates need one label per image, in the same order; here the true ones are given. The network of the second epoch has had 20 steps of
    Adam in batches of 64, instead of an epoch of training by all clients.
    """


def table5(run):
    """Table V: the length of the rough reconstruction, and larger updates."""

    def plain(size):
        settings = dict(batch_size=size, labels="no labels", pooling="no pool")
        return enumerated(
            run.cell("table5", iteration=t, **settings) for t in (25, 50, 100, 150)
        )

    ends = run.best("table5").query("final and batch_size == 4")["rate"]
    return f"""
    Three runs have 24 images of twelve classes each, so labels alone do not decide every match. They stop after 150 of the paper's 2,000 iterations.
    The length of the rough reconstruction matters. Without labels and pooling the shares after 25, 50, 100 and 150 iterations are
    {plain(1)} for one image per update, and {plain(4)} for four. With four images the four rules match {ends.min():.2f} to {ends.max():.2f};
    the paper has 0.51 to 0.71.
    """


def table6(run):
    """Table VI: an earlier record."""
    second = run.cell("table6", epochs="second")
    return f"""
    There are five runs of five images, without a wrong match. The second epoch alone gives {second:.1f} dB. The paper has 21.5
    with both epochs, and 20.4 and 19.1 with one. An earlier record with 12 × 12 pixels had 36.8 with both and 31.7 with one, in a single run. The order may
    thus depend on the quality of the reconstructions; this is open.
    """


def table7(run):
    """Table VII as printed."""
    return """
    | Method | Main loss | Other terms | Optimiser | Labels inferred | Extra knowledge | Trained network | Several epochs | FedAvg |
    |---|---|---|---|---|---|---|---|---|
    | DLG | L2 | – | L-BFGS | no use | – | ✗ | ✗ | ✗ |
    | iDLG | L2 | – | L-BFGS | one | – | ✗ | ✗ | ✗ |
    | InvG | cosine | total variation | Adam | one | – | ✔ | ✗ | ✔ |
    | CPL | L2 | label-based | L-BFGS | one | – | ✗ | ✗ | ✗ |
    | R-GAP | recursive | – | – | one | – | ✗ | ✗ | ✗ |
    | GradInversion | L2 | total variation, L2 of the input, batch norm, group consistency | Adam | several | batch norm's statistics, a pretrained alignment model | ✔ | ✗ | ✗ |
    | Geng et al. | L2 | clipping, scaling | L-BFGS | several | – | ✗ | ✗ | full batch only |
    | GIAS | cosine | total variation | Adam | one | a pretrained generative model | ✗ | ✗ | ✗ |
    | AGIC | cosine | total variation | Adam | several | – | ✔ | ✔ | ✔ |

    Loss, optimiser and labels of DLG, InvG and AGIC could be scored, but our code follows these entries and would agree with itself. The last
    three columns list the conditions that were tried. With a measure of success nine marks of these three could be scored. The chapter tries four:
    AGIC on a trained network (Fig. 9), AGIC and InvG on FedAvg (Table II), AGIC on two epochs (Table VI).
    """


NOTES = {
    "fig-agic-error": error,
    "tab-agic-4": table4,
    "fig-agic-6": fig6,
    "fig-agic-7": fig7,
    "fig-agic-8": fig8,
    "fig-agic-9": fig9,
    "tab-agic-1": table1,
    "tab-agic-2": table2,
    "tab-agic-3": table3,
    "tab-agic-5": table5,
    "tab-agic-6": table6,
    "tab-agic-7": table7,
}
