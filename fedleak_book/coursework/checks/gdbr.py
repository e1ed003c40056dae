"""Checks of the assignment on GDBR."""

import functools
import itertools

import torch
from torch import Generator, Tensor, nn

from fedleak import metrics
from fedleak.data import load
from fedleak.federated import fedsgd
from fedleak.models import head_pass
from fedleak_book.coursework.assignment import Assignment, normal, same, uniform
from fedleak_book.coursework.given import bridged_networks
from fedleak_book.coursework.outcomes import Student

ASSIGNMENT = Assignment("gdbr")


def _layer(generator: Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return W, the gradient of W, the output a = W x and its gradient, for one sample; all units are active."""
    w, x = uniform(generator, 5, 7).requires_grad_(), uniform(generator, 7)
    above = normal(generator, 3, 5)
    a = torch.relu(w @ x)
    loss = nn.functional.cross_entropy(above @ a, torch.tensor(1))
    gradient, slope = torch.autograd.grad(loss, (w, a))
    return w.detach(), gradient, a.detach(), slope


@ASSIGNMENT.check(2)
def output_gradient(student: Student, generator: Generator) -> None:
    """A weight's gradient gives the gradient of the layer's outputs (Eq. 17)."""
    w, gradient, a, right = _layer(generator)
    product = (gradient * w).sum(1)
    mistakes = {
        "the operator that the paper prints as a product is a DIVISION": product * a,
        "divide by the mean output": product,
        "project every row on the layer's own weights: diag(grad W W^T)": gradient.sum(1) / a,
        "the diagonal of grad W W^T, not its row sums": (gradient @ w.T).sum(1) / a,
    }
    hint = "diag(grad W W^T), entry by entry divided by the mean output"
    same(student("output_gradient", gradient, w, a), right, "output_gradient", mistakes, hint=hint)


@ASSIGNMENT.check(1, "output_gradient")
def dead_units(student: Student, generator: Generator) -> None:
    """A unit whose mean output is zero is divided by the mean of the others."""
    w, gradient, a, _ = _layer(generator)
    a[2], gradient[2] = 0, 1e-3
    product, dead = (gradient * w).sum(1), a == 0
    right, all_of_them = (product / torch.where(dead, mean, a) for mean in (a[~dead].mean(), a.mean()))
    mistakes = {
        "the mean of the NON-ZERO outputs, not of all": all_of_them,
        "the paper does not drop the unit, it divides by the mean of the others": right * ~dead,
    }
    hint = "0 / 0: replace a zero mean output by the mean of the non-zero ones (Sec. V-D 4)"
    same(student("output_gradient", gradient, w, a), right, "output_gradient with a dead unit", mistakes, hint=hint)


@ASSIGNMENT.check(1)
def cross(student: Student, generator: Generator) -> None:
    """A layer is crossed upwards: from the gradient of its inputs to that of its outputs (Eq. 9)."""
    w, right = normal(generator, 4, 6), normal(generator, 4)
    below = w.T @ right
    pseudo = torch.linalg.pinv(w.T @ w)[:4] @ below
    mistakes = {
        "W grad x still has W W^T in it: multiply by its inverse": w @ below,
        "the inverse of W W^T, not W W^T": w @ w.T @ w @ below,
        "this pseudo-inverse is of W; the gradient goes through W^T": pseudo,
    }
    same(student("cross", w, below), right, "cross", mistakes, hint="(W W^T)^-1 W grad x")


@ASSIGNMENT.check(1)
def cross_narrow(student: Student, generator: Generator) -> None:
    """A layer with one input less than classes is crossed, because the logits' gradient sums to zero."""
    weight, logits = normal(generator, 5, 4), normal(generator, 5)
    right = logits - logits.mean()
    gradient = weight.T @ right
    shortest = torch.linalg.pinv(weight.T) @ gradient
    mistakes = {
        "of all solutions this is the shortest; take the one whose entries sum to zero": shortest,
        "taking off the mean breaks W'z = g: solve both conditions at once": shortest - shortest.mean(),
        "this is W times the gradient, not the solution of W'z = g": weight @ gradient,
        "the sign": -right,
    }
    hint = "n - 1 equations W'z = g, and 1'z = 0 as the n-th: a square system"
    same(student("cross_narrow", weight, gradient), right, "cross_narrow", mistakes, hint=hint, tolerance=1e-5)


@ASSIGNMENT.check(1)
def label_counts(student: Student, generator: Generator) -> None:
    """Mean softmax and logit gradient give the counts (Eq. 21)."""
    p = normal(generator, 5).softmax(0)
    truth = torch.tensor([3.1, 0.2, 1.9, 0.7, 2.1], dtype=torch.float64)
    gradient = p - truth / 8
    mistakes = {
        "the sign: B (p - gradient)": -truth,
        "multiply by B": truth / 8,
        "rounding comes later": truth.round(),
        "the softmax is missing: the gradient is p minus the labels' shares": -8 * gradient,
    }
    same(student("label_counts", p, gradient, 8), truth, "label_counts", mistakes)


@ASSIGNMENT.check(2)
def recover(student: Student, generator: Generator) -> None:
    """Three layers: the first one's gradient leads to the counts of a batch of equal images."""
    sizes = (12, 8, 6, 4)
    weights = [0.3 * uniform(generator, out, into) + 0.05 for into, out in itertools.pairwise(sizes)]
    first = weights[0].clone().requires_grad_()
    x = uniform(generator, sizes[0]).expand(16, -1)
    labels = torch.randint(3, (16,), generator=generator)
    hidden = torch.relu(x @ first.T)
    logits = torch.relu(hidden @ weights[1].T) @ weights[2].T
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(logits, labels), first)
    hint = "output_gradient with weights[0], then cross weights[1], weights[2], … in this order, then label_counts"
    means, counts = (hidden.detach().mean(0), logits.softmax(1).detach().mean(0)), torch.bincount(labels, minlength=4)
    same(student("recover", gradient, weights, *means, 16), counts, "recover", hint=hint, tolerance=1e-5)
    got, shifted = student("recover", gradient, weights, means[0], 0.9 * means[1], 16), counts - 1.6 * means[1]
    same(got, shifted, "recover with another softmax", {"rounding comes later": shifted.round()}, tolerance=1e-5)


def _recover(gradient: Tensor, weights: list[Tensor], outputs: Tensor, p: Tensor, batch_size: int) -> Tensor:
    filled, above = torch.where(outputs == 0, outputs[outputs != 0].mean(), outputs), weights[1]
    return batch_size * (p - torch.linalg.pinv(above.T) @ ((gradient * weights[0]).sum(1) / filled))


RIGHT = {"recover": _recover}


@functools.lru_cache(maxsize=4)
def _networks(seed: int, init: str) -> list[tuple[Tensor, list[Tensor], Tensor, Tensor, Tensor]]:
    """Return each network's gradient, the weights of both layers, the means of their outputs, and the labels."""
    aux = load("mnist5k", "test", limit=300)
    networks = []
    for model, x, labels in bridged_networks(seed, init):
        passed = head_pass(model, aux.x.double())
        weights = [model.get_parameter(f"{place}.weight").detach() for place in (9, 11)]
        means = [of_samples.mean(0).detach() for of_samples in (passed.inputs, passed.probabilities)]
        gradient = fedsgd(model, x, labels).gradient("9.weight")
        networks.append((gradient, weights, means[0], means[1], labels))
    return networks


@ASSIGNMENT.measurement(
    2, 1, RIGHT, "mean output and softmax from the auxiliary images, in float64; clamp, scale to the sum B, round"
)
def measure(functions: Student, seed: int) -> list[dict]:
    """The InsAcc of either initialisation is that of your own `recover`."""
    rows = []
    for init in ("positive", "default"):
        errors = []
        for *inputs, labels in _networks(seed, init):
            size = len(labels)
            counts = functions("recover", *inputs, size).clamp(min=0)
            counts, truth = counts * size / counts.sum(), metrics.counts(labels, 10)
            rate = metrics.instance_accuracy(counts.round(), truth)
            errors.append(torch.stack([rate, (counts - truth).square().mean().sqrt()]))
        rate, error = torch.stack(errors).mean(0).tolist()
        rows.append({"init": init, "InsAcc": rate, "error": error})
    return rows
