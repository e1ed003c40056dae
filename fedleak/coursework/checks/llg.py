"""Checks of the assignment on LLG."""

import torch
from torch import Generator, Tensor, nn

from fedleak import metrics
from fedleak.attacks.labels import llg
from fedleak.coursework.assignment import (
    Assignment,
    Student,
    Trouble,
    as_tensor,
    near,
    same,
    seed_of,
    table,
    whole_numbers,
)
from fedleak.data import compose, draw, load
from fedleak.federated import fedsgd
from fedleak.models import build

ASSIGNMENT = Assignment("llg", "LLG: labels from the signs and sizes of gradients")
SIZES = (2, 8, 32, 128)


@ASSIGNMENT.check(3, "class_gradients")
def class_gradients(student: Student, generator: Generator) -> None:
    """The row sums equal those of autograd."""
    inputs = torch.rand(6, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (6,), generator=generator)
    layer = nn.Linear(5, 4).double()
    for parameter in layer.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    logits = layer(inputs)
    right = torch.autograd.grad(nn.functional.cross_entropy(logits, labels), layer.weight)[0].sum(1)
    logits, target = logits.detach(), nn.functional.one_hot(labels, 4)
    same(
        student("class_gradients", logits, inputs, labels),
        right,
        "class_gradients",
        hint="differentiate the mean cross-entropy by W_i, then sum over the entries of the row",
        mistakes=[
            ("the sign: the gradient is softmax minus one-hot", -right),
            ("the loss is the MEAN over the batch: divide by B", right * 6),
            ("take the softmax of the logits first", ((logits - target) * inputs.sum(1, keepdim=True)).mean(0)),
            ("a row SUM over the m inputs, not their mean", right / 5),
            ("this is the gradient of the bias: multiply by the sample's inputs", (logits.softmax(1) - target).mean(0)),
            ("the sum of products is not the product of the means: every sample has its own inputs",
             (logits.softmax(1) - target).mean(0) * inputs.sum(1).mean()),
        ],
    )  # fmt: skip


@ASSIGNMENT.check(1, "impact")
def impact(student: Student, generator: Generator) -> None:
    """The impact follows Eq. 18."""
    g = torch.randn(7, generator=generator, dtype=torch.float64)
    g[:2] = torch.tensor([-1.5, 0.7])
    negative = g.clamp(max=0).sum()
    right = negative / 12 * (1 + 1 / 7)
    same(
        student("impact", g, 12),
        right,
        "impact",
        hint="Eq. 18: sum of the negative gradients, over |D|, times 1 + 1/n",
        mistakes=[
            ("only the NEGATIVE gradients are summed", g.sum() / 12 * (1 + 1 / 7)),
            ("the factor 1 + 1/n is missing", negative / 12),
            ("the factor is 1 + 1/n, not 1 - 1/n", negative / 12 * (1 - 1 / 7)),
            ("divide by the number of samples |D|, not by the number of classes", negative / 7 * (1 + 1 / 7)),
            ("n is the number of classes, not of samples", negative / 12 * (1 + 1 / 12)),
            ("the sign: an impact is negative", -right),
        ],
    )


@ASSIGNMENT.check(1, "extract")
def negatives_first(student: Student, generator: Generator) -> None:
    """Every label with a negative gradient is named once before the greedy part."""
    g = torch.tensor([-3.4, -0.1, 0.2], dtype=torch.float64)
    got = student("extract", g, -1.0, torch.zeros(3, dtype=torch.float64), 3)
    whole_numbers(got, "extract")
    same(
        got,
        torch.tensor([2, 1, 0]),
        "counts for g = [-3.4, -0.1, 0.2], impact -1, 3 samples",
        mistakes=[
            ("step 1: a negative gradient names its label, however small it is", torch.tensor([3, 0, 0])),
            ("stop when |D| labels are named: those of step 1 count", torch.tensor([3, 1, 0])),
            ("a label named in step 1 has to give its impact back: g minus m", torch.tensor([1, 2, 0])),
        ],
    )


@ASSIGNMENT.check(3, "extract")
def extract(student: Student, generator: Generator) -> None:
    """Gradients that are counts times impact plus offset give back the counts."""
    n, samples = 8, 20
    offset = torch.linspace(0.2, 3.4, n, dtype=torch.float64)[torch.randperm(n, generator=generator)]
    labels = torch.randint(n - 2, (samples,), generator=generator)
    truth = torch.bincount(labels, minlength=n)
    m, g = torch.tensor(-1.3).double(), truth * -1.3 + offset
    got = student("extract", g, -1.3, offset, samples)
    whole_numbers(got, "extract")
    total = int(as_tensor(got, "extract").sum())
    if total != samples:
        raise Trouble(f"extract: expected {samples} labels in all, got {total}", "repeat step 3 until |D| are named")
    same(
        got,
        truth,
        "extract",
        hint="after naming a label, take one impact off its gradient: g_i - m, which makes it larger",
        mistakes=[
            ("subtract the offset before the greedy part", llg.extract(g, m, torch.zeros_like(g), samples)),
            ("the offset is subtracted, not added", llg.extract(g, m, -offset, samples)),
            ("the impact is negative: subtracting it must make the gradient LARGER", _wrong_way(g, offset, samples)),
        ],
    )


def _wrong_way(g: Tensor, offset: Tensor, samples: int) -> Tensor:
    """Return the counts of somebody who adds the impact instead of taking it off."""
    counts = (g < 0).long()
    smallest = (g + counts * -1.3 - offset).argmin()
    counts[smallest] += samples - counts.sum()
    return counts


@ASSIGNMENT.check(2, "measure")
def measure(student: Student, generator: Generator) -> None:
    """The success rates agree with our own measurement of LLG."""
    rows = table(student("measure", seed_of(generator)), ["batch_size", "LLG", "guess"])
    if sorted(row["batch_size"] for row in rows) != list(SIZES):
        raise Trouble(f"measure: expected one row for each batch size {SIZES}")
    images, by_size = load("mnist5k"), {row["batch_size"]: row for row in rows}
    for size in SIZES:
        rates = []
        for trial in range(20):
            own = torch.Generator().manual_seed(1000 + trial)
            labels = compose("unbalanced", size, 10, 1, own)[0]
            model = build("cnn", images.shape, 10, seed=1000 + trial)
            found = llg.recover(fedsgd(model, images.x[draw(images, labels[None], own)[0]], labels), model)
            rates.append(float(metrics.attack_success_rate(found, metrics.counts(labels, 10))))
        row, within = by_size[size], 0.1 + 0.3 / size**0.5
        mean, clue = sum(rates) / len(rates), "20 fresh networks and unbalanced batches"
        near(row["LLG"], mean, within, f"LLG's success rate at B = {size}", clue)
        guess, clue = _expected_guess(size), "B labels drawn uniformly, as a multiset"
        near(row["guess"], guess, within, f"the random guess at B = {size}", clue)


def _expected_guess(size: int, trials: int = 400) -> float:
    generator = torch.Generator().manual_seed(0)
    truth = metrics.counts(compose("unbalanced", size, 10, trials, generator), 10)
    guess = metrics.counts(torch.randint(10, (trials, size), generator=generator), 10)
    return float(metrics.attack_success_rate(guess, truth).mean())
