"""AGIC (Xu et al., SRDS 2022): FedAvg updates as one batch, layer weights, and several epochs' updates together."""

import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Literal, Unpack

import torch
from torch import Tensor, nn

from fedleak.attacks.images.engine import invert
from fedleak.attacks.images.invg import INVG, ITERATIONS, inversion, labelled
from fedleak.attacks.images.objective import LayerWeights, View
from fedleak.attacks.images.problem import Descent, Inversion, Options, Start
from fedleak.federated import Update, fedavg
from fedleak.models import input_shape

AGIC = dataclasses.replace(INVG, name="AGIC")
"""InvG's descent: in the paper's Table IV "only layer weights" make the difference."""
BETA = 50.0
"""For untrained networks; 2 for trained ones (Sec. V-A)."""
GAMMAS = (1.0, 0.1)
"""Weight of the first epoch's updates, and of all later ones (Sec. V-A)."""
TOLERATED = 0.1
"""Relative error of the one-batch approximation above which `reconstruct` warns."""

Shape = Literal["none", "linear", "log", "exp"]
_SHAPES: dict[str, Callable[[float, int], float]] = {
    "linear": lambda i, n: (i - 1) / (n - 1),
    "log": lambda i, n: math.log(i) / math.log(n),
    # a e^x + b, in a form that does not overflow
    "exp": lambda i, n: (math.exp(i - n) - math.exp(1 - n)) / (1 - math.exp(1 - n)),
}


def layer_function(shape: Shape, convolutions: int, beta: float) -> list[float]:
    """Return l_1 … l_N, from 1 at the first convolution to `beta` at the last (Table I; Eq. 7 if linear).

    Raises `ValueError` for an unknown shape or a `beta` that is not positive.
    """
    if not beta > 0:
        raise ValueError(f"beta is positive, got {beta}")
    if shape == "none" or convolutions == 1:
        return [1.0] * convolutions
    if shape not in _SHAPES:
        raise ValueError(f"unknown layer function {shape!r}; known: none, {', '.join(_SHAPES)}")
    return [1 + (beta - 1) * _SHAPES[shape](i, convolutions) for i in range(1, convolutions + 1)]


def layer_weights(
    beta: float = BETA,
    shape: Shape = "linear",
    *,
    relu: bool = True,
    norms: Literal["convolution", "one"] = "convolution",
) -> LayerWeights:
    """Return the rule for the layers' weights alpha (Eqs. 7 and 8).

    Raises `ValueError` when the rule is used, if the model has no convolution.

    Parameters
    ----------
    beta, shape
        See `layer_function`.
    relu
        Multiply a convolution's weight by 1 / (1 - p), p being the share of exact zeros in its gradient.
    norms
        The paper does not name batch norm: its parameters get their convolution's weight, or 1.
    """

    def weigh(update: Update, model: nn.Module) -> dict[str, float]:
        names = [n for n, m in model.named_modules() if isinstance(m, nn.Conv2d)]
        if not names:
            raise ValueError(f"{type(model).__name__} has no convolutions, which the layer weights are assigned to")
        linear = dict(zip(names, layer_function(shape, len(names), beta), strict=True))
        weights: dict[str, float] = {}
        current = linear[names[0]]
        for parameter, _ in model.named_parameters():
            layer, _, own = parameter.rpartition(".")
            if layer in linear and own == "weight":
                zeros = float((update.gradient(parameter) == 0).double().mean()) if relu else 0.0
                current = linear[layer] / (1 - zeros) if zeros < 1 else linear[layer]
            if isinstance(model.get_submodule(layer), nn.Linear):
                weights[parameter] = sum(linear.values()) / len(linear)
            else:
                weights[parameter] = current if layer in linear or norms == "convolution" else 1.0
        return weights

    return weigh


def one_batch_error(update: Update, model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return how far the update's mean gradient is from that of one large batch, relative to the latter (Eq. 4).

    The update is FedAvg's, from this model, on the batches x ``[steps, B, C, H, W]`` and y ``[steps, B]``.
    """
    whole = fedavg(model, x.flatten(0, 1)[None], y.flatten()[None], lr=1.0).tensors
    gap = sum(((update.gradient(n) - g) ** 2).sum().double() for n, g in whole.items())
    return math.sqrt(gap / sum((g**2).sum().double() for g in whole.values()))


def expected_error(update: Update, model: nn.Module, labels: Tensor, seed: int = 0) -> float:
    """Return the one-batch error that the attacker can measure: on noise images with the labels ``[samples]``."""
    if update.steps == 1:
        return 0.0
    like = next(model.parameters())
    generator = torch.Generator().manual_seed(seed)
    batch = update.samples // update.steps  # a smaller last batch is left out of this estimate
    shape = (update.steps, batch, *input_shape(model))
    x = torch.rand(shape, generator=generator).to(like)
    order = torch.randperm(len(labels), generator=generator)
    y = labels.to(like.device)[order[: update.steps * batch].to(like.device)].view(shape[:2])
    return one_batch_error(fedavg(model, x, y, update.lr or 1.0, "delta"), model, x, y)


def invert_many(
    rounds: Sequence[Sequence[Update]],
    models: Sequence[nn.Module],
    labels: Sequence[Tensor],
    *,
    index: Sequence[Sequence[int] | None] | None = None,
    gammas: Sequence[float] | None = None,
    weights: LayerWeights | None = None,
    descent: Descent = AGIC,
    **options: Unpack[Options],
) -> Inversion:
    """Reconstruct N batches at once from their updates in one or more rounds (Eqs. 5 and 6).

    Raises `ValueError` for rounds, models and labels that do not go together, a model without convolutions, or models
    of different kinds.

    Parameters
    ----------
    rounds, models, labels
        For every round (epoch) N updates, the n-th of each having samples in common, the model before it, and labels
        ``[N, samples]``.
    index
        For every round, which of the dummy images each sample is; by default the same ones in all.
    gammas, weights
        Weights of the rounds, by default 1 and then 0.1; alpha, by default `layer_weights()`, for an untrained network.
    descent, **options
        As for `fedleak.attacks.images.invg.invert_many`.
    """
    if not len(rounds) == len(models) == len(labels):
        raise ValueError(
            f"{len(rounds)} rounds, {len(models)} models and {len(labels)} sets of labels do not go together"
        )
    gammas = gammas or [GAMMAS[min(k, 1)] for k in range(len(rounds))]
    weights = weights or layer_weights()
    views = [
        View(u, m, y, i, epoch_weight=g, layer_weights=weights)
        for u, m, y, i, g in zip(rounds, models, labels, index or [None] * len(rounds), gammas, strict=True)
    ]
    return invert(views, descent, **options)


@inversion(
    "AGIC",
    paper="xu2022agic",
    equation="Eqs. 4-8",
    summary="A FedAvg update is inverted as the gradient of one batch, later convolutions counting more.",
)
def reconstruct(
    updates: Update | Sequence[Update],
    model: nn.Module,
    *,
    labels: Tensor | None = None,
    rule: str = "GI",
    beta: float = BETA,
    iterations: int = ITERATIONS,
    **options: Unpack[Start],
) -> Tensor:
    """Reconstruct ``[samples, C, H, W]`` in [0, 1], or ``[N, samples, C, H, W]`` from several independent updates.

    Raises `WithheldParameter` or `ValueError` as for `fedleak.attacks.images.invg.reconstruct`, and for a model without
    convolutions.

    Parameters
    ----------
    updates, model, labels, iterations
        As for `fedleak.attacks.images.invg.reconstruct`, but the labels are in any order, of FedAvg too.
    rule
        The label attack that infers them; GI, as in the paper, never repeats a label.
    beta
        Weight of the last convolution.
    **options
        Of `invert_many`.

    Warns
    -----
    UserWarning
        If the one-batch approximation is off by more than a tenth at this learning rate, with the measured error.
    """
    many, found = labelled(updates, model, labels, rule)
    error = expected_error(many[0], model, found[0])
    if error > TOLERATED:
        warnings.warn(
            f"{many[0].steps} local steps with learning rate {many[0].lr:g}: on noise images the one-batch "
            f"approximation is off by {100 * error:.0f} % of the gradient, which is more than AGIC is made for (Eq. 4)",
            stacklevel=2,
        )
    weights = layer_weights(beta)
    images = invert_many([many], [model], [found], weights=weights, iterations=iterations, **options).images
    return images[0] if isinstance(updates, Update) else images


def similarity(first: Tensor, second: Tensor, pooling: int = 2) -> Tensor:
    """Return the mean squared error of all pairs of images ``[K, L]``, after average pooling (1: none; Sec. IV-B)."""
    pooled = [nn.functional.avg_pool2d(x, pooling).flatten(1) for x in (first, second)]
    return torch.cdist(pooled[0], pooled[1]).square() / pooled[0].shape[1]


def greedy_pairs(errors: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Map one-to-one from the smallest error ``[K, K]`` to the largest (Sec. IV-B, step 1).

    Every image of the first epoch gets a partner in the second, ``[K]``. `allowed` are the pairs that share a label,
    ``[K, K]``, by default all; what is left when no allowed pair is, is matched without. Raises `ValueError` if the
    epochs do not hold equally many images.
    """
    if errors.shape[0] != errors.shape[1]:
        raise ValueError(f"the epochs hold {errors.shape[0]} and {errors.shape[1]} images: no one-to-one mapping")
    order = errors.cpu().flatten().argsort(stable=True)
    if allowed is not None:  # these first
        order = order[allowed.cpu().flatten()[order].logical_not().int().argsort(stable=True)]
    partner: dict[int, int] = {}
    for place in order.tolist():
        row, column = divmod(place, len(errors))
        if row not in partner and column not in partner.values():
            partner[row] = column
    return torch.tensor([partner[row] for row in range(len(errors))])


def share_a_label(first: Tensor, second: Tensor) -> Tensor:
    """Say which of the lists of labels ``[K, S]`` and ``[L, S]`` have one in common, ``[K, L]``."""
    return (first[:, None, :, None] == second[None, :, None, :]).flatten(2).any(2)
