"""LLG: the notes of the evidence page on each figure; every measured number comes from the rows."""

import pandas as pd

from fedleak_book.evidence.estimates import having
from notebooks.llg.clients import PLAIN, RESIDUAL, SIZES, STEPS
from notebooks.show import prose, table

QUARTILES = ("smallest", "lower quartile", "median", "upper quartile", "largest")


def mean(run, experiment, value="asr", **settings):
    """The mean of some recorded cells."""
    cells = run.best(experiment)
    return cells[having(**settings)(cells)][value].mean()


def fig3(run):
    """Fig. 3: one network or many."""
    return f"""
    The paper says |ρ| > 0.99 after calibration. The impact differs between random networks, so pooling fresh networks blurs the
    line: |ρ| is at least {run["fig3c-fresh"]:.3f ci}. With one network for all batches, as in the released code, |ρ| is at least
    {run["fig3c-single"]:.3f ci}.
    """


def fig4(run):
    """Fig. 4: the settings of DLG, and three interpretations of the impact under FedAvg."""

    def step(k, column, lr):
        """A step's number, mean over the two batch sizes."""
        return run.best("by_step").query("step == @k and lr == @lr")[column].mean()

    return f"""
    DLG optimises dummy images and labels by L-BFGS (learning rate 1, 100 outer steps) until their gradient equals the shared one.
    The optimised labels are its answer. DLG costs thousands of passes, so it ran on fewer trials. On other data sets, and under
    FedAvg, it ran only on the smallest batches. Under FedAvg our DLG reconstructs the images of all ten steps as one batch; the
    paper does not say how it treats them.

    **Impact under FedAvg.** Which of {{ref}}`three interpretations <tab-llg-readings>` works best for LLG+ depends on the learning rate (the rows of `fedavg_readings`). At 0.001 all steps
    are alike, and ten sum to {step(10, "length", 0.001):.1f} times the first, so the linear interpretation is best. At 0.1 steps overshoot: at the second step, {step(2, "overshot", 0.1):.0%} of the
    clients have a positive sum for their majority label. Ten steps sum to only {step(10, "length", 0.1):.1f} times the first, so the released interpretation is best.
    """


def fig5(run):
    """Fig. 5: the missing activation, DLG, and large batches under FedAvg."""
    large = {
        net: mean(run, "fig5", algorithm="FedAvg", net=net, batch_size=SIZES[5:])
        for net in RESIDUAL + PLAIN
    }
    return f"""
    The missing activation protects only against attacks on row sums. The bias's gradient is shared too, and its sign reveals the
    label without any premise. DLG's iAcc on LeNet differs from that on the CNN by {run["fig5a-dlg"]:.2f ci}. Under FedAvg the networks
    do not become similar as the batch grows. For B ≥ 32 the iAcc of LLG+ is {large["cnn"]:.2f} on the CNN, {large["lenet"]:.2f} on LeNet
    and {large["resnet20"]:.2f} on ResNet20. Some of the ResNet20s leak, the others do not.
    """


def by_training(run):
    """Table the distribution over trainings of Sec. 6.4's rise and peaks under FedAvg."""
    rows = run.best_rows("fig6_early").pivot(
        index="trial", columns=["iteration", "attack"], values="asr"
    )
    both = rows[300][["LLG*", "LLG+"]]
    parts = {
        "rise from iteration 100 to 300, smaller of LLG\\* and LLG+": (
            (both - rows[100]).min(axis=1),
            0.0,
        ),
        "LLG\\* at iteration 300": (both["LLG*"], 0.75),
        "LLG+ at iteration 300": (both["LLG+"], 0.75),
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


def fig6(run):
    """Fig. 6: longer training, why LLG+ falls, the random guess."""
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
    accuracy = run.cell("fig6_rounds", "accuracy", attack="LLG", **end)
    text = f"""
    Under FedAvg the paper's 1,000 iterations have two interpretations: local steps, in a hundred rounds of ten, or rounds. After
    1,000 rounds the test accuracy is {accuracy:.3f ci} (local steps: {run["fig6b-accuracy"]:.3f ci}; the paper:
    {run.published.items["fig6b-accuracy"].text()}); {" and ".join(ends)}. A value is open if its verdict depends on the interpretation.

    On trained networks LLG, with the gradient alone, is ahead of the attacks that measure impact and offset ({"; ".join(texts)}).
    We did not test why LLG's own impact is better, nor the two parts of LLG\\*. DLG attacked two users per training; it ends at
    {run["fig6b-dlg"]:.2f ci} under FedAvg. The random guess is near 0.32 in the paper and at {run["fig6a-random"]:.3f ci} here.
    Its expectation lies too near the edge of the tolerance: our trainings are too few for a verdict.

    Under FedAvg the paper prints one curve: LLG\\* and LLG+ rise from iteration 100 to 300, to {run.published.items["fig6b-peak-llgstar"].text()}. Its verdicts compare this
    with our mean over trainings (local steps). Single trainings differ:
    """
    return "\n\n".join([prose(text), by_training(run)])


def fig7(run):
    """Fig. 7: the effect of compression, and the released code."""

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
    return f"""
    Real compression keeps the entries of a tensor with the largest magnitudes; rows of rare labels can be lost. For one gradient,
    θ = 40 % costs LLG+ at most {max(forty):.1f} points. The released code mistakes the numbers of the weakest classes for positions in
    the list of eight tensors, and sets those tensors to zero. The head's weight has position 6. At θ = 80 % it is deleted whenever
    class 6 is among the eight weakest of ten. At θ = 20 % the deletions cost {twenty[0]:.0f} points under FedSGD and {twenty[1]:.0f} under
    FedAvg. The paper sees a slight effect; the difference is unexplained. With noise of σ = 1, LLG+ recovers {noisy:.2f} of the labels
    of 8 samples, the batch size of Table 1.

    The paper does not say whether the norm of each tensor is clipped, as in the released code, or that of the whole update. With updates clipped to β = 1
    and their noise, LLG+ is {at_16[0]:.1f} points below the random guess at B = 16 under FedSGD if each tensor is clipped, and {at_16[1]:.1f} if the whole update is.
    Under FedAvg it is {below[0]} and {below[1]} points below the guess for B ≥ 2, and {one_image[0]:.1f} and {one_image[1]:.1f} above it for one image.
    The networks whose whole updates are clipped are the first of those with clipped tensors; the table says how many.
    """


def table1(run):
    """Table 1: noise in the mean, and the length of training."""
    cells = run.best("table1").set_index(["algorithm", "defence", "level"])["accuracy"]
    lost = [100 * (cells[a, "none", 0.0] - cells[a, "noise", 1.0]) for a in STEPS]
    lengths = run.best("table1_lengths")
    lengths = lengths.set_index(["algorithm", "defence", "level", "iterations"])
    lengths = lengths["accuracy"].unstack().sort_index(axis=1)
    listed = lambda key: ", ".join(map("{:.3f}".format, lengths.loc[key]))  # noqa: E731
    ends = {a: listed((a, "none", 0.0)) for a in STEPS}
    clipped = {a: listed((a, "dp", 1.0)) for a in STEPS}
    read = run.best("table1_readings").set_index(["algorithm", "defence", "iterations"])
    read = read["accuracy"].unstack().sort_index(axis=1)
    averaged = {
        key: ", ".join(map("{:.3f}".format, read.loc[key].dropna()))
        for key in read.index
    }
    return f"""
    In Sec. 6.5 every client adds its own noise, so the mean of 100 participants has a tenth of it. σ = 1 then costs
    {lost[0]:.1f} points under FedSGD and {lost[1]:.1f} under FedAvg. The paper's 0.101 and 0.135 are far lower. If σ is that of the noise *in the mean*,
    the mean accuracy of three trainings after 500, 1,000 and 2,000 iterations is {averaged["FedSGD", "noise"]} under FedSGD. These and the printed value
    are at chance level, which any noise reaches that is strong enough: they do not identify σ. Under FedAvg it is {averaged["FedAvg", "noise"]}:
    FedAvg's value differs at every length, whether σ is that of each update or of the mean.

    **The paper does not print its training length.** After 500, 1,000 and 2,000 iterations FedSGD without a defence is at {ends["FedSGD"]}
    (printed: 0.933) and FedAvg at {ends["FedAvg"]} (0.945), so the two shorter lengths do not give FedAvg's row. Clipped at 1, tensor by tensor as in the
    released code, FedSGD is at {clipped["FedSGD"]} (0.524) and FedAvg at {clipped["FedAvg"]} (0.525). With the whole update clipped and the noise of the mean,
    FedSGD is at {averaged["FedSGD", "dp"]} and FedAvg at {averaged["FedAvg", "dp"]} after 500 and 1,000 iterations. That is closer, but neither length gives
    both values, and the two changes were not measured one by one.
    """


def runtime(run):
    """Run times: the quantity that the paper timed."""
    return """
    The paper times the experiments of Fig. 4 (a) in total on a V100: LLG 54 s, LLG\\* 32.2 min, LLG+ 14.6 min, DLG 17.4 h, random guess
    50 s. We time one attack on one update, on other hardware. Because of these two differences none of these values is decided.
    """


NOTES = {
    "fig-llg-3": fig3,
    "fig-llg-4": fig4,
    "fig-llg-5": fig5,
    "fig-llg-6": fig6,
    "fig-llg-7": fig7,
    "tab-llg-1": table1,
    "tab-llg-runtime": runtime,
}
