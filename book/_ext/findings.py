"""The front page's findings, from the records: `python book/_ext/findings.py` writes them where they are committed.

These are the pictures in `book/figures/`, which hold their numbers as text, and the README's finding. The book makes
its own cards when it is built. A test compares what is committed with the records.
"""

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import pandas as pd
import seaborn as sns
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from fedleak import metrics, models
from fedleak.data import compose, title
from fedleak_book import paths
from fedleak_book.experiments import Number, notebooks
from fedleak_book.experiments.cells import mean_of
from fedleak_book.experiments.claims import matching_rows
from notebooks import plots

FIGURES = paths.root() / "book" / "figures"


class Finding(NamedTuple):
    """A finding: its sentences, and the lines of its picture, a column each, over the index."""

    lines: pd.DataFrame
    xlabel: str
    ylabel: str
    title: str
    text: str
    settings: str
    chapter: str
    anchor: str
    """Label of the figure in the chapter."""

    def says(self) -> str:
        """Return the numbers behind the picture."""
        return "; ".join(
            f"{name}: " + ", ".join(f"{x} {y:.3f}" for x, y in line.dropna().items())
            for name, line in self.lines.items()
        )


def percent(share: float) -> str:
    """Return a share as the sentences have it."""
    return f"{100 * share:.0f}\u00a0%"


def rows(chapter: str, table: str) -> pd.DataFrame:
    """Read a recorded table."""
    return pd.read_csv(paths.recorded(chapter) / f"{table}.csv")


def clients() -> Finding:
    """LIA-SA: the counts of single clients out of a secure sum, by what the server puts into their models."""
    runs = rows("lia_sa", "fig3").query("net == 'vgg11_bn' and data == 'cifar10' and batch_size == 64")
    names = {
        "LIA-SA, vector": "a random vector",
        "LIA-SA, literal": "constants 0.1, 0.2, …",
        "LIA-SA, log": "log-spaced constants",
    }
    lines = runs.pivot_table(index="clients", columns="rule", values="target")[list(names)].rename(columns=names)
    vector, constant, log = lines.loc[100]
    few = runs.query("rule == 'LIA-SA, log' and clients == 100")["trial"].nunique()
    assert vector == 1, "the title says that the sum is separated"
    return Finding(
        lines,
        "clients in the sum",
        "correct counts",
        "Random presets per client break secure aggregation for 100 clients",
        "Secure aggregation shows the server nothing but the sum of all updates. A malicious server presets the input "
        "of each client's last layer in VGG-11. With the constants 0.1, 0.2, … it recovers "
        f"{percent(constant)} of the label counts of 100 clients, and with a random vector for each "
        f"client (our variant) {percent(vector)}. With log-spaced constants it recovered {percent(log)} in {few} "
        "trials.",
        "VGG-11 on CIFAR-10, 64 images a client; ten trials a point, twenty at five clients, and few with log-spaced "
        "constants. The paper prescribes one constant a client and prints none, so the choice "
        "of constants decides; on ResNet-18, 0.1, 0.2, … suffice as well.",
        "lia_sa",
        "fig-lia-3",
    )


def compression() -> Finding:
    """LLG+ under compression as it is, and as the released code has it."""
    runs = rows("llg", "fig7").query("algorithm == 'FedSGD' and (defence == 'none' or level == 0.8)")
    names = {"none": "no defence", "sparse": "compression, 80 %", "released": "as released, 80 %"}
    lines = runs.groupby(["batch_size", "defence"])["asr"].mean().unstack()[list(names)].rename(columns=names)
    real, released = lines.loc[32, "compression, 80 %"], lines.loc[32, "as released, 80 %"]
    alone = {"data": "mnist", "algorithm": "FedSGD", "batch_size": 32, "attack": "random guess"}
    guess = matching_rows(rows("llg", "fig4"), alone)["asr"].mean()
    assert real > 2 * guess > guess > released, "the title says that labels are recovered nevertheless"
    return Finding(
        lines,
        "batch size",
        "labels recovered",
        "Compression as the paper describes it does not hide labels",
        "LLG+ is an attack that has the model and similar images. Without the smallest 80 % of a gradient's entries it "
        f"still recovers {percent(real)} of the labels of a batch of 32. The released code deletes whole tensors "
        f"instead, and the attack recovers {percent(released)}, less than a guess ({percent(guess)}).",
        "Untrained CNN on MNIST, one step, 400 trials. That the bug explains the paper's figure is our reading: "
        "with the compression that its text describes LLG+ stays far above a random guess.",
        "llg",
        "fig-llg-7",
    )


def relu() -> Finding:
    """LLG+ on ResNet20 as released, and with one ReLU before its last layer."""
    runs = rows("llg", "fig5").query("algorithm == 'FedSGD'")
    names = {"resnet20-relu": "ResNet20, one ReLU more", "resnet20": models.title("resnet20")}
    lines = runs.pivot_table(index="batch_size", columns="net", values="asr")[list(names)].rename(columns=names)
    lines = lines.dropna()
    more, released = lines.loc[16]
    rates = runs[runs["batch_size"] > 2].groupby(["net", "trial"])["asr"].mean()
    alone = runs.query("net == 'resnet20' and batch_size == 16").groupby("trial")["asr"].mean()
    low, high = int((alone < 0.3).sum()), int((alone > 0.9).sum())
    assert rates["resnet20-relu"].min() > rates["resnet20"].max() - 0.05, "the title says what the ReLU does"
    return Finding(
        lines,
        "batch size",
        "labels recovered",
        "One more ReLU, and ResNet20 leaks like the others",
        "LLG infers labels from the signs of sums, which needs inputs of the last layer that are not negative. With "
        f"one ReLU before that layer LLG+ recovers {percent(more)} of the labels of a batch of 16 from ResNet20, and "
        f"without it {percent(released)}: a mean of {len(alone)} networks, {low} of them below three tenths "
        f"and {high} above nine tenths.",
        "Twenty untrained networks on MNIST, one step. On the mean over batches of more than two "
        "samples, every network "
        f"with the ReLU leaks {percent(rates['resnet20-relu'].min())} to "
        f"{percent(rates['resnet20-relu'].max())} of the "
        f"labels; without it the networks range from {percent(rates['resnet20'].min())} to "
        f"{percent(rates['resnet20'].max())}.",
        "llg",
        "fig-llg-5",
    )


def guess() -> Finding:
    """GDBR: what its paper prints for ten classes, beside a guess that names all classes equally often."""
    printed = pd.read_csv(paths.root() / "data" / "published" / "gdbr" / "table1.csv")
    lines = printed[printed["net"].isin(["lenet", "alexnet", "vgg11"])].pivot(
        index="scheme", columns="data", values="insacc"
    )
    names = {name: "GDBR, printed: " * (name == "mnist") + title(name) for name in ("mnist", "svhn", "cifar10")}
    lines = lines.loc[["random", "uniform"], list(names)].rename(columns=names)
    ends = lines.agg(["min", "max"], axis=1).mul(100).round().astype(int)
    free = {"random": even_guess("balanced", 10), "uniform": even_guess("permuted", 10)}
    lines["a guess without gradient"] = pd.Series(free)
    assert free["random"] > lines.loc["random"].min()
    assert free["uniform"] > lines.loc["uniform"].max() - 1e-9
    return Finding(
        lines,
        "batches of 64 labels",
        "labels recovered",
        'With ten classes, a guess without any gradient reaches "more than 80 %" on random and uniform batches',
        "For batches of ten classes GDBR's paper prints {} to {} % where labels are random and {} to {} % where they "
        "are uniform. ".format(*ends.loc["random"], *ends.loc["uniform"])
        + f"Predicting every class equally often already scores {percent(free['random'])} and "
        f"{percent(free['uniform'])}, because 64 labels of ten classes are nearly uniform.",
        f"64 labels per batch; the guess on {GUESSES:,} batches. This concerns 6 of the table's 25 "
        "entries (15 have ten "
        f"classes). With 100 classes the guess reaches only {percent(even_guess('balanced', 100))} on random and "
        f"{percent(even_guess('permuted', 100))} on uniform batches.",
        "gdbr",
        "tab-gdbr-1",
    )


GUESSES = 2000


def even_guess(composition: str, n_classes: int) -> float:
    """Return the share of 64 labels that a guess of all classes equally often recovers."""
    truth = metrics.counts(compose(composition, 64, n_classes, GUESSES, torch.Generator().manual_seed(0)), n_classes)
    even = torch.arange(n_classes).lt(64 % n_classes).long() + 64 // n_classes
    return float(metrics.instance_accuracy(even.flip(0).expand_as(truth), truth).mean())


def training() -> Finding:
    """Ten trained LeNets: the learned attacker beside the attack that was best on three others, and the guess."""
    runs = rows("arena", "anew").query("net == 'lenet'")
    runs["attack"] = runs["attack"].where(runs["attack"].isin(["learned", "prior guess"]), "best other attack")
    names = {"learned": "learned attacker", "best other attack": "best other attack", "prior guess": "a guess"}
    lines = runs.pivot_table(index="batch_size", columns="attack", values="iacc")[list(names)].rename(columns=names)
    assert (lines["learned attacker"] > lines["a guess"] + 0.2).all(), "the title says that training does not protect"
    scores = {cell: by_trial.set_index("trial")["iacc"] for cell, by_trial in runs.groupby(["batch_size", "attack"])}
    (guess, other, ours), (guess_512, other_512, ours_512) = (
        [with_interval(mean_of(scores[size, name])) for name in reversed(names)] for size in (8, 512)
    )
    trained = rows("arena", "models").query("net == 'lenet' and state == 'trained' and batch_size == 512")
    close = trained.groupby("attack")["iacc"].mean()
    return Finding(
        lines,
        "batch size",
        "labels recovered",
        "Training alone is no protection",
        "On ten LeNets trained on MNIST, our attack, which learns from simulated clients, recovers "
        f"{ours} of the labels of unbalanced batches of 8. The attack that was best on other networks recovers "
        f"{other}, a guess from the class shares {guess}. "
        f"For batches of 512 the shares are {ours_512}, {other_512} and {guess_512}.",
        "Ten networks, ten updates each, one step; 95 % intervals over the networks. No other attack ran on them. This "
        "one was chosen beforehand on three other networks, among those that answer every update (Decaf, "
        "reimplemented, at 8 and 512; RLU-WH, our variant of RLU, at 32 and 128). At 512 the choice was close: "
        f"{100 * close['after Decaf']:.1f} % against {100 * close['RLU, whole head']:.1f} % for RLU-WH. "
        "SPEAR (reimplemented) does not answer every "
        "update: on those three "
        "networks it recovers all labels of 12 of 20 batches of 8 and rejects the others. Large "
        "balanced batches reveal "
        "hardly more than a guess.",
        "arena",
        "arena-anew",
    )


def with_interval(number: Number) -> str:
    """Return a share in percent with its interval."""
    return f"{percent(number)} [{100 * number.low:.0f}, {100 * number.high:.0f}]"


FINDINGS: tuple[Callable[[], Finding], ...] = (clients, compression, relu, guess, training)


def number(finding: Finding) -> int:
    """Return the number of a finding's chapter."""
    return 1 + notebooks.chapters().index(finding.chapter)


def cards() -> str:
    """Return the findings as cards of the front page."""
    parts = []
    for path, finding in pictures():
        parts.append(
            f":::{{grid-item-card}} {finding.title}\n"
            f"![{finding.ylabel.capitalize()} against {finding.xlabel}: {', '.join(finding.lines)}]"
            f"(/book/figures/{path.name})\n\n{finding.text} {{ref}}`Chapter {number(finding)} <{finding.anchor}>`.\n\n"
            f"*{finding.settings}*\n:::\n"
        )
    return "\n".join(["::::{grid} 1 1 2 2\n:gutter: 3\n", *parts, "::::\n"])


def in_the_readme() -> str:
    """Return the README's finding, the first one, with its picture."""
    path, finding = next(pictures())
    picture = f"![{finding.ylabel.capitalize()} against {finding.xlabel}](book/figures/{path.name})"
    link = f"[Chapter {number(finding)}](notebooks/{finding.chapter}.ipynb)"
    return f"**{finding.title}.** {finding.text} ({link}.)\n\n{picture}"


BETWEEN = re.compile(r"(?<=<!-- findings -->\n).*(?=\n<!-- /findings -->)", re.S)


def drawn(finding: Finding) -> Figure:
    """Draw a finding: a share against x."""
    figure = Figure(figsize=(4.1, 2.65), layout="constrained")
    axes = figure.subplots()
    styles = plots.style_of(list(finding.lines))
    if isinstance(finding.lines.index[0], str):
        finding.lines.plot.bar(ax=axes, rot=0, width=0.75, legend=False, color=[styles[n][0] for n in finding.lines])
    else:
        for name, line in finding.lines.set_axis(finding.lines.index.astype(str)).items():
            axes.plot(line.dropna(), color=styles[name][0], marker=styles[name][1], markersize=6, label=name)
    axes.set_ylim(0, 1.05)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set(xlabel=finding.xlabel, ylabel=finding.ylabel)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return figure


def pictures() -> Iterator[tuple[Path, Finding]]:
    """Yield each finding with the place of its picture."""
    for finding in FINDINGS:
        yield FIGURES / f"finding-{finding.__name__}.svg", finding()


def main() -> None:
    """Write the pictures, and the README's finding."""
    with mpl.rc_context():
        sns.set_theme(style="whitegrid", palette="colorblind", font_scale=0.9)
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "fedleak", "font.sans-serif": ["DejaVu Sans"]})
        for path, finding in pictures():
            stream = io.StringIO()
            drawn(finding).savefig(stream, format="svg", metadata={"Date": None, "Description": finding.says()})
            path.write_text(
                "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n", encoding="utf-8"
            )
            print(path, finding.says())
    readme = paths.root() / "README.md"
    readme.write_text(BETWEEN.sub(lambda _: in_the_readme(), readme.read_text(encoding="utf-8")), encoding="utf-8")


def fragments() -> dict[str, str]:
    """Return the fragments by name."""
    return {"findings": cards()}


if __name__ == "__main__":
    main()
