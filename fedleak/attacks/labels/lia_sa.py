"""LIA-SA (Wang et al. 2024): every client's label counts from the SUM of the clients' gradients.

A malicious server sends each client a fishing model: the weights of one layer are 0. Its output, and with it the head's
input e and logits y, then depend on that layer's bias alone, not on the data. The sum of the clients' head gradients is
thus a linear system in the clients' bias gradients (Eq. 16), which give the counts (Eq. 17).
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
"""Share of the largest singular value below which others count as 0: rounding of a deep network in float64."""


class Conditioning(NamedTuple):
    """Conditioning of the system of Eq. 16, in float64."""

    rank: int
    """Numerical rank of the system's matrix, ``[m + 1, U]``."""
    condition: float
    """Ratio of the largest to the smallest singular value; infinite if U > m + 1."""
    clients: int
    """Number of clients, U."""


def system(embeddings: Tensor) -> Tensor:
    """Return the matrix of Eq. 16, ``[m + 1, U]``: a row of ones above the embeddings ``[U, m]``."""
    return torch.cat([torch.ones_like(embeddings[:, :1]), embeddings], dim=1).T


def conditioning_of(embeddings: Tensor) -> Conditioning:
    """Return rank and condition number of the system with these embeddings ``[U, m]``."""
    matrix = system(embeddings.double())
    values = torch.linalg.svdvals(matrix)
    rank = int((values > values[0] * RANK_TOLERANCE).sum())
    smallest = values[-1].item() if matrix.shape[1] <= matrix.shape[0] else 0.0
    return Conditioning(rank, values[0].item() / smallest if smallest > 0 else math.inf, len(embeddings))


def conditioning(models: Sequence[nn.Module], shape: tuple[int, ...] | None = None) -> Conditioning:
    """Return rank and condition number of these fishing models' system; `shape` is that of one input, if needed."""
    return conditioning_of(preset(models, input_shape(models[0], shape)).inputs)


def disaggregate(embeddings: Tensor, weight_gradient: Tensor, bias_gradient: Tensor) -> Tensor:
    """Solve Eq. 16 for each client's bias gradient, ``[U, n]``, with one factorisation for all classes.

    Embeddings are ``[U, m]``, float64; the head's gradients ``[n, m]`` and ``[n]`` are summed over the clients. If the
    system is singular, the solution is that of least norm. (The paper solves n systems.)
    """
    right_side = torch.cat([bias_gradient[None], weight_gradient.T])
    driver = "gelsd" if right_side.device.type == "cpu" else None  # gives the solution of least norm
    return torch.linalg.lstsq(system(embeddings), right_side, driver=driver).solution


def counts(probabilities: Tensor, bias_gradients: Tensor, batch_size: int) -> Tensor:
    """Compute Eq. 17's counts before rounding, ``B (p - grad b)``, ``[U, n]``."""
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
    """Prepare LIA-SA: compute embeddings and logits of the fishing models, once for all rounds.

    ``recover(aggregate)`` takes the SUM of the U clients' mean gradients, of kind ``"gradient"`` and with ``samples`` =
    U B. It returns counts per client, ``[U, n]`` (Eqs. 16 and 17), not negative; a client's need not sum to B. Active
    dropout, by which the clients' embeddings are random, is a violated assumption.

    Parameters
    ----------
    models
        The fishing models in the order of the clients.
    batch_size
        Batch size B that the server prescribes.
    input_shape, seed
        Shape ``(C, H, W)`` of the random images with which the server computes embeddings and logits; their seed.
    force
        Whether to accept a singular system and return the solution of least norm.

    Raises
    ------
    ValueError
        The head has no bias, there are more than m + 1 clients, or the system is singular and not
        `force`; in ``recover``: an aggregate of another kind or size.
    WithheldParameter
        In ``recover``: the gradient of the head's weights or bias is missing.
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
    exact_pass = preset(models, input_shape, seed=seed)
    if (conditioning := conditioning_of(exact_pass.inputs)).rank < clients and not force:
        raise ValueError(
            f"the system is singular: rank {conditioning.rank} for U = {clients} clients, so that their gradients "
            "cannot be separated; choose another recipe, or pass force=True for the solution of least norm"
        )
    server_pass = foresee(models, input_shape, seed, exact_pass)

    def read(aggregate: Update) -> Tensor:
        if aggregate.kind != "gradient" or aggregate.steps != 1:
            raise ValueError("LIA-SA works under FedSGD: a gradient of one step, not a delta or several steps")
        if aggregate.samples != clients * batch_size:
            raise ValueError(
                f"the aggregate is of {aggregate.samples} samples, but {clients} models with batches of "
                f"{batch_size} make {clients * batch_size}"
            )
        gradients = head_gradient(aggregate, first), bias_gradient(aggregate, first)
        solution = disaggregate(server_pass.inputs, *gradients)
        return counts(server_pass.probabilities, solution, batch_size).round().clamp(min=0).long()

    return Prepared("LIA-SA", read)


recover = once(prepare)
