"""Which labels are named, beside the package `breaching` 0.1.2, on the same updates.

Fresh CNNs, digits, unbalanced batches, one step of FedSGD. The rules that each package has for several labels:
here iDLG (one sample), GI and LLG; there `iDLG`, `yin` and `wainakh-simple`, which are the same papers' rules.
Measured is the instance accuracy: labels in common over the batch. Where breaching names too few labels, it fills up
with random ones, and so is measured with them. Last, breaching's LLG with its loop mended: its second stage takes the
impact off the class that the first stage ended with, instead of the one just named.

`breaching` comes with the extra `bench`: `pip install -e ".[bench]"`. Without it, ours alone is measured.

    python benchmarks/labels.py [--models 100]
"""

import warnings
from types import SimpleNamespace
from typing import Annotated

import torch
import typer
from torch import Tensor

from fedleak import data, metrics
from fedleak.attacks.labels import gi, idlg, llg
from fedleak.federated import Update, fedsgd
from fedleak.models import build, head

SIZES = (1, 2, 8, 32, 128)
RULES = {"iDLG": (idlg, "iDLG"), "GI": (gi, "yin"), "LLG": (llg, "wainakh-simple")}


def theirs(update: Update, model: torch.nn.Module, strategy: str, n_classes: int) -> Tensor | None:
    """Return breaching's counts, or None without it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from breaching.attacks.base_attack import _BaseAttacker
    except ImportError:
        return None
    last = head(model)
    gradients = [update.gradient(last.weight), update.gradient(last.bias)]
    shared = [{"gradients": gradients, "metadata": {"num_data_points": update.samples}}]
    attacker = SimpleNamespace(
        cfg=SimpleNamespace(label_strategy=strategy), setup={"device": torch.device("cpu"), "dtype": torch.float}
    )
    labels = _BaseAttacker._recover_label_information(attacker, shared, None, [model])
    return metrics.counts(labels.flatten(), n_classes)


def mended(update: Update, model: torch.nn.Module, n_classes: int) -> Tensor:
    """Return the counts of the same loop with the impact taken off the class that was named."""
    g = update.gradient(head(model).weight).sum(1)
    impact = g.clamp(max=0).sum() * (1 + 1 / n_classes) / update.samples
    labels = (g < 0).nonzero().flatten().tolist()
    for label in labels:
        g[label] -= impact
    while len(labels) < update.samples:
        labels.append(int(g.argmin()))
        g[labels[-1]] -= impact
    return metrics.counts(torch.tensor(labels), n_classes)


def main(models: Annotated[int, typer.Option(help="Fresh networks a batch size.")] = 100) -> None:
    """Print the mean instance accuracy of each rule by batch size."""
    images = data.load("mnist5k")
    n = images.n_classes
    print("rule            " + "".join(f"{f'B = {size}':>10s}" for size in SIZES))
    table: dict[str, list[float]] = {}
    for size in SIZES:
        rates: dict[str, list[float]] = {}
        for seed in range(models):
            generator = torch.Generator().manual_seed(seed)
            torch.manual_seed(seed)  # breaching fills up from the global state
            model = build("cnn", images.shape, n, seed=seed)
            labels = data.compose("unbalanced", size, n, 1, generator)[0]
            index = data.draw(images, labels[None], generator)[0]
            update, truth = fedsgd(model, images.x[index], labels), metrics.counts(labels, n)
            for name, (ours, strategy) in RULES.items():
                if (name == "iDLG" and size > 1) or (name == "GI" and size > n):
                    continue
                answers = {name: ours.recover(update, model), f"{name}, breaching": theirs(update, model, strategy, n)}
                answers |= {"LLG, mended loop": mended(update, model, n)} if name == "LLG" else {}
                for rule, counts in answers.items():
                    if counts is not None:
                        rates.setdefault(rule, []).append(float(metrics.instance_accuracy(counts, truth)))
        for rule, values in rates.items():
            table.setdefault(rule, [float("nan")] * len(SIZES))[SIZES.index(size)] = sum(values) / len(values)
    for rule, means in table.items():
        print(f"{rule:16s}" + "".join(f"{mean:10.3f}" for mean in means))


if __name__ == "__main__":
    typer.run(main)
