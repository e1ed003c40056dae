"""AGIC (Xu et al., SRDS 2022): invert FedAvg updates as one batch, with weighted layers, over several epochs."""

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
"""InvG's optimisation; in the paper's Table IV "only layer weights" differ."""
BETA = 50.0
"""Weight of the last convolution, for untrained networks; the paper uses 2 for trained ones (Sec. V-A)."""
GAMMAS = (1.0, 0.1)
"""Weights of the first epoch's updates and of all later epochs' (Sec. V-A)."""
MAX_ONE_BATCH_ERROR = 0.1
"""Relative error of the one-batch approximation above which `reconstruct` warns."""

Shape = Literal["none", "linear", "log", "exp"]
_WEIGHT_SHAPES: dict[str, Callable[[float, int], float]] = {
    "linear": lambda i, n: (i - 1) / (n - 1),
    "log": lambda i, n: math.log(i) / math.log(n),
    # a e^x + b, written without overflow
    "exp": lambda i, n: (math.exp(i - n) - math.exp(1 - n)) / (1 - math.exp(1 - n)),
}


def layer_function(shape: Shape, convolutions: int, beta: float) -> list[float]:
    """Return the layers' factors l_1 … l_N, from 1 at the first convolution to `beta` at the last (Table I, Eq. 7).

    Raises `ValueError` for an unknown shape or a `beta` that is not positive.
    """
    if not beta > 0:
        raise ValueError(f"beta is positive, got {beta}")
    if shape == "none" or convolutions == 1:
        return [1.0] * convolutions
    if shape not in _WEIGHT_SHAPES:
        raise ValueError(f"unknown layer function {shape!r}; known: none, {', '.join(_WEIGHT_SHAPES)}")
    return [1 + (beta - 1) * _WEIGHT_SHAPES[shape](i, convolutions) for i in range(1, convolutions + 1)]


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
        Whether to multiply a convolution's weight by 1 / (1 - p), with p the share of exact zeros in its gradient.
    norms
        Weight of batch norm's parameters, which the paper does not mention: their convolution's weight, or 1.
    """

    def weigh(update: Update, model: nn.Module) -> dict[str, float]:
        names = [n for n, m in model.named_modules() if isinstance(m, nn.Conv2d)]
        if not names:
            raise ValueError(f"{type(model).__name__} has no convolutions, which the layer weights are assigned to")
        linear = dict(zip(names, layer_function(shape, len(names), beta), strict=True))
        weights: dict[str, float] = {}
        current = linear[names[0]]  # of layers before the first convolution, or of one whose gradient is not shared
        for parameter, _ in model.named_parameters():
            layer, _, kind = parameter.rpartition(".")
            if layer in linear and kind == "weight" and parameter in update.tensors:
                zeros = float((update.gradient(parameter) == 0).double().mean()) if relu else 0.0
                current = linear[layer] / (1 - zeros) if zeros < 1 else linear[layer]
            if isinstance(model.get_submodule(layer), nn.Linear):
                weights[parameter] = sum(linear.values()) / len(linear)
            else:
                weights[parameter] = current if layer in linear or norms == "convolution" else 1.0
        return weights

    return weigh


def one_batch_error(update: Update, model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the relative error of approximating a FedAvg update by the gradient of one large batch (Eq. 4).

    The update is that of the model on the batches x ``[steps, B, C, H, W]`` and y ``[steps, B]``.
    """
    one_batch_gradient = fedavg(model, x.flatten(0, 1)[None], y.flatten()[None], lr=1.0).tensors
    squared_error = sum(((update.gradient(n) - g) ** 2).sum().double() for n, g in one_batch_gradient.items())
    return math.sqrt(squared_error / sum((g**2).sum().double() for g in one_batch_gradient.values()))


def expected_error(
    update: Update, model: nn.Module, labels: Tensor, seed: int = 0, image_shape: tuple[int, ...] | None = None
) -> float:
    """Estimate the one-batch error as an attacker can: on noise images with the labels ``[samples]``.

    `image_shape` is that of one image, if it does not follow from the model. The error is 0 for one step, and for an
    update without a learning rate or a model without a trained parameter, of which it cannot be estimated.
    """
    reference = next(model.parameters())
    if update.steps == 1 or update.lr is None or not any(p.requires_grad for p in model.parameters()):
        return 0.0
    generator = torch.Generator().manual_seed(seed)
    batch = update.samples // update.steps  # without a smaller last batch
    shape = (update.steps, batch, *input_shape(model, image_shape))
    x = torch.rand(shape, generator=generator).to(reference)
    order = torch.randperm(len(labels), generator=generator)
    y = labels.to(reference.device)[order[: update.steps * batch].to(reference.device)].view(shape[:2])
    return one_batch_error(fedavg(model, x, y, update.lr, "delta"), model, x, y)


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
        Per round (epoch): N updates, of which the n-th has samples in common with the n-th of the other rounds; the
        model before the round; labels ``[N, samples]``.
    index
        Per round: the index of each sample among the dummy images; by default the same for all rounds.
    gammas, weights
        Weights of the rounds, by default 1 and then 0.1; rule for the layers' weights, by default `layer_weights()`.
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
    """Reconstruct ``[samples, C, H, W]``, or ``[N, samples, C, H, W]`` from several independent updates.

    Raises `WithheldParameter` or `ValueError` as for `fedleak.attacks.images.invg.reconstruct`, and for a model without
    convolutions.

    Parameters
    ----------
    updates, model, labels, iterations
        As for `fedleak.attacks.images.invg.reconstruct`, but with labels in any order, also under FedAvg.
    rule
        Name of the label attack that infers labels; GI, as in the paper, never repeats a label.
    beta
        Weight of the last convolution.
    **options
        Options of `invert_many`.

    Warns
    -----
    UserWarning
        The one-batch approximation has a relative error above 0.1 at this learning rate. Without one, as of gradients
        summed over several steps, this is not computed.
    """
    update_list, label_rows = labelled(updates, model, labels, rule)
    error = expected_error(update_list[0], model, label_rows[0], image_shape=options.get("shape"))
    if error > MAX_ONE_BATCH_ERROR:
        first = update_list[0]
        warnings.warn(
            f"{first.steps} local steps with learning rate {first.lr:g}: on noise images the one-batch "
            f"approximation is off by {100 * error:.0f} % of the gradient, which is more than AGIC is made for (Eq. 4)",
            stacklevel=2,
        )
    settings: Options = {**options, "iterations": iterations}
    images = invert_many([update_list], [model], [label_rows], weights=layer_weights(beta), **settings).answer()
    return images[0] if isinstance(updates, Update) else images


def similarity(first: Tensor, second: Tensor, pooling: int = 2) -> Tensor:
    """Return the mean squared error of all pairs of images, ``[K, L]``, after average pooling (1: none; Sec. IV-B)."""
    pooled = [nn.functional.avg_pool2d(x, pooling).flatten(1) for x in (first, second)]
    return torch.cdist(pooled[0], pooled[1]).square() / pooled[0].shape[1]


def greedy_pairs(errors: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Match the images of two epochs one-to-one, in the order of their errors ``[K, K]`` (Sec. IV-B, step 1).

    Returns the second epoch's partner of each image of the first, ``[K]``. `allowed` are the pairs that share a label,
    ``[K, K]``, by default all; images without an allowed partner are matched last. Raises `ValueError` if the epochs
    do not have equally many images.
    """
    if errors.shape[0] != errors.shape[1]:
        raise ValueError(f"the epochs hold {errors.shape[0]} and {errors.shape[1]} images: no one-to-one mapping")
    order = errors.cpu().flatten().argsort(stable=True)
    if allowed is not None:  # allowed pairs first
        order = order[allowed.cpu().flatten()[order].logical_not().int().argsort(stable=True)]
    partner: dict[int, int] = {}
    for position in order.tolist():
        row, column = divmod(position, len(errors))
        if row not in partner and column not in partner.values():
            partner[row] = column
    return torch.tensor([partner[row] for row in range(len(errors))])


def share_a_label(first: Tensor, second: Tensor) -> Tensor:
    """Return which pairs of label lists ``[K, S]`` and ``[L, S]`` have a label in common, ``[K, L]``."""
    return (first[:, None, :, None] == second[None, :, None, :]).flatten(2).any(2)
