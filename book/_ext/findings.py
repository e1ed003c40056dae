"""The front page's findings, from the records: the numbers of their sentences, and their pictures.

`python book/_ext/findings.py` draws the pictures in `book/figures/`, which hold their numbers as text. Tests compare
them, and the README's finding, with the records.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from render import save

from fedleak import models
from fedleak.data import title
from fedleak_book import paths
from fedleak_book.evidence.cells import mean_of
from fedleak_book.evidence.estimates import matching_rows
from notebooks import plots
from notebooks.gdbr.experiments.tables import even_guess
from notebooks.show import prose

FIGURES = paths.root() / "book" / "figures"


class Finding(NamedTuple):
    """A finding: the lines of its picture, a column each, over the index; its axis; the numbers of its sentences."""

    lines: pd.DataFrame
    ylabel: str
    numbers: dict[str, Any]

    def says(self) -> str:
        """Return the numbers behind the picture."""
        return "; ".join(
            f"{name}: " + ", ".join(f"{x} {y:.3f}" for x, y in line.dropna().items())
            for name, line in self.lines.items()
        )


def percent(**shares: float) -> dict[str, str]:
    """Return shares as the sentences have them."""
    return {name: prose(f"{share:.0%}") for name, share in shares.items()}


def rows(chapter: str, table: str) -> pd.DataFrame:
    """Read a recorded table."""
    return pd.read_csv(paths.recorded(chapter) / f"{table}.csv")


def means(runs: pd.DataFrame, value: str, index: str, columns: str, names: dict[str, str]) -> pd.DataFrame:
    """Return a picture's lines: means of a value, the columns in the order of their names."""
    return runs.pivot_table(value, index, columns)[list(names)].rename(columns=names)


def clients() -> Finding:
    """LIA-SA: the counts of single clients out of a secure sum, by what the server puts into their models."""
    runs = rows("lia_sa", "fig3").query("net == 'vgg11_bn' and data == 'cifar10' and batch_size == 64")
    names = {
        "LIA-SA, vector": "a random vector",
        "LIA-SA, literal": "constants 0.1, 0.2, …",
        "LIA-SA, log": "log-spaced constants",
    }
    lines = means(runs, "target", "clients", "rule", names)
    vector, constant, log = lines.loc[100]
    few = runs.query("rule == 'LIA-SA, log' and clients == 100")["trial"].nunique()
    assert vector == 1, "the title says that the sum is separated"
    numbers = percent(vector=vector, constant=constant, log=log) | {"few": str(few)}
    return Finding(lines.rename_axis("clients in the sum"), "correct counts", numbers)


def compression() -> Finding:
    """LLG+ under compression as it is, and as the released code has it."""
    runs = rows("llg", "fig7").query("algorithm == 'FedSGD' and (defence == 'none' or level == 0.8)")
    names = {"none": "no defence", "sparse": "compression, 80 %", "released": "as released, 80 %"}
    lines = means(runs, "asr", "batch_size", "defence", names)
    _, real, released = lines.loc[32]
    alone = {"data": "mnist", "algorithm": "FedSGD", "batch_size": 32, "attack": "random guess"}
    guess = matching_rows(rows("llg", "fig4"), alone)["asr"].mean()
    assert real > 2 * guess > guess > released, "the title says that labels are recovered nevertheless"
    numbers = percent(real=real, released=released, guess=guess)
    return Finding(lines.rename_axis("batch size"), "labels recovered", numbers)


def relu() -> Finding:
    """LLG+ on ResNet20 as released, and with one ReLU before its last layer."""
    runs = rows("llg", "fig5").query("algorithm == 'FedSGD'")
    names = {"resnet20-relu": "ResNet20, one ReLU more", "resnet20": models.title("resnet20")}
    lines = means(runs, "asr", "batch_size", "net", names).dropna()
    more, released = lines.loc[16]
    rates = runs[runs["batch_size"] > 2].groupby(["net", "trial"])["asr"].mean().groupby("net").agg(["min", "max"])
    alone = runs.query("net == 'resnet20' and batch_size == 16").groupby("trial")["asr"].mean()
    (low, high), (low_more, high_more) = rates.loc["resnet20"], rates.loc["resnet20-relu"]
    assert low_more > high - 0.05, "the title says what the ReLU does"
    numbers = percent(more=more, released=released, low=low, high=high, low_more=low_more, high_more=high_more)
    numbers |= {"networks": len(alone), "bad": int((alone < 0.3).sum()), "good": int((alone > 0.9).sum())}
    return Finding(lines.rename_axis("batch size"), "labels recovered", numbers)


def guess() -> Finding:
    """GDBR: what its paper prints for ten classes, beside the even-split baseline."""
    printed = pd.read_csv(paths.root() / "data" / "published" / "gdbr" / "table1.csv")
    printed = printed[printed["net"].isin(["lenet", "alexnet", "vgg11"])]
    names = {name: "GDBR, printed: " * (name == "mnist") + title(name) for name in ("mnist", "svhn", "cifar10")}
    lines = means(printed, "insacc", "scheme", "data", names).loc[["random", "uniform"]]
    ends = lines.agg(["min", "max"], axis=1).mul(100).round().astype(int)
    (low, high), (low_even, high_even) = ends.to_numpy().tolist()
    even = even_guess(seed=0).set_index("classes")  # the chapter's own table
    free, many = even.loc[10], even.loc[100]
    lines["even-split baseline"] = free
    assert free["random"] > lines.loc["random"].min()
    assert free["uniform"] > lines.loc["uniform"].max() - 1e-9
    numbers = {"low": low, "high": high, "low_even": low_even, "high_even": high_even}
    numbers |= {"free": percent(**free), "many": percent(**many)}
    return Finding(lines.rename_axis("batches of 64 labels"), "labels recovered", numbers)


def training() -> Finding:
    """Ten trained LeNets: the learned attacker, the attack that was best on three others, and the baseline."""
    runs = rows("arena", "anew").query("net == 'lenet'")
    runs["attack"] = runs["attack"].where(runs["attack"].isin(["learned", "prior guess"]), "best other attack")
    names = {
        "learned": "learned attacker",
        "best other attack": "best other attack",
        "prior guess": "class-prior baseline",
    }
    lines = means(runs, "iacc", "batch_size", "attack", names)
    learned, _, baseline = lines.to_numpy().T
    assert (learned > baseline + 0.2).all(), "the title says that training does not protect"
    trained = rows("arena", "models").query("net == 'lenet' and state == 'trained' and batch_size == 512")
    close = trained.groupby("attack")["iacc"].mean()
    numbers = {"decaf": prose(f"{close['after Decaf']:.1%}"), "whole_head": prose(f"{close['RLU, whole head']:.1%}")}
    for (size, name), scores in runs.groupby(["batch_size", "attack"]):
        numbers[f"{name.split()[-1]}_{size}"] = prose(f"{mean_of(scores.set_index('trial')['iacc']):.0% ci}")
    return Finding(lines.rename_axis("batch size"), "labels recovered", numbers)


FINDINGS: tuple[Callable[[], Finding], ...] = (clients, compression, relu, guess, training)


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
    axes.set(xlabel=finding.lines.index.name, ylabel=finding.ylabel)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=plots.SMALL)
    return figure


def fragments() -> dict[str, dict[str, Any]]:
    """Return the numbers of the sentences by finding."""
    return {"finding": {make.__name__: make().numbers for make in FINDINGS}}


if __name__ == "__main__":
    for make in FINDINGS:
        finding = make()
        path = FIGURES / f"finding-{make.__name__}.svg"
        save(partial(drawn, finding), path, Description=finding.says())
        print(path, finding.says())
