"""Coursework 1, LLG: labels from the signs and sizes of gradients."""

import torch
from torch import Tensor

from fedleak import metrics
from fedleak.federated import fedsgd
from fedleak.models import head
from fedleak_book.coursework.given import llg_trials


def class_gradients(logits: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the row sums g ``[n]`` of the head's mean gradient.

    `logits` are ``[B, n]``, `inputs` of the head ``[B, m]``, `labels` ``[B]``. Use no autograd.
    """
    errors = logits.softmax(1)
    errors[torch.arange(len(labels)), labels] -= 1
    return (errors * inputs.sum(1, keepdim=True)).mean(0)


def impact(row_sums: Tensor, samples: int) -> float:
    """Return the impact m of Eq. 18, but with the exact factor of A.3, from g ``[n]`` and the number of samples |D|."""
    n = len(row_sums)
    return float(row_sums.clamp(max=0).sum() / samples * n / (n - 1))


def first_labels(row_sums: Tensor, samples: int) -> Tensor:
    """Return the counts ``[n]``, 0 or 1, that step 1 may give if the inputs of the head can be negative.

    Behind a tanh more row sums can be negative than there are samples. Then the most negative ones are counted, one
    label each and `samples` in all.
    """
    places = row_sums.argsort().argsort()
    return ((row_sums < 0) & (places < samples)).long()


def extract(row_sums: Tensor, impact: float, offset: Tensor, samples: int) -> Tensor:
    """Return the label counts ``[n]``, integers, by Algorithm 1, step 1 as in `first_labels`; change no argument."""
    counts, g = first_labels(row_sums, samples), row_sums.clone()
    for label in counts.nonzero().flatten():
        g[label] -= impact
    g -= offset
    while counts.sum() < samples:
        label = g.argmin()
        counts[label] += 1
        g[label] -= impact
    return counts


def measure(seed: int) -> list[dict]:
    """Measure LLG and the random guess on 10 fresh CNNs, for B = 2, 8, 32 and 128.

    Return a row for each batch size: ``{"batch_size": 2, "LLG": …, "guess": …}``, both mean success rates (ASR, which
    `fedleak.metrics.attack_success_rate` computes from counts). Networks, unbalanced batches and guesses are those of
    `fedleak_book.coursework.given.llg_trials`, the update is that of one step (`fedleak.federated.fedsgd`). LLG is your
    `impact` and `extract` on the row sums of the head's weight gradient (`fedleak.models.head`), with no offset:
    neither LLG* nor LLG+.
    """
    rows = []
    for size in (2, 8, 32, 128):
        rates = []
        for model, x, labels, guess in llg_trials(seed, size):
            g = fedsgd(model, x, labels).gradient(head(model).weight).sum(1)
            recovered = extract(g, impact(g, size), torch.zeros_like(g), size)
            truth = metrics.counts(labels, 10)
            answers = torch.stack([recovered, metrics.counts(guess, 10)])
            rates.append(metrics.attack_success_rate(answers, truth.expand(2, 10)))
        llg, random = torch.stack(rates).mean(0).tolist()
        rows.append({"batch_size": size, "LLG": llg, "guess": random})
    return rows
