"""Checks of the assignment on RLU."""

import functools

import torch
from torch import Generator, Tensor, nn

from fedleak import metrics
from fedleak.attacks.labels import counts as package
from fedleak.data import load
from fedleak.federated import Scheme, Server
from fedleak.models import head
from fedleak_book.coursework.assignment import Assignment, as_tensor, normal, same, short_text, within
from fedleak_book.coursework.given import momentum_clients
from fedleak_book.coursework.outcomes import Student, Trouble

ASSIGNMENT = Assignment("rlu")
LR, STEPS, MOMENTUM = 0.01, 10, 0.9
"""Of the measurement's clients."""


@ASSIGNMENT.check(1)
def mean_softmax(student: Student, generator: Generator) -> None:
    """Row c is the mean softmax of the samples of class c."""
    logits = 3 * normal(generator, 24, 4)
    labels = torch.arange(4).repeat_interleave(torch.tensor([3, 5, 7, 9]))
    onehot, p = nn.functional.one_hot(labels, 4).double(), logits.softmax(1)
    means = onehot.T / onehot.sum(0)[:, None]
    right = means @ p
    mistakes = {
        "average the softmax, not the logits": (means @ logits).softmax(1),
        "take the softmax of the logits": means @ logits,
        "row: the true class, column: the output. Transpose": right.T,
        "divide by the number of samples of the CLASS": [onehot.T @ p / 24, onehot.T @ p],
    }
    hint = "for every class, average the softmax of its own samples"
    same(student("mean_softmax", logits, labels), right, "mean_softmax", mistakes, hint=hint)


@ASSIGNMENT.check(1)
def coefficients(student: Student, generator: Generator) -> None:
    """The matrix of Eq. 10 has the erroneous confidences, and columns that sum to zero."""
    p = normal(generator, 5, 5).softmax(1)
    eye = torch.eye(5, dtype=torch.float64)
    mistakes = {
        "A_jc holds what class c's samples believe of j: transpose": eye - p,
        "the sign: the bias of a class that occurs goes UP": p.T - eye,
        "the diagonal is 1 - P_jj: what the model wrongly believes": -p.T,
    }
    same(student("coefficients", p), eye - p.T, "coefficients", mistakes, hint="A_jj = 1 - P_jj, A_jc = -P_cj")


@ASSIGNMENT.check(2)
def step_weights(student: Student, generator: Generator) -> None:
    """The weights of the gradients are those of SGD with momentum."""
    momentum, steps = 0.5 + 0.4 * torch.rand((), generator=generator).item(), 6
    right = Scheme("sgdm", 0.1, steps, momentum=momentum).weights()
    later = torch.arange(steps - 1, -1, -1)
    mistakes = {
        "off by one: the last gradient enters once, with weight 1": [
            (1 - momentum**k) / (1 - momentum) for k in (later, later + 2)
        ],
        "the EARLY gradients weigh most: they are still moving the model at the end": right.flip(0),
        "divide by 1 - momentum": (1 - momentum) * right,
        "these are the weights of plain SGD": torch.ones(steps),
        "this is how the last step sees gradient tau: sum over all steps from tau on": momentum**later,
    }
    what = f"step_weights for momentum {momentum:.2f} and {steps} steps"
    hint = "gradient tau enters every later step s with momentum^(s - tau): sum the series"
    same(student("step_weights", momentum, steps), right, what, mistakes, hint=hint, tolerance=1e-5)
    same(student("step_weights", 0.0, 4), torch.ones(4), "step_weights without momentum")


@ASSIGNMENT.check(1)
def decayed_weights(student: Student, generator: Generator) -> None:
    """The weights are those of SGD with momentum under a learning rate that falls."""
    momentum, decay = (0.5 + 0.4 * torch.rand(2, generator=generator)).tolist()
    steps, velocity = 5, torch.zeros(5, dtype=torch.float64)
    right = torch.zeros(5, dtype=torch.float64)
    for step in range(steps):  # gradient tau is the tau-th unit vector
        velocity = momentum * velocity + torch.eye(steps, dtype=torch.float64)[step]
        right = right + decay**step * velocity
    even = Scheme("sgdm", 0.1, steps, momentum=momentum).weights()
    rates = decay ** torch.arange(steps, dtype=torch.float64)
    mistakes = {
        "the learning rate falls: every step s multiplies by its own decay^(s - 1)": even,
        "gradient tau moves the weights at every LATER step, too, and each has its own rate": [even * rates, rates],
        "the first step has the undiminished rate": right * decay,
        "step 1 comes first": right.flip(0),
    }
    what = f"decayed_weights for momentum {momentum:.2f}, decay {decay:.2f} and {steps} steps"
    hint = "gradient tau enters step s >= tau with momentum^(s - tau), times that step's rate: add them up"
    same(student("decayed_weights", momentum, decay, steps), right, what, mistakes, hint=hint, tolerance=1e-5)


@ASSIGNMENT.check(2)
def solve(student: Student, generator: Generator) -> None:
    """The counts minimise Eq. 10 under both constraints."""
    p = (2 * normal(generator, 6, 6)).softmax(1)
    system = torch.eye(6, dtype=torch.float64) - p.T
    truth = torch.tensor([9, 0, 4, 0, 2, 1], dtype=torch.float64)
    target = system @ truth + 0.6 * normal(generator, 6)
    got = as_tensor(student("solve", system, target, 16), "solve")
    if got.shape != truth.shape:
        raise Trouble("solve: expected shape [6]", detail=f"got {list(got.shape)}")
    hint = "the columns of A sum to zero, so that A n never fixes the sum: make it a constraint"
    same(got.sum(), 16.0, "solve: the sum", hint=hint, tolerance=1e-3 / 16)
    within(got.min().item(), -1e-4, 16.001, "solve: the smallest count", "a bound on every variable")
    loss, least = (float(((system @ n - target) ** 2).sum()) for n in (got, package.solve(system, target, 16)))
    hint = "clamping the unconstrained solution is not the constrained one: give the constraints to the solver"
    within(loss, 0, least * 1.001 + 1e-4, "solve: the constraints hold, but the squared error", hint)


@ASSIGNMENT.check(1)
def whole(student: Student, generator: Generator) -> None:
    """Rounding keeps the sum: floors, then the largest remainders."""
    values = torch.tensor([3.45, 2.4, 1.3, 0.85], dtype=torch.float64)
    values = values[torch.randperm(4, generator=generator)]
    floors = values.floor()
    all_to_one = floors.clone()
    all_to_one[(values - floors).argmax()] += 8 - floors.sum()
    mistakes = {
        "rounding each by itself loses the sum: give what is missing to the largest remainders": values.round(),
        "floors alone lose the sum": floors,
        "all that is missing goes to ONE class here: one each, by remainder": all_to_one,
    }
    right, what = package.round_to_total(values, 8), f"whole({short_text(values)}, 8)"
    same(student("whole", values, 8), right, what, mistakes, whole=True)
    values = torch.tensor([0.7, 0.6, 0.55, 2.15], dtype=torch.float64)
    mistakes = {"too many are rounded up here: round DOWN, then add by remainder": torch.tensor([1, 1, 1, 1])}
    same(student("whole", values, 4), torch.tensor([1, 1, 0, 2]), f"whole({short_text(values)}, 4)", mistakes)


RIGHT = {
    "mean_softmax": lambda logits, labels: torch.stack([logits.softmax(1)[labels == c].mean(0) for c in range(10)]),
    "coefficients": lambda p: torch.eye(len(p)).double() - p.T,
    "step_weights": lambda momentum, steps: Scheme("sgdm", 0.1, steps, momentum=momentum).weights(),
    "solve": package.solve,
    "whole": package.round_to_total,
}


@functools.lru_cache(maxsize=4)
def _round(seed: int) -> tuple[Tensor, Tensor, list[Tensor], Tensor]:
    """Return logits and labels of the auxiliary data, the clients' changes of the bias, and their labels."""
    model, x, labels = momentum_clients(seed)
    aux, bias = load("mnist5k", "test"), head(model).bias
    with torch.no_grad():  # before the round, which changes the model
        logits = model(aux.x).double()
    updates = Server(model, Scheme("sgdm", LR, STEPS, momentum=MOMENTUM), clients=8).round([*x], [*labels])
    return logits, aux.y, [update.tensors[bias] for update in updates], labels


@ASSIGNMENT.measurement(
    2, 1, RIGHT, "the target is B / lr times the bias' change, and the coefficients carry the mean step weight"
)
def measure(functions: Student, seed: int) -> list[dict]:
    """The iAcc with the right step weights, and with ones, is that of your own functions."""
    logits, aux_labels, changes, labels = _round(seed)
    batch, samples = labels.shape[2], labels[0].numel()
    system, rows = functions("coefficients", functions("mean_softmax", logits, aux_labels)), []
    for name, weights in (("momentum", functions("step_weights", MOMENTUM, STEPS)), ("ones", torch.ones(STEPS))):
        errors = []
        for change, batch_labels in zip(changes, labels, strict=True):
            target = change.double() * batch / LR
            counts, truth = (
                functions("solve", weights.mean() * system, target, samples),
                metrics.counts(batch_labels.flatten(), 10),
            )
            rate = metrics.instance_accuracy(functions("whole", counts, samples), truth)
            errors.append(torch.stack([rate, (counts - truth).square().mean().sqrt()]))
        rate, error = torch.stack(errors).mean(0).tolist()
        rows.append({"weights": name, "iAcc": rate, "error": error})
    return rows
