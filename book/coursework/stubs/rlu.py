"""Coursework 3, RLU: labels from several local steps."""

from torch import Tensor


def mean_softmax(logits: Tensor, labels: Tensor) -> Tensor:
    """Return P ``[n, n]``: row c is the mean softmax of class c's samples. Every class occurs.

    `logits` are ``[N, n]``, `labels` ``[N]``.
    """
    raise NotImplementedError


def coefficients(confidence: Tensor) -> Tensor:
    """Return A ``[n, n]`` of Eq. 10 from P ``[n, n]``."""
    raise NotImplementedError


def step_weights(momentum: float, steps: int) -> Tensor:
    """Return omega(1) … omega(m) ``[steps]``, the weight of each step's gradient under SGD with momentum."""
    raise NotImplementedError


def decayed_weights(momentum: float, decay: float, steps: int) -> Tensor:
    """Return the weights as in `step_weights` if the learning rate of step s is ``decay ** (s - 1)`` times the first.

    They are relative to the first step's learning rate.
    """
    raise NotImplementedError


def solve(system: Tensor, target: Tensor, samples: int) -> Tensor:
    """Return the counts ``[n]``, real numbers, that solve Eq. 10: not negative, with the sum `samples`."""
    raise NotImplementedError


def whole(values: Tensor, samples: int) -> Tensor:
    """Round counts ``[n]`` to integers with the sum `samples`: floors, then the largest remainders.

    The values are not negative and have that sum.
    """
    raise NotImplementedError


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
    raise NotImplementedError
