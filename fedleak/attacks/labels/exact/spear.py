"""SPEAR (Dimitrov et al., NeurIPS 2024) as a label attack: small batches are split into their samples, exactly.

A fully connected layer with a ReLU behind it has the gradient ``sum_i delta_i x_i^T`` of rank B, and delta_i is 0 where
sample i does not pass the ReLU. Among all vectors in the column space the delta_i have unusually many zeros. They
give the inputs x_i; the layers above then give each sample's probabilities, and the head's gradient its label.

This implementation follows the paper's description: proposals are the directions that vanish at B - 1 random
rows; the independent ones with the most zeros are chosen; the bias gradient gives their scales; and the samples have
to pass the layer's ReLU where the gradients say so. We add the labels, the singular values as a measure of rounding
noise, and a refit of every proposal to all of its zeros.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.exact.splitting import choose_sparsest, draw_proposals, find_column_space, is_zero
from fedleak.attacks.labels.inputs import head_gradient
from fedleak.attacks.registry import Need, attack
from fedleak.federated import Update
from fedleak.federated.update import fitting
from fedleak.models import Link, chain

MAX_SAMPLES = 16
"""Most samples of a batch: each further sample doubles the number of draws that are needed."""
MAX_DRAWS, DRAWS_AT_ONCE, MAX_OUTPUTS = 2**18, 2**13, 512
"""Most draws; draws that are computed at once; most outputs of the layer, of which a wider one uses random ones."""
MIN_AGREEMENT = 0.99
"""Smallest share of fitting gates, and smallest cosine of a sample's output gradients, in an accepted splitting."""


def check_split(
    deltas: Tensor, gradient: Tensor, links: tuple[Link, ...], rows: Tensor, head_weight_gradient: Tensor
) -> tuple[float, Tensor]:
    """Return how well a splitting fits, as for `MIN_AGREEMENT`, and the labels ``[B]`` that follow from it.

    `deltas` are the samples' gradients of the layer's outputs with the indices `rows`, ``[B, m]`` and ``[m]``, and
    `gradient` that of these outputs' weights, ``[m, d]``; `links` are the layer and those above it.
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
    solution = torch.linalg.lstsq(x.T, head_weight_gradient.T).solution
    labels = solution.argmin(1)
    expected = outputs.softmax(1) - nn.functional.one_hot(labels, outputs.shape[1])
    cosines = nn.functional.cosine_similarity(solution, expected, dim=1)
    return min(gates, float(cosines.min())), labels


class SplitLayer(NamedTuple):
    """A layer below the head, with a bias and a ReLU, whose gradient is split into samples."""

    links: tuple[Link, ...]
    """The layer, and those above it."""
    gradient: Tensor
    """Mean gradient of the layer's weights, ``[m, d]``, in double precision."""
    bias: Tensor
    """Mean gradient of the layer's bias, ``[m]``, in double precision."""


def find_widest_layer(update: Update, model: nn.Module) -> SplitLayer:
    """Return the widest of the fully connected layers with bias and ReLU at the model's end.

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
    bias_name = name.removesuffix("weight") + "bias"
    return SplitLayer(links[start:], gradient, fitting(update.gradient(bias_name).double(), bias_name, layer.bias))


def split(
    layer: SplitLayer, head_weight_gradient: Tensor, samples: int, seed: int = 0, max_draws: int = MAX_DRAWS
) -> tuple[Tensor, Tensor]:
    """Split a layer's gradient into its samples: their inputs ``[B, d]`` and labels ``[B]``.

    Raises `ValueError` as `recover` does.
    """
    links, gradient, bias = layer
    first_bias = links[0].layer.bias
    assert first_bias is not None
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(bias), generator=generator)[:MAX_OUTPUTS].to(bias.device)
    gradient, bias = gradient[rows], bias[rows]
    space = find_column_space(gradient, samples, generator)
    mean_input = gradient.T @ bias / (bias @ bias).clamp(min=1e-300)
    activity = unit_outputs = links[0].matrix()[rows] @ mean_input + first_bias.detach().double()[rows]
    directions, drawn, count = space.basis.new_zeros(0, samples), 0, 256
    while drawn < max_draws:
        proposals = draw_proposals(space, activity, count, generator)
        directions = choose_sparsest(torch.cat([directions, proposals]), space)
        drawn, count = drawn + count, min(2 * count, DRAWS_AT_ONCE)
        # the next activity: alternately the units' outputs for a mean input, and how rarely they were zero so far
        rarity_of_zeros = -is_zero(directions @ space.basis.T, space.noise).double().mean(0)
        activity = rarity_of_zeros if activity is unit_outputs else unit_outputs
        if len(directions) == samples:
            vectors = directions @ space.basis.T
            vectors = vectors.where(~is_zero(vectors, space.noise), 0)
            deltas = vectors * torch.linalg.lstsq(vectors.T, bias[:, None]).solution
            agreement, labels = check_split(deltas, gradient, links, rows, head_weight_gradient)
            if agreement > MIN_AGREEMENT:
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

    The widest of the fully connected layers with bias and ReLU at the model's end is split.
    `seed` is that of the draws.

    Raises
    ------
    ValueError
        Several local steps, more samples, a model without such a layer, gradients that are NaN, infinite or another
        model's, samples with next to no gradient of their own, or no splitting that fits.
    WithheldParameter
        The gradient of the head's weights or of that layer is not shared.
    """
    if update.steps != 1 or update.samples > MAX_SAMPLES:
        raise ValueError(
            f"SPEAR splits one step of at most {MAX_SAMPLES} samples, "
            f"got {update.steps} steps, {update.samples} samples"
        )
    head_weight_gradient = head_gradient(update, model)
    _, labels = split(find_widest_layer(update, model), head_weight_gradient, update.samples, seed)
    return labels.bincount(minlength=len(head_weight_gradient))
