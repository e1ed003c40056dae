"""Checks of the assignment on LIA-SA."""

import math

import torch
from torch import Generator, nn

from fedleak.coursework.assignment import (
    Assignment,
    Student,
    Trouble,
    as_tensor,
    measured,
    normal,
    same,
    uniform,
    within,
)

ASSIGNMENT = Assignment("lia_sa")


@ASSIGNMENT.check(1, "system")
def system(student: Student, generator: Generator) -> None:
    """The matrix has a row of ones above a column for every client's embedding."""
    e = uniform(generator, 3, 4)
    ones = torch.ones_like(e[:, :1])
    right = torch.cat([ones, e], 1).T
    mistakes = {
        "a client is a COLUMN: transpose": right.T,
        "the row of ones is missing: it holds the equations of the bias": e.T,
        "the ones stand ABOVE the embeddings, as the bias stands above the weights": torch.cat([e, ones], 1).T,
    }
    same(student("system", e), right, "system", mistakes, hint="Eq. 16: (m + 1) x U, a client is a column")


@ASSIGNMENT.check(3, "disaggregate")
def disaggregate(student: Student, generator: Generator) -> None:
    """Every client's bias gradient comes out of the sums, with as many clients as equations."""
    clients, size, n = 5, 4, 3
    e, bias = uniform(generator, clients, size), normal(generator, clients, n)
    weight_sum, bias_sum = bias.T @ e, bias.sum(0)
    alone = torch.linalg.pinv(e.T) @ weight_sum.T
    mistakes = {
        "return [clients, classes]: transpose": bias.T,
        "the bias' sum is an equation, too: with U = m + 1 clients it is needed": alone,
        "this is the mean over the clients": bias_sum.expand(clients, n) / clients,
    }
    hint = "solve system(e) X = [bias sum; weight sums transposed] for all classes at once"
    got = student("disaggregate", e, weight_sum, bias_sum)
    same(got, bias, "disaggregate", mistakes, hint=hint, tolerance=1e-5)


@ASSIGNMENT.check(3, "counts")
def counts(student: Student, generator: Generator) -> None:
    """Bias gradients and logits give whole, non-negative counts, in spite of small errors."""
    clients, n, batch = 4, 5, 16
    labels = torch.randint(n - 1, (clients, batch), generator=generator)
    truth = nn.functional.one_hot(labels, n).sum(1)
    logits = 2 * normal(generator, clients, n)
    p = logits.softmax(1)
    error = (0.8 * uniform(generator, clients, n) - 0.4) / batch
    error[0, n - 1] = 0.7 / batch  # a count of 0 that comes out as -0.7
    bias = p - truth / batch + error
    estimate = batch * (p - bias)
    unrounded = {
        "the sign: B (softmax - gradient)": batch * (bias - p),
        "multiply by the batch size B": p - bias,
        "take the softmax of the logits": batch * (logits - bias),
    }
    mistakes = {clue: wrong.round().clamp(min=0) for clue, wrong in unrounded.items()} | {
        "round to the NEAREST integer; `.long()` and floor cut off": estimate.long().clamp(min=0),
        "round to the NEAREST integer; floor cuts off": estimate.floor().clamp(min=0),
        "round to the NEAREST integer; ceil adds up": estimate.ceil().clamp(min=0),
        "a count is not negative: clamp at 0": estimate.round(),
    }
    got = student("counts", bias, logits, batch)
    value = as_tensor(got, "counts")
    if torch.equal(value, value.round()):
        same(got, truth, "counts", mistakes, hint="Eq. 17", whole=True)
    else:
        same(got, estimate, "counts before rounding", unrounded)
        raise Trouble(f"counts: expected whole numbers, got {value.flatten()[:3].tolist()}", "round, then `.long()`")


@ASSIGNMENT.check(3, "measure")
def measure(student: Student, generator: Generator) -> None:
    """One constant a client makes the system singular at 20 clients; a vector a client does not."""
    keys = {"recipe": ("constant", "vector"), "clients": (2, 5, 20)}
    found = measured(student, generator, keys, ["condition", "exact"])
    for (recipe, clients), row in found.items():
        (least, most), (worst, best), hint = (1.0, math.inf), (0.0, 1.0), "`exact` is a share, `condition` at least 1"
        if recipe == "vector" or clients == 2:
            most, worst, hint = 1e4, 0.999, "solve in float64, with embeddings computed in float64"
        elif clients == 20:
            least, best = 1e8, 0.95
            hint = "every entry of the fished layer's bias is the same constant C_u = 0.1 (u + 1)"
        within(row["condition"], least, most, f"the condition of {recipe}, {clients} clients", hint)
        within(row["exact"], worst, best, f"the share of exact counts of {recipe}, {clients} clients", hint)
