"""Coursework 3, RLU: labels from several local steps."""

import torch
from scipy.optimize import nnls
from torch import Tensor

from fedleak import metrics
from fedleak.data import load
from fedleak.federated import Scheme, Server
from fedleak.models import head
from fedleak_book.coursework.given import momentum_clients


def mean_softmax(logits: Tensor, labels: Tensor) -> Tensor:
    """Return P ``[n, n]``: row c is the mean softmax of class c's samples. Every class occurs.

    `logits` are ``[N, n]``, `labels` ``[N]``.
    """
    p = logits.softmax(1)
    return torch.stack([p[labels == c].mean(0) for c in range(logits.shape[1])])


def coefficients(confidence: Tensor) -> Tensor:
    """Return A ``[n, n]`` of Eq. 10 from P ``[n, n]``."""
    return torch.eye(len(confidence), dtype=confidence.dtype) - confidence.T


def step_weights(momentum: float, steps: int) -> Tensor:
    """Return omega(1) … omega(m) ``[steps]``, the weight of each step's gradient under SGD with momentum."""
    later = steps - torch.arange(steps, dtype=torch.float64)
    return (1 - momentum**later) / (1 - momentum)


def decayed_weights(momentum: float, decay: float, steps: int) -> Tensor:
    """Return the weights as in `step_weights` if the learning rate of step s is ``decay ** (s - 1)`` times the first.

    They are relative to the first step's learning rate.
    """
    s = torch.arange(steps, dtype=torch.float64)
    later = (s[None] - s[:, None]).clamp(min=0)  # from gradient tau (row) to step s
    return (decay**s * momentum**later).triu().sum(1)


def solve(system: Tensor, target: Tensor, samples: int) -> Tensor:
    """Return the counts ``[n]``, real numbers, that solve Eq. 10: not negative, with the sum `samples`."""
    shifted = system - target[:, None] / samples
    stacked = torch.cat([shifted, torch.ones_like(shifted[:1])])
    right = torch.cat([torch.zeros_like(target), torch.ones_like(target[:1])])
    solution = torch.from_numpy(nnls(stacked.numpy(), right.numpy())[0])
    return samples * solution / solution.sum()


def whole(values: Tensor, samples: int) -> Tensor:
    """Round counts ``[n]`` to integers with the sum `samples`: floors, then the largest remainders.

    The values are not negative and have that sum.
    """
    floors = (values + 1e-9).floor()
    missing = int(samples - floors.sum())
    floors[(values - floors).argsort(descending=True)[:missing]] += 1
    return floors.long()


def measure(seed: int) -> list[dict]:
    """Recover the labels of 8 clients that train with momentum, with the right step weights and with ones.

    Model, images and labels are those of `fedleak_book.coursework.given.momentum_clients`, the server's auxiliary data
    ``load("mnist5k", "test")`` of `fedleak.data`. Ten steps of B = 32, learning rate 0.01, momentum 0.9; the clients'
    rounds by `fedleak.federated.Server` with the scheme "sgdm", or by hand. The attack is Algorithm 1 with your
    functions: coefficients at the model before the round only, times the mean of the step weights, solved in float64,
    rounded by `whole`. iAcc is `fedleak.metrics.instance_accuracy` of all 320 labels of a client, `error` the root of
    the mean square of what is wrong before rounding. Return ``[{"weights": "momentum", "iAcc": …, "error": …},
    {"weights": "ones", …}]``, means over the clients.
    """
    aux, (model, x, labels) = load("mnist5k", "test"), momentum_clients(seed)
    lr, steps, batch, momentum = 0.01, 10, 32, 0.9
    with torch.no_grad():
        system = coefficients(mean_softmax(model(aux.x).double(), aux.y))
    server = Server(model, Scheme("sgdm", lr, steps, momentum=momentum), clients=8)
    updates = server.round(x, labels)
    rows = []
    for name, weights in (("momentum", step_weights(momentum, steps)), ("ones", torch.ones(steps))):
        rates, errors = [], []
        for update, y in zip(updates, labels, strict=True):
            target = update.tensors[head(model).bias].double() * batch / lr
            estimate, truth = solve(weights.mean() * system, target, steps * batch), metrics.counts(y.flatten(), 10)
            errors.append((estimate - truth).square().mean().sqrt())
            rates.append(metrics.instance_accuracy(whole(estimate, steps * batch), truth))
        rate, error = (float(torch.stack(values).mean()) for values in (rates, errors))
        rows.append({"weights": name, "iAcc": rate, "error": error})
    return rows
