"""SPEAR (Dimitrov et al., NeurIPS 2024) as a label attack: small batches are split into their samples, exactly.

A fully connected layer with a ReLU behind it has the gradient ``sum_i delta_i x_i^T`` of rank B, and delta_i is 0 where
sample i does not pass the ReLU. Among all vectors in the column space the delta_i have unusually many zeros. They
give the inputs x_i; the layers above then give every sample's probabilities, and the head's gradient its label.

This implementation follows the paper's description: proposals are the directions that vanish at B - 1 random
rows; the sparsest independent ones with many zeros are taken; the bias gradient gives their scales; and the samples
have to pass its own ReLU where the gradients say so. Labels are our addition, and so are the singular
values as a measure of rounding noise and a refit of every proposal to all of its zeros.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.inputs import head_gradient
from fedleak.attacks.labels.splitting import columns, proposals, sparsest, zeros
from fedleak.attacks.registry import Need, attack
from fedleak.federated import Update
from fedleak.federated.update import fitting
from fedleak.models import Link, chain

MOST = 16
"""Samples of a batch at most: the draws that are needed double with each."""
DRAWS, AT_ONCE, WIDEST = 2**18, 2**13, 512
"""Largest number of draws, draws per piece, and random outputs that are examined in wider layers."""
AGREEMENT = 0.99
"""A splitting is right if this share of the layer's gates, and each sample's cosine of output gradients, fits."""


def agreement_and_labels(
    deltas: Tensor, gradient: Tensor, links: tuple[Link, ...], rows: Tensor, of_head: Tensor
) -> tuple[float, Tensor]:
    """Follow a splitting up to the labels ``[B]``, and say how well it fits: see `AGREEMENT`.

    `deltas` are the samples' gradients of those outputs of a layer that are its `rows`, ``[B, m]`` and ``[m]``;
    `links` that layer and those above it; `gradient` and `of_head` the gradients of its weights there and the head's.
    """
    x = torch.linalg.lstsq(deltas.T, gradient).solution
    gates = 1.0
    for number, link in enumerate(links):
        outputs = link.outputs(x)
        if number == 0:
            live = gradient.abs().amax(1) > 0
            gates = float(((outputs[:, rows] > 0) == (deltas != 0))[:, live].double().mean())
        if link is not links[-1]:
            x = outputs.relu() if link.relu else outputs
    solution = torch.linalg.lstsq(x.T, of_head.T).solution
    labels = solution.argmin(1)
    expected = outputs.softmax(1) - nn.functional.one_hot(labels, outputs.shape[1])
    cosines = nn.functional.cosine_similarity(solution, expected, dim=1)
    return min(gates, float(cosines.min())), labels


class Layer(NamedTuple):
    """A layer that is split into its samples: with a bias and a ReLU, below the head."""

    links: tuple[Link, ...]
    """It, and those above it."""
    gradient: Tensor
    """Mean gradient of its weights, ``[m, d]``, and of its bias, ``[m]``, in double precision."""
    bias: Tensor


def widest(update: Update, model: nn.Module) -> Layer:
    """Return, of the fully connected layers with bias and ReLU at the model's end, the one with the most outputs.

    Raises `WithheldParameter` if its gradient is not shared; `ValueError` if there is none, or its gradient is another
    model's, NaN or infinite.
    """
    links = chain(model).links
    fit = [k for k, link in enumerate(links[:-1]) if link.relu and link.layer.bias is not None]
    if not fit:
        raise ValueError("SPEAR needs a fully connected layer with a bias and a ReLU below the head, and there is none")
    start = max(fit, key=lambda k: (links[k].matrix().shape[0], -links[k].matrix().shape[1]))
    layer, name = links[start].layer, links[start].weight
    assert layer.bias is not None
    gradient = fitting(update.gradient(name).double(), name, layer.weight).flatten(1)
    of_bias = name.removesuffix("weight") + "bias"
    return Layer(links[start:], gradient, fitting(update.gradient(of_bias).double(), of_bias, layer.bias))


def split(layer: Layer, of_head: Tensor, samples: int, seed: int = 0, most: int = DRAWS) -> tuple[Tensor, Tensor]:
    """Split a layer's gradient into its samples: their inputs ``[B, d]`` and labels ``[B]``.

    `of_head` is the gradient of the head's weights, `most` how many draws there are at most. Raises `ValueError` as
    `recover` does.
    """
    links, gradient, bias = layer
    first_bias = links[0].layer.bias
    assert first_bias is not None
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(bias), generator=generator)[:WIDEST].to(bias.device)
    gradient, bias = gradient[rows], bias[rows]
    space = columns(gradient, samples, generator)
    mean_input = gradient.T @ bias / (bias @ bias).clamp(min=1e-300)
    leans = [links[0].matrix()[rows] @ mean_input + first_bias.detach().double()[rows]] * 2
    directions, drawn, count = space.basis.new_zeros(0, samples), 0, 256
    while drawn < most:
        directions = sparsest(torch.cat([directions, proposals(space, leans[0], count, generator)]), space)
        drawn, count = drawn + count, min(2 * count, AT_ONCE)
        seldom = -zeros(directions @ space.basis.T, space.noise).double().mean(0)
        leans = [seldom, leans[1]] if leans[0] is leans[1] else [leans[1]] * 2  # every other time by what was found
        if len(directions) == samples:
            vectors = directions @ space.basis.T
            vectors = vectors.where(~zeros(vectors, space.noise), 0)
            deltas = vectors * torch.linalg.lstsq(vectors.T, bias[:, None]).solution
            agreement, labels = agreement_and_labels(deltas, gradient, links, rows, of_head)
            if agreement > AGREEMENT:
                return torch.linalg.lstsq(deltas.T, gradient).solution, labels
    raise ValueError(f"no splitting into {samples} samples fits after {drawn} draws of directions")


@attack(
    "after SPEAR",
    paper="dimitrov2024spear",
    needs={Need.HEAD_GRADIENT, Need.BELOW_HEAD_GRADIENT, Need.SAMPLE_COUNT, Need.MODEL},
    summary="Splits the gradient of a layer with a ReLU into its samples by their zeros; each label follows.",
)
def recover(update: Update, model: nn.Module, *, seed: int = 0) -> Tensor:
    """Recover the counts ``[n]`` of a batch of up to 16 samples, exactly or not at all; they sum to ``update.samples``.

    Of the fully connected layers with bias and ReLU at the model's end, the one with the most outputs is split. `seed`
    is that of the draws. Raises `WithheldParameter` if the gradient of the head's weights or of that layer is not
    shared; `ValueError` for several local steps or more samples; a model without such a layer; NaN, infinite or other
    models' gradients; a batch in which samples have next to no gradient of their own; or if no splitting was found that
    fits.
    """
    if update.steps != 1 or update.samples > MOST:
        raise ValueError(
            f"SPEAR splits one step of at most {MOST} samples, got {update.steps} steps, {update.samples} samples"
        )
    of_head = head_gradient(update, model)
    _, labels = split(widest(update, model), of_head, update.samples, seed)
    return labels.bincount(minlength=len(of_head))
