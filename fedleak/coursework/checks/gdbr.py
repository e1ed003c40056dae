"""Checks of the assignment on GDBR."""

import itertools

import torch
from torch import Generator, Tensor, nn

from fedleak.coursework.assignment import Assignment, Student, Trouble, same, seed_of, table

ASSIGNMENT = Assignment("gdbr", "GDBR: labels from a layer below the last")


def _layer(generator: Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return W, the gradient of W, the output a = W x and its gradient, for one sample; all units are active."""
    w = torch.rand(5, 7, generator=generator, dtype=torch.float64).requires_grad_()
    x = torch.rand(7, generator=generator, dtype=torch.float64)
    above = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    a = torch.relu(w @ x)
    loss = nn.functional.cross_entropy(above @ a, torch.tensor(1))
    gradient, slope = torch.autograd.grad(loss, (w, a))
    return w.detach(), gradient, a.detach(), slope


@ASSIGNMENT.check(2, "output_gradient")
def output_gradient(student: Student, generator: Generator) -> None:
    """A weight's gradient gives the gradient of the layer's outputs (Eq. 17)."""
    w, gradient, a, right = _layer(generator)
    product = (gradient * w).sum(1)
    same(
        student("output_gradient", gradient, w, a),
        right,
        "output_gradient",
        hint="diag(grad W W^T), entry by entry divided by the mean output",
        mistakes=[
            ("the operator that the paper prints as a product is a DIVISION", product * a),
            ("divide by the mean output", product),
            ("project every row on the layer's own weights: diag(grad W W^T)", gradient.sum(1) / a),
            ("the diagonal of grad W W^T, not its row sums", (gradient @ w.T).sum(1) / a),
        ],
    )


@ASSIGNMENT.check(1, "output_gradient")
def dead_units(student: Student, generator: Generator) -> None:
    """A unit whose mean output is zero is divided by the mean of the others."""
    w, gradient, a, _ = _layer(generator)
    a[2], gradient[2] = 0, 1e-3
    filled = a.clone()
    filled[2] = a[a != 0].mean()
    product = (gradient * w).sum(1)
    without = product / a
    without[2] = 0
    same(
        student("output_gradient", gradient, w, a),
        product / filled,
        "output_gradient with a dead unit",
        hint="0 / 0: replace a zero mean output by the mean of the non-zero ones (Sec. V-D 4)",
        mistakes=[
            ("the mean of the NON-ZERO outputs, not of all", product / torch.where(a == 0, a.mean(), a)),
            ("the paper does not drop the unit, it divides by the mean of the others", without),
        ],
    )


@ASSIGNMENT.check(2, "cross")
def cross(student: Student, generator: Generator) -> None:
    """A layer is crossed upwards: from the gradient of its inputs to that of its outputs (Eq. 9)."""
    w = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    right = torch.randn(4, generator=generator, dtype=torch.float64)
    below = w.T @ right
    same(
        student("cross", w, below),
        right,
        "cross",
        hint="(W W^T)^-1 W grad x",
        mistakes=[
            ("W grad x still has W W^T in it: multiply by its inverse", w @ below),
            ("the inverse of W W^T, not W W^T", w @ w.T @ w @ below),
            ("this pseudo-inverse is of W; the gradient goes through W^T", torch.linalg.pinv(w.T @ w)[:4] @ below),
        ],
    )


@ASSIGNMENT.check(1, "label_counts")
def label_counts(student: Student, generator: Generator) -> None:
    """Mean softmax and logit gradient give the counts (Eq. 21)."""
    p = torch.randn(5, generator=generator, dtype=torch.float64).softmax(0)
    truth = torch.tensor([3, 0, 2, 1, 2], dtype=torch.float64)
    gradient = p - truth / 8
    same(
        student("label_counts", p, gradient, 8),
        truth,
        "label_counts",
        mistakes=[
            ("the sign: B (p - gradient)", -truth),
            ("multiply by B", truth / 8),
            ("the softmax is missing: the gradient is p minus the labels' shares", -8 * gradient),
        ],
    )


@ASSIGNMENT.check(2, "recover")
def recover(student: Student, generator: Generator) -> None:
    """Three layers: the first one's gradient leads to the counts of a batch of equal images."""
    sizes = (12, 8, 6, 4)
    weights = [
        (0.3 * torch.rand(out, into, generator=generator, dtype=torch.float64) + 0.05).requires_grad_()
        for into, out in itertools.pairwise(sizes)
    ]
    x = torch.rand(sizes[0], generator=generator, dtype=torch.float64).expand(16, -1)
    labels = torch.randint(3, (16,), generator=generator)
    hidden = torch.relu(x @ weights[0].T)
    logits = torch.relu(hidden @ weights[1].T) @ weights[2].T
    gradient = torch.autograd.grad(nn.functional.cross_entropy(logits, labels), weights[0])[0]
    plain = [w.detach() for w in weights]
    same(
        student("recover", gradient, plain, hidden.detach().mean(0), logits.softmax(1).detach().mean(0), 16),
        torch.bincount(labels, minlength=4),
        "recover",
        hint="output_gradient with weights[0], then cross weights[1], weights[2], … in this order, then label_counts",
        tolerance=1e-5,
    )


@ASSIGNMENT.check(2, "measure")
def measure(student: Student, generator: Generator) -> None:
    """Positive weights let more than 80 % of the labels through; default ones fewer."""
    rows = table(student("measure", seed_of(generator)), ["init", "InsAcc"])
    found = {row["init"]: row["InsAcc"] for row in rows}
    if set(found) != {"positive", "default"}:
        raise Trouble("measure: expected one row with init 'positive' and one with 'default'")
    if not 0.85 <= found["positive"] <= 1:
        raise Trouble(
            f"measure: positive weights: expected an InsAcc of 0.85 or more, got {found['positive']:.3g}",
            "the layer below the last, networks without biases, mean output and softmax from the auxiliary images",
        )
    if not 0.3 <= found["default"] <= found["positive"] - 0.05:
        raise Trouble(f"measure: default weights: expected 0.05 less or worse, got {found['default']:.3g}")
