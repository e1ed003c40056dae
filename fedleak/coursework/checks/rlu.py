"""Checks of the assignment on RLU."""

import torch
from torch import Generator, nn

from fedleak.attacks.labels import counts as package
from fedleak.coursework.assignment import Assignment, Student, Trouble, as_tensor, same, seed_of, table, whole_numbers
from fedleak.federated import Scheme

ASSIGNMENT = Assignment("rlu", "RLU: labels from several local steps")


@ASSIGNMENT.check(2, "mean_softmax")
def mean_softmax(student: Student, generator: Generator) -> None:
    """Row c is the mean softmax of the samples of class c."""
    logits = 3 * torch.randn(24, 4, generator=generator, dtype=torch.float64)
    labels = torch.arange(4).repeat_interleave(torch.tensor([3, 5, 7, 9]))
    own = nn.functional.one_hot(labels, 4).double()
    means = own.T / own.sum(0)[:, None]
    right = means @ logits.softmax(1)
    same(
        student("mean_softmax", logits, labels),
        right,
        "mean_softmax",
        hint="for every class, average the softmax of its own samples",
        mistakes=[
            ("average the softmax, not the logits", (means @ logits).softmax(1)),
            ("take the softmax of the logits", means @ logits),
            ("row: the true class, column: the output. Transpose", right.T),
            ("divide by the number of samples of the CLASS", own.T @ logits.softmax(1) / 24),
            ("divide by the number of samples of the class", own.T @ logits.softmax(1)),
        ],
    )


@ASSIGNMENT.check(1, "coefficients")
def coefficients(student: Student, generator: Generator) -> None:
    """The matrix of Eq. 10 has the erroneous confidences, and columns that sum to zero."""
    p = torch.randn(5, 5, generator=generator, dtype=torch.float64).softmax(1)
    eye = torch.eye(5, dtype=torch.float64)
    same(
        student("coefficients", p),
        eye - p.T,
        "coefficients",
        hint="A_jj = 1 - P_jj, A_jc = -P_cj",
        mistakes=[
            ("A_jc holds what class c's samples believe of j: transpose", eye - p),
            ("the sign: the bias of a class that occurs goes UP", p.T - eye),
            ("the diagonal is 1 - P_jj: what the model wrongly believes", -p.T),
        ],
    )


@ASSIGNMENT.check(2, "step_weights")
def step_weights(student: Student, generator: Generator) -> None:
    """The weights of the gradients are those of SGD with momentum."""
    momentum, steps = 0.5 + 0.4 * torch.rand((), generator=generator).item(), 6
    right = Scheme("sgdm", 0.1, steps, momentum=momentum).weights()
    exact = (1 - momentum) * right
    same(
        student("step_weights", momentum, steps),
        right,
        f"step_weights for momentum {momentum:.2f} and {steps} steps",
        hint="gradient tau enters every later step s with momentum^(s - tau): sum the series",
        mistakes=[
            ("off by one: the last gradient enters once, with weight 1",
             torch.tensor([(1 - momentum ** (steps - t)) / (1 - momentum) for t in range(1, steps + 1)])),
            ("off by one: the last gradient enters once, with weight 1",
             torch.tensor([(1 - momentum ** (steps - t + 2)) / (1 - momentum) for t in range(1, steps + 1)])),
            ("the EARLY gradients weigh most: they are still moving the model at the end", right.flip(0)),
            ("divide by 1 - momentum", exact),
            ("these are the weights of plain SGD", torch.ones(steps)),
            ("this is how the last step sees gradient tau: sum over all steps from tau on",
             torch.tensor([momentum ** (steps - t) for t in range(1, steps + 1)])),
        ],
        tolerance=1e-5,
    )  # fmt: skip
    same(student("step_weights", 0.0, 4), torch.ones(4), "step_weights without momentum")


@ASSIGNMENT.check(2, "solve")
def solve(student: Student, generator: Generator) -> None:
    """The counts minimise Eq. 10 under both constraints."""
    p = (2 * torch.randn(6, 6, generator=generator, dtype=torch.float64)).softmax(1)
    system = torch.eye(6, dtype=torch.float64) - p.T
    truth = torch.tensor([9, 0, 4, 0, 2, 1], dtype=torch.float64)
    target = system @ truth + 0.6 * torch.randn(6, generator=generator, dtype=torch.float64)
    got = as_tensor(student("solve", system, target, 16), "solve")
    if got.shape != truth.shape:
        raise Trouble(f"solve: expected shape [6], got {list(got.shape)}")
    if not abs(got.sum().item() - 16) < 1e-3:
        raise Trouble(
            f"solve: expected a sum of 16, got {got.sum():.4g}",
            "the columns of A sum to zero, so that A n never fixes the sum: make it a constraint",
        )
    if got.min() < -1e-4:
        raise Trouble(f"solve: expected no negative count, got {got.min():.3g}", "a bound on every variable")

    def loss(n: torch.Tensor) -> float:
        return float(((system @ n - target) ** 2).sum())

    best = package.solve(system, target, 16)
    if loss(got) > loss(best) * 1.001 + 1e-4:
        raise Trouble(
            f"solve: the constraints hold, but the squared error is {loss(got):.4g} instead of {loss(best):.4g}",
            "clamping the unconstrained solution is not the constrained one: give the constraints to the solver",
        )


@ASSIGNMENT.check(1, "whole")
def whole(student: Student, generator: Generator) -> None:
    """Rounding keeps the sum: floors, then the largest remainders."""
    values = torch.tensor([3.45, 2.4, 1.3, 0.85], dtype=torch.float64)
    values = values[torch.randperm(4, generator=generator)]
    right = package.whole_counts(values, 8)
    got = student("whole", values, 8)
    whole_numbers(got, "whole")
    same(
        got,
        right,
        f"whole({shown_list(values)}, 8)",
        mistakes=[
            ("rounding each by itself loses the sum: give what is missing to the largest remainders", values.round()),
            ("floors alone lose the sum", values.floor()),
            ("all that is missing goes to ONE class here: one each, by remainder", _all_to_one(values)),
        ],
    )


def shown_list(values: torch.Tensor) -> str:
    """Return numbers as a short list."""
    return "[" + ", ".join(f"{v:g}" for v in values.tolist()) + "]"


def _all_to_one(values: torch.Tensor) -> torch.Tensor:
    floors = values.floor()
    floors[(values - floors).argmax()] += 8 - floors.sum()
    return floors


@ASSIGNMENT.check(2, "measure")
def measure(student: Student, generator: Generator) -> None:
    """Under momentum, the right step weights beat weights of one by far."""
    rows = table(student("measure", seed_of(generator)), ["weights", "iAcc"])
    found = {row["weights"]: row["iAcc"] for row in rows}
    if set(found) != {"momentum", "ones"}:
        raise Trouble("measure: expected one row with weights 'momentum' and one with 'ones'")
    if not 0.9 <= found["momentum"] <= 1:
        raise Trouble(
            f"measure: expected an iAcc of 0.9 or more with the right weights, got {found['momentum']:.3g}",
            "the target is B / lr times the bias' change, and the coefficients carry the mean of rho",
        )
    if not 0 <= found["ones"] <= found["momentum"] - 0.1:
        raise Trouble(f"measure: expected weights of one to lose 0.1 or more, got {found['ones']:.3g}")
