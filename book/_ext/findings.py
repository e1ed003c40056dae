"""The front page's findings, from the records: `python book/_ext/findings.py` writes them where they are committed.

These are the pictures in `book/figures/`, which hold their numbers as text, and the README's finding. The book makes
its own cards when it is built. A test compares what is committed with the records.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from render import save

from fedleak import models
from fedleak.data import title
from fedleak_book import paths
from fedleak_book.evidence.cells import mean_of
from fedleak_book.evidence.estimates import matching_rows
from fedleak_book.evidence.results import Number
from fedleak_book.pages import notebooks
from notebooks import plots
from notebooks.gdbr.checks import even_guess

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
        "A malicious server recovers the labels of 100 single clients behind secure aggregation",
        "Secure aggregation shows the server nothing but the sum of all updates. A malicious server can prepare the "
        "models that it sends: in each client's VGG-11, the last layer then gets an input that the server chose. "
        f"If this input is one constant per client (0.1, 0.2, …), the server recovers {percent(constant)} of the "
        f"label counts of 100 clients. If it is a random vector per client (our variant), it recovers "
        f"{percent(vector)}. Log-spaced constants also gave {percent(log)}, but we ran only {few} trials.",
        "VGG-11 on CIFAR-10, 64 images per client. Each point is a mean of ten trials (twenty for five clients, "
        "fewer for log-spaced constants). The paper prescribes one constant per client but prints no values, and "
        "success depends on them: on ResNet-18, the constants 0.1, 0.2, … suffice.",
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
        "The attack LLG+ uses the model and images similar to the client's. Even if the client sends only the largest "
        f"fifth of a gradient's entries, LLG+ recovers {percent(real)} of the labels of a batch of 32. LLG's released "
        f"code deletes whole tensors instead. There LLG+ recovers {percent(released)}, less than a random guess "
        f"({percent(guess)}).",
        "Untrained CNN on MNIST, one step, 400 trials. We think that this error in the released code explains why "
        "compression protects in the paper's figure, because LLG+ stays far above a random guess if entries are "
        "deleted as the paper's text describes.",
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
        "LLG infers labels from the signs of sums over the last layer's gradient. These signs are reliable only if no "
        "input of that layer is negative. With one ReLU before the last layer of ResNet20, LLG+ recovers "
        f"{percent(more)} of the labels of a batch of 16. Without this ReLU it recovers {percent(released)} on "
        f"average, but the {len(alone)} networks differ: it recovers less than three tenths on {low} of them, and "
        f"more than nine tenths on {high}.",
        "Twenty untrained networks on MNIST, one step. Averaged over all batch sizes above two, each network with the "
        f"ReLU leaks {percent(rates['resnet20-relu'].min())} to {percent(rates['resnet20-relu'].max())} of the "
        f"labels. Networks without it leak between {percent(rates['resnet20'].min())} and "
        f"{percent(rates['resnet20'].max())}.",
        "llg",
        "fig-llg-5",
    )


def guess() -> Finding:
    """GDBR: what its paper prints for ten classes, beside the even-split baseline."""
    printed = pd.read_csv(paths.root() / "data" / "published" / "gdbr" / "table1.csv")
    lines = printed[printed["net"].isin(["lenet", "alexnet", "vgg11"])].pivot(
        index="scheme", columns="data", values="insacc"
    )
    names = {name: "GDBR, printed: " * (name == "mnist") + title(name) for name in ("mnist", "svhn", "cifar10")}
    lines = lines.loc[["random", "uniform"], list(names)].rename(columns=names)
    ends = lines.agg(["min", "max"], axis=1).mul(100).round().astype(int)
    even = even_guess(seed=0).set_index("classes")  # the chapter's own table
    free, many = even.loc[10], even.loc[100]
    lines["even-split baseline"] = free
    assert free["random"] > lines.loc["random"].min()
    assert free["uniform"] > lines.loc["uniform"].max() - 1e-9
    return Finding(
        lines,
        "batches of 64 labels",
        "labels recovered",
        'With ten classes, a baseline without any gradient reaches the "more than 80 %" claimed for GDBR',
        "For batches of ten classes, the paper of the attack GDBR prints a label accuracy of {} to {} % if labels are "
        "drawn at random, and of {} to {} % if they are spread evenly (uniform). ".format(
            *ends.loc["random"], *ends.loc["uniform"]
        )
        + "Predicting every class equally often (the "
        f"*even-split baseline*) already scores {percent(free['random'])} and {percent(free['uniform'])}, because 64 "
        "labels of ten classes are nearly uniform.",
        "64 labels per batch; the baseline was measured on 2,000 batches. The printed ranges cover 6 of the 25 entries "
        "of the paper's table; 15 of the 25 have ten classes. With 100 classes the baseline reaches only "
        f"{percent(many['random'])} on random and {percent(many['uniform'])} on uniform batches.",
        "gdbr",
        "tab-gdbr-1",
    )


def training() -> Finding:
    """Ten trained LeNets: the learned attacker, the attack that was best on three others, and the baseline."""
    runs = rows("arena", "anew").query("net == 'lenet'")
    runs["attack"] = runs["attack"].where(runs["attack"].isin(["learned", "prior guess"]), "best other attack")
    names = {
        "learned": "learned attacker",
        "best other attack": "best other attack",
        "prior guess": "class-prior baseline",
    }
    lines = runs.pivot_table(index="batch_size", columns="attack", values="iacc")[list(names)].rename(columns=names)
    assert (lines["learned attacker"] > lines["class-prior baseline"] + 0.2).all(), (
        "the title says that training does not protect"
    )
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
        "On ten LeNets trained on MNIST, we ran our attack, which learns from simulated clients. From batches of 8 in "
        f"which half of the labels are of one class, it recovers {ours} of the labels. The attack that was best on "
        f"other networks recovers {other}, and a baseline that knows only the class shares recovers {guess}. For "
        f"batches of 512, our attack recovers {ours_512}, the other attack {other_512} and the baseline {guess_512}.",
        "Ten networks with ten updates each, one step; brackets: 95 % intervals over the networks. The other attack "
        "was chosen beforehand on three other networks, among the attacks that give an answer for every update. It is "
        "Decaf (our reimplementation) for batches of 8 and 512, and RLU-WH (our variant of RLU) for batches of 32 and "
        f"128. For 512 the choice was close: Decaf recovered {100 * close['after Decaf']:.1f} %, RLU-WH "
        f"{100 * close['RLU, whole head']:.1f} %. SPEAR (our reimplementation) was not eligible, because it rejects "
        "some updates: on the three networks it recovers all labels of 12 of 20 batches of 8 and rejects the others. "
        "From large batches with uniformly drawn labels, the attacks recover hardly more than the baseline.",
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
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=plots.SMALL)
    return figure


def pictures() -> Iterator[tuple[Path, Finding]]:
    """Yield each finding with the place of its picture."""
    for finding in FINDINGS:
        yield FIGURES / f"finding-{finding.__name__}.svg", finding()


def main() -> None:
    """Write the pictures, and the README's finding."""
    for path, finding in pictures():
        save(partial(drawn, finding), path, Description=finding.says())
        print(path, finding.says())
    readme = paths.root() / "README.md"
    readme.write_text(BETWEEN.sub(lambda _: in_the_readme(), readme.read_text(encoding="utf-8")), encoding="utf-8")


def fragments() -> dict[str, str]:
    """Return the fragments by name."""
    return {"findings": cards()}


if __name__ == "__main__":
    main()
