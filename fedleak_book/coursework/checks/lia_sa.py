"""Checks of the assignment on LIA-SA."""

import torch
from torch import Generator

from fedleak import metrics
from fedleak.attacks.labels import lia_sa
from fedleak_book.coursework.assignment import Assignment, as_tensor, normal, same, uniform
from fedleak_book.coursework.given import manipulated_clients
from fedleak_book.coursework.outcomes import Student, Trouble

ASSIGNMENT = Assignment("lia_sa")


@ASSIGNMENT.check(1)
def system(student: Student, generator: Generator) -> None:
    """The matrix has a row of ones above a column for every client's embedding."""
    e = uniform(generator, 3, 4)
    right = lia_sa.system(e)
    mistakes = {
        "a client is a COLUMN: transpose": right.T,
        "the row of ones is missing: it holds the equations of the bias": e.T,
        "the ones stand ABOVE the embeddings, as the bias stands above the weights": right.roll(-1, 0),
    }
    same(student("system", e), right, "system", mistakes, hint="Eq. 16: (m + 1) x U, a client is a column")


@ASSIGNMENT.check(2)
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


@ASSIGNMENT.check(1)
def reader(student: Student, generator: Generator) -> None:
    """One vector reads one client's gradient out of the sums, and is the shortest that does."""
    e = uniform(generator, 3, 6)
    matrix = lia_sa.system(e)
    inverse, client = torch.linalg.pinv(matrix), 1
    unseen = torch.linalg.svd(matrix.T).Vh[-1]  # it reads nothing of any client
    mistakes = {
        "this is the client's COLUMN of the system; its product with another client's column is not 0": matrix[
            :, client
        ],
        "clients count from 0": [inverse[0], inverse[2]],
        "the product with the client's own column is 1, with every other client's 0: use all columns": (
            matrix[:, client] / matrix[:, client].square().sum()
        ),
        "it reads the client, but a shorter vector does, too: take the one of least norm": inverse[client] + unseen,
    }
    hint = "v'A has a 1 at the client and 0 elsewhere; of all solutions the pseudo-inverse gives the shortest"
    same(student("reader", e, client), inverse[client], "reader", mistakes, hint=hint, tolerance=1e-5)


@ASSIGNMENT.check(3)
def counts(student: Student, generator: Generator) -> None:
    """Bias gradients and logits give whole, non-negative counts, in spite of small errors."""
    clients, n, batch = 4, 5, 16
    labels = torch.randint(n - 1, (clients, batch), generator=generator)
    truth = metrics.counts(labels, n)
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
        "round to the NEAREST integer; ceil adds up": estimate.ceil().clamp(min=0),
        "a count is not negative: clamp at 0": estimate.round(),
    }
    got = student("counts", bias, logits, batch)
    value = as_tensor(got, "counts")
    if not torch.equal(value, value.round()):
        same(got, estimate, "counts before rounding", unrounded)
        raise Trouble("counts: expected whole numbers", "round, then `.long()`")
    same(got, truth, "counts", mistakes, hint="Eq. 17", whole=True)


RIGHT = {
    "system": lia_sa.system,
    "disaggregate": lia_sa.disaggregate,
    "counts": lambda bias, logits, batch: lia_sa.counts(logits.softmax(1), bias, batch).round().clamp(min=0),
}


@ASSIGNMENT.measurement(3, 2, RIGHT, "float64; the condition is that of system(embeddings)")
def measure(functions: Student, seed: int) -> list[dict]:
    """The conditions and the shares of exact counts are those of your own functions."""
    rows = []
    for recipe in ("constant", "vector"):
        for clients in (2, 5, 20):
            e, last, labels = manipulated_clients(seed, recipe, clients)
            truth, logits = metrics.counts(labels, 10), last(e).detach()
            bias = logits.softmax(1) - truth / labels.shape[1]
            recovered = functions(
                "counts", functions("disaggregate", e, bias.T @ e, bias.sum(0)), logits, labels.shape[1]
            )
            condition, share = (
                torch.linalg.cond(functions("system", e)).item(),
                (recovered == truth).double().mean().item(),
            )
            rows.append({"recipe": recipe, "clients": clients, "condition": condition, "exact": share})
    return rows
