"""Coursework 3, RLU: labels from several local steps."""

import torch
from scipy.optimize import nnls
from torch import Tensor

from fedleak import metrics
from fedleak.data import compose, draw, load
from fedleak.federated import Scheme, Server
from fedleak.models import build, head


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
    """Return rho(1) … rho(m) ``[steps]``: how much each step's gradient counts under SGD with momentum."""
    later = steps - torch.arange(steps, dtype=torch.float64)
    return (1 - momentum**later) / (1 - momentum)


def solve(system: Tensor, target: Tensor, samples: int) -> Tensor:
    """Return the counts ``[n]``, real numbers, that solve Eq. 10: not negative, with the sum `samples`."""
    shifted = system - target[:, None] / samples
    stacked = torch.cat([shifted, torch.ones_like(shifted[:1])])
    right = torch.cat([torch.zeros_like(target), torch.ones_like(target[:1])])
    found = torch.from_numpy(nnls(stacked.numpy(), right.numpy())[0])
    return samples * found / found.sum()


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

    Untrained LeNet (``build("lenet", …)`` of `fedleak.models` with `seed`, one for all clients), digits
    (`fedleak.data.load("mnist5k")`; the split "test" is the server's auxiliary data), ten steps of B = 32, learning
    rate 0.01, momentum 0.9, unbalanced batches; the clients' rounds by `fedleak.federated.Server` with the scheme
    "sgdm", or by hand. The attack is Algorithm 1 with your functions: coefficients at the model before the round only,
    times the mean of the step weights, solved in float64, rounded by `whole`. iAcc is
    `fedleak.metrics.instance_accuracy` of all 320 labels of a client.
    Return ``[{"weights": "momentum", "iAcc": …}, {"weights": "ones", "iAcc": …}]``, means over the clients.
    """
    images, aux = load("mnist5k"), load("mnist5k", "test")
    lr, steps, batch, momentum = 0.01, 10, 32, 0.9
    model = build("lenet", images.shape, 10, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    labels = compose("unbalanced", batch, 10, 8, generator, steps=steps)
    with torch.no_grad():
        system = coefficients(mean_softmax(model(aux.x).double(), aux.y))
    server = Server(model, Scheme("sgdm", lr, steps, momentum=momentum), clients=8)
    updates = server.round(images.x[draw(images, labels.flatten(1), generator)].unflatten(1, (steps, batch)), labels)
    rows = []
    for name, rho in (("momentum", step_weights(momentum, steps)), ("ones", torch.ones(steps))):
        rates = []
        for update, own in zip(updates, labels, strict=True):
            target = update.tensors[head(model).bias].double() * batch / lr
            found = whole(solve(rho.mean() * system, target, steps * batch), steps * batch)
            rates.append(metrics.instance_accuracy(found, metrics.counts(own.flatten(), 10)))
        rows.append({"weights": name, "iAcc": float(torch.stack(rates).mean())})
    return rows
