"""Draw the front page's findings from the records: `python book/_tools/findings.py` writes them into `book/figures/`.

The README shows the same pictures, so that they are committed. Each holds its numbers as text, and a test compares
these with the records.
"""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import pandas as pd
import seaborn as sns
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from fedleak import metrics, paths
from fedleak.data import compose
from fedleak.experiments import plots

FIGURES = paths.root() / "book" / "figures"


class Finding(NamedTuple):
    """The lines of one picture: a column each, over the index."""

    lines: pd.DataFrame
    xlabel: str
    ylabel: str

    def says(self) -> str:
        """Return the numbers behind the picture."""
        return "; ".join(
            f"{name}: " + ", ".join(f"{x} {y:.3f}" for x, y in line.dropna().items())
            for name, line in self.lines.items()
        )


def rows(chapter: str, table: str) -> pd.DataFrame:
    """Read a recorded table."""
    return pd.read_csv(paths.recorded(chapter) / f"{table}.csv")


def clients() -> Finding:
    """LIA-SA: the counts of single clients out of a secure sum, by what the server puts into their models."""
    found = rows("lia_sa", "fig3").query("net == 'vgg11_bn' and data == 'cifar10' and batch_size == 64")
    lines = found.pivot_table(index="clients", columns="rule", values="target")
    names = {"LIA-SA, vector": "a random vector", "LIA-SA, literal": "one constant"}
    return Finding(lines[list(names)].rename(columns=names), "clients in the sum", "counts that are right")


def compression() -> Finding:
    """LLG+ under compression as it is, and as the released code has it."""
    found = rows("llg", "fig7").query("algorithm == 'FedSGD' and (defence == 'none' or level == 0.8)")
    lines = found.groupby(["batch_size", "defence"])["asr"].mean().unstack()
    names = {"none": "no defence", "sparse": "compression, 80 %", "released": "as released, 80 %"}
    return Finding(lines[list(names)].rename(columns=names), "batch size", "labels found")


def relu() -> Finding:
    """LLG+ on ResNet20 as released, and with one ReLU before its last layer."""
    found = rows("llg", "fig5").query("algorithm == 'FedSGD'")
    lines = found.pivot_table(index="batch_size", columns="net", values="asr")
    names = {"resnet20-relu": "ResNet20, one ReLU more", "resnet20": "ResNet20, as released"}
    return Finding(lines[list(names)].rename(columns=names).dropna(), "batch size", "labels found")


def guess() -> Finding:
    """GDBR: what its paper prints for ten classes, beside a guess that names all classes equally often."""
    printed = pd.read_csv(paths.root() / "data" / "published" / "gdbr" / "table1.csv")
    lines = printed[printed["net"].isin(["lenet", "alexnet", "vgg11"])].pivot(
        index="scheme", columns="data", values="insacc"
    )
    names = {"mnist": "GDBR, printed: MNIST", "svhn": "SVHN", "cifar10": "CIFAR-10"}
    lines = lines.loc[["random", "uniform"], list(names)].rename(columns=names)
    even = torch.tensor([7] * 4 + [6] * 6)  # 64 labels over ten classes
    for scheme, composition in (("random", "balanced"), ("uniform", "permuted")):
        truth = metrics.counts(compose(composition, 64, 10, 2000, torch.Generator().manual_seed(0)), 10)
        found = metrics.instance_accuracy(even.expand_as(truth), truth)
        lines.loc[scheme, "a guess without gradient"] = found.mean().item()
    return Finding(lines, "batches of 64 labels", "labels found")


def training() -> Finding:
    """Trained LeNets: the learned attacker beside the best published one of each cell, and the even guess."""
    found = rows("learned", "judged").query("data == 'MNIST' and composition == 'unbalanced'")
    each = found.groupby(["batch_size", "attack"])["iacc"].agg(["mean", "size"]).unstack()
    lines = each["mean"].where(each["size"].eq(each["size"]["learned"], axis=0))  # of attacks that answered everywhere
    ours = ["learned", "RLU, whole head", "prior guess", "random guess"]
    lines["best published attack"] = lines.drop(columns=ours).max(axis=1)
    names = {"learned": "learned attacker", "best published attack": "best published attack", "prior guess": "a guess"}
    return Finding(lines[list(names)].rename(columns=names), "batch size", "labels found")


FINDINGS: tuple[Callable[[], Finding], ...] = (clients, compression, relu, guess, training)


def drawn(finding: Finding) -> Figure:
    """Draw a finding: a share against x."""
    figure = Figure(figsize=(4.2, 2.7), layout="constrained")
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
    """Write the pictures."""
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


if __name__ == "__main__":
    main()
