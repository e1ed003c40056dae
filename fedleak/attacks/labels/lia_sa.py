"""LIA-SA (Wang et al. 2024): every client's label counts from the SUM of the clients' gradients.

A malicious server sends each client a fishing model: one layer with its weights at 0, so that the layer's output, and
with it the head's input e and logits y, depend on that layer's bias alone and no longer on the data. The sum of the
clients' head gradients is then a linear system in the clients' bias gradients (Eq. 16), which give the counts (Eq. 17).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.fishing import constants as constants
from fedleak.attacks.labels.fishing import fishing_layer as fishing_layer
from fedleak.attacks.labels.fishing import fishing_model, foresee, preset
from fedleak.attacks.labels.inputs import bias_gradient, head_gradient, head_with_bias
from fedleak.attacks.registry import Need, attack
from fedleak.attacks.result import Prepared, once
from fedleak.federated import Update
from fedleak.models import head, input_shape

RANK_TOLERANCE = 1e-11
"""Singular values below this share of the largest count as 0: a deep network's rounding errors in double precision."""


class Conditioning(NamedTuple):
    """Conditioning of the system of Eq. 16, in float64."""

    rank: int
    """Numerical rank of the (m + 1) x U matrix."""
    condition: float
    """Largest over smallest singular value; infinite where U > m + 1."""
    clients: int
    """U."""


def system(embeddings: Tensor) -> Tensor:
    """Return the matrix of Eq. 16, a row of ones above the embeddings: ``[m + 1, U]`` from ``[U, m]``."""
    return torch.cat([torch.ones_like(embeddings[:, :1]), embeddings], dim=1).T


def conditioning_of(embeddings: Tensor) -> Conditioning:
    """Return rank and condition number of the system with these embeddings ``[U, m]``, in float64."""
    matrix = system(embeddings.double())
    values = torch.linalg.svdvals(matrix)
    rank = int((values > values[0] * RANK_TOLERANCE).sum())
    smallest = values[-1].item() if matrix.shape[1] <= matrix.shape[0] else 0.0
    return Conditioning(rank, values[0].item() / smallest if smallest > 0 else math.inf, len(embeddings))


def conditioning(models: Sequence[nn.Module], shape: tuple[int, ...] | None = None) -> Conditioning:
    """Return rank and condition number of the system of these fishing models; `shape` where they do not tell theirs."""
    return conditioning_of(preset(models, shape or input_shape(models[0])).inputs)


def disaggregate(embeddings: Tensor, weight_gradient: Tensor, bias_gradient: Tensor) -> Tensor:
    """Solve Eq. 16 for all classes with ONE factorisation (the paper solves n systems).

    Embeddings are ``[U, m]``, float64; the head's gradients ``[n, m]`` and ``[n]`` are summed over the clients. Returns
    every client's bias gradient, ``[U, n]``: the solution of least norm where the system is singular.
    """
    right = torch.cat([bias_gradient[None], weight_gradient.T])
    return torch.linalg.lstsq(
        system(embeddings), right, driver="gelsd" if right.device.type == "cpu" else None
    ).solution


def counts(probabilities: Tensor, bias_gradients: Tensor, batch_size: int) -> Tensor:
    """Return Eq. 17's ``B (p - grad b)`` ``[U, n]``, not rounded; exact if it is within 0.5 of the integers."""
    return batch_size * (probabilities - bias_gradients)


@attack(
    "LIA-SA",
    paper="wang2024liasa",
    equation="Eqs. 16, 17",
    needs={Need.HEAD_GRADIENT, Need.BIAS_GRADIENT, Need.SAMPLE_COUNT, Need.MODEL},
    summary="Every client's head sees constants of its own, which makes the sum a linear system.",
    options={"batch_size", "input_shape"},
    sees="aggregate",
    server="malicious",
    sends=lambda model, clients, seed: [fishing_model(model, "vector", u, clients, seed) for u in range(clients)],
    prepares=True,
)
def prepare(
    models: Sequence[nn.Module], batch_size: int, input_shape: tuple[int, ...], *, force: bool = False, seed: int = 0
) -> Prepared:
    """Preset the fishing models, once for all rounds in which they are sent.

    What is read is of kind ``"gradient"``: the SUM of the U clients' mean gradients, ``samples`` = U B. It gives every
    client's counts ``[U, n]`` (Eqs. 16 and 17), not negative; a client's need not sum to B. Raises `WithheldParameter`
    when an aggregate is read: if the gradient of the head's weights or bias is not there; `ValueError` if the head has
    no bias, dropout is active, there are more than m + 1 clients, or the system is singular and `force` is not set; for
    an aggregate that is not what is said above.

    Parameters
    ----------
    models
        The fishing models in the order of the clients.
    batch_size
        B, which the server prescribes.
    input_shape, seed
        ``(C, H, W)`` of the random images with which the server presets embeddings and logits, and their seed.
    force
        Go on although the system is singular, with the solution of least norm.
    """
    if batch_size < 1 or not models:
        raise ValueError(f"one client and one sample at least, got {len(models)} and {batch_size}")
    first, clients = models[0], len(models)
    last = head_with_bias(first)
    if any(head(m).layer.weight.shape != last.layer.weight.shape for m in models):
        raise ValueError("the fishing models differ in more than one layer: their heads are of different shapes")
    if clients > last.layer.in_features + 1:
        raise ValueError(
            f"{clients} clients are more than the {last.layer.in_features} + 1 equations of a class can separate"
        )
    exact = preset(models, input_shape, seed=seed)
    if (conditioning := conditioning_of(exact.inputs)).rank < clients and not force:
        raise ValueError(
            f"the system is singular: rank {conditioning.rank} for U = {clients} clients, so that their gradients "
            "cannot be separated; choose another recipe, or pass force=True for the solution of least norm"
        )
    server = foresee(models, input_shape, seed, exact)

    def read(aggregate: Update) -> Tensor:
        if aggregate.kind != "gradient" or aggregate.steps != 1:
            raise ValueError("LIA-SA works under FedSGD: a gradient of one step, not a delta or several steps")
        if aggregate.samples != clients * batch_size:
            raise ValueError(
                f"the aggregate is of {aggregate.samples} samples, but {clients} models with batches of "
                f"{batch_size} make {clients * batch_size}"
            )
        gradients = head_gradient(aggregate, first), bias_gradient(aggregate, first)
        solution = disaggregate(server.inputs, *gradients)
        return counts(server.probabilities, solution, batch_size).round().clamp(min=0).long()

    return Prepared("LIA-SA", read)


recover = once(prepare)
