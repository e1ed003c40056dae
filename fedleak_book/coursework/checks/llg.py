"""Checks of the assignment on LLG."""

import functools

import torch
from torch import Generator, Tensor, nn

from fedleak import metrics
from fedleak.attacks.labels import llg
from fedleak.federated import fedsgd
from fedleak.models import head
from fedleak_book.coursework.assignment import Assignment, as_tensor, normal, same, short_text, uniform
from fedleak_book.coursework.given import llg_trials
from fedleak_book.coursework.outcomes import Student, Trouble

ASSIGNMENT = Assignment("llg")


@ASSIGNMENT.check(2)
def class_gradients(student: Student, generator: Generator) -> None:
    """The row sums equal those of autograd."""
    inputs = uniform(generator, 6, 5)
    labels = torch.randint(4, (6,), generator=generator)
    weight, bias = normal(generator, 4, 5).requires_grad_(), normal(generator, 4)
    logits = inputs @ weight.T + bias
    right = torch.autograd.grad(nn.functional.cross_entropy(logits, labels), weight)[0].sum(1)
    logits = logits.detach()
    target, sums = nn.functional.one_hot(labels, 4), inputs.sum(1, keepdim=True)
    of_bias = (logits.softmax(1) - target).mean(0)
    mistakes = {
        "the sign: the gradient is softmax minus one-hot": -right,
        "the loss is the MEAN over the batch: divide by B": right * 6,
        "take the softmax of the logits first": ((logits - target) * sums).mean(0),
        "a row SUM over the m inputs, not their mean": right / 5,
        "this is the gradient of the bias: multiply by the sample's inputs": of_bias,
        "the sum of products is not the product of the means: every sample has its own inputs": of_bias * sums.mean(),
    }
    hint = "differentiate the mean cross-entropy by W_i, then sum over the entries of the row"
    same(student("class_gradients", logits, inputs, labels), right, "class_gradients", mistakes, hint=hint)


@ASSIGNMENT.check(1)
def impact(student: Student, generator: Generator) -> None:
    """The impact follows Eq. 18 with the factor of A.3."""
    g = normal(generator, 7)
    g[:2] = torch.tensor([-1.5, 0.7])
    negative = g.clamp(max=0).sum()
    right = negative / 12 * 7 / 6
    mistakes = {
        "only the NEGATIVE gradients are summed": g.sum() / 12 * 7 / 6,
        "this is the paper's factor, 1 + 1/n, which A.3 corrects": negative / 12 * (1 + 1 / 7),
        "the factor of A.3 is missing": negative / 12,
        "what a batch of one label loses is 1 - 1/n: divide by it": negative / 12 * (1 - 1 / 7),
        "divide by the number of samples |D|, not by the number of classes": negative / 7 * 7 / 6,
        "n is the number of classes, not of samples": negative / 12 * 12 / 11,
        "the sign: an impact is negative": -right,
    }
    hint = (
        "sum of the negative gradients, over |D|, times the factor of A.3, for which g_i = |D| m where all labels are i"
    )
    same(student("impact", g, 12), right, "impact", mistakes, hint=hint)


@ASSIGNMENT.check(2)
def first_labels(student: Student, generator: Generator) -> None:
    """Where more row sums are negative than there are samples, the most negative ones are counted."""
    g = torch.tensor([-0.3, 0.5, -2.0, -0.2, -1.1], dtype=torch.float64) * (1 + uniform(generator, 1))
    mistakes = {
        "more labels are negative than there are samples: count as many as samples": torch.tensor([1, 0, 1, 1, 1]),
        "keep the MOST negative, not those nearest to zero": torch.tensor([1, 0, 0, 1, 0]),
        "not the first ones: keep the most negative": torch.tensor([1, 0, 1, 0, 0]),
        "one label each, `samples` in all": torch.tensor([0, 0, 2, 0, 0]),
    }
    what = f"first_labels for g = {short_text(g)}, 2 samples"
    same(student("first_labels", g, 2), torch.tensor([0, 0, 1, 0, 1]), what, mistakes, whole=True)
    few = {"only NEGATIVE row sums are counted in step 1": torch.tensor([1, 1, 1])}
    got = student("first_labels", torch.tensor([-1.0, 0.5, 0.2], dtype=torch.float64), 3)
    same(got, torch.tensor([1, 0, 0]), "first_labels for g = [-1, 0.5, 0.2], 3 samples", few, whole=True)


@ASSIGNMENT.check(1, "extract")
def negatives_first(student: Student, generator: Generator) -> None:
    """Every label with a negative gradient is named once before the greedy part."""
    g = torch.tensor([-3.4, -0.1, 0.2], dtype=torch.float64)
    got = student("extract", g, -1.0, torch.zeros_like(g), 3)
    mistakes = {
        "step 1: a negative gradient reveals its label, however small it is": torch.tensor([3, 0, 0]),
        "stop when |D| labels are named: those of step 1 count": torch.tensor([3, 1, 0]),
        "a label named in step 1 has to give its impact back: g minus m": torch.tensor([1, 2, 0]),
    }
    what = "counts for g = [-3.4, -0.1, 0.2], impact -1, 3 samples"
    same(got, torch.tensor([2, 1, 0]), what, mistakes, whole=True)
    g, offset = (torch.tensor(values).double() for values in ([-3, 0.1, 0.2, 0.3], [0.2, 0.4, 0.5, 0.6]))
    got = student("extract", g, -1.0, offset, 3)
    hint = "step 1 looks at the sign of the gradient itself; the offset is subtracted after it"
    what = "counts for g = [-3, 0.1, 0.2, 0.3], impact -1, offset [0.2, 0.4, 0.5, 0.6], 3 samples"
    same(got, torch.tensor([3, 0, 0, 0]), what, hint=hint, whole=True)
    g = torch.tensor([-2.0, -0.5, -1.0], dtype=torch.float64)
    many = {"step 1 counts as many labels as there are samples: `first_labels`": torch.tensor([1, 1, 1])}
    what = "counts for g = [-2, -0.5, -1], impact -1, 2 samples"
    same(student("extract", g, -1.0, torch.zeros_like(g), 2), torch.tensor([1, 0, 1]), what, many, whole=True)


@ASSIGNMENT.check(2)
def extract(student: Student, generator: Generator) -> None:
    """Gradients that are counts times impact plus offset give back the counts."""
    n, samples = 8, 20
    offset = torch.linspace(0.2, 3.4, n, dtype=torch.float64)[torch.randperm(n, generator=generator)]
    labels = torch.randint(n - 2, (samples,), generator=generator)
    truth = torch.bincount(labels, minlength=n)
    m, g = torch.tensor(-1.3).double(), truth * -1.3 + offset
    got = student("extract", g, -1.3, offset, samples)
    total = int(as_tensor(got, "extract").sum())
    if total != samples:
        hint = "repeat step 3 until |D| are named"
        raise Trouble("extract: the labels named are not |D| in all", hint, detail=f"got {total}")
    larger = (g < 0).long()  # what somebody gets who adds the impact instead of taking it off
    larger[(g + larger * -1.3 - offset).argmin()] += samples - larger.sum()
    mistakes = {
        "subtract the offset before the greedy part": llg.extract(g, m, torch.zeros_like(g), samples),
        "the offset is subtracted, not added": llg.extract(g, m, -offset, samples),
        "the impact is negative: subtracting it must make the gradient LARGER": larger,
    }
    hint = "after naming a label, take one impact off its gradient: g_i - m, which makes it larger"
    same(got, truth, "extract", mistakes, hint=hint, whole=True)


@functools.lru_cache(maxsize=4)
def _trials(seed: int, size: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return row sums, labels and guess of each trial, once for the right functions and a student's."""
    return [
        (fedsgd(model, x, labels).gradient(head(model).weight).sum(1), labels, guess)
        for model, x, labels, guess in llg_trials(seed, size)
    ]


RIGHT = {
    "impact": lambda g, samples: g.clamp(max=0).sum() / samples * 10 / 9,
    "extract": functools.partial(llg.extract, stop_at_samples=True),
}


@ASSIGNMENT.measurement(
    2, 1, RIGHT, "the row sums of the head's weight gradient, in float32; no offset; the mean over the 10 trials"
)
def measure(functions: Student, seed: int) -> list[dict]:
    """The success rates are those of your own functions."""
    rows = []
    for size in (2, 8, 32, 128):
        rates = []
        for g, labels, guess in _trials(seed, size):
            recovered = functions("extract", g, functions("impact", g, size).item(), torch.zeros_like(g), size)
            answers, truth = torch.stack([recovered, metrics.counts(guess, 10)]), metrics.counts(labels, 10)
            rates.append(metrics.attack_success_rate(answers, truth.expand(2, 10)))
        reached, random = torch.stack(rates).mean(0).tolist()
        rows.append({"batch_size": size, "LLG": reached, "guess": random})
    return rows
