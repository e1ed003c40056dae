"""Contradictions between an update's last layer and its stated origin, checked for every label attack."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedleak.federated import Update
from fedleak.federated.update import unwrapped
from fedleak.models import Head, head, head_inputs

SUM = (
    "the rows of the last layer's gradient do not sum to 0, as those of a softmax cross-entropy do: the clients have "
    "another loss (one sigmoid per class), the update was changed on its way, or it is a state and no difference"
)
SCALE = (
    "the last bias' gradient is larger than that of any mean over samples: the loss is a sum or scaled, the local "
    "steps were not divided out, the learning rate is another, or the update is a state and no difference"
)
SIGN = (
    "more classes have a negative gradient than the update has samples: its sign is turned (start minus end), or the "
    "number of samples is another"
)
STATE = (
    "the update is next to equal to the model's own weights (or to these, negative): it is a state, not the difference "
    "between two, or a difference was passed for a state"
)
SHARE = 0.02
"""By how much sums may be off, as a share of their terms."""
SMOOTHED = 0.2
"""The most label smoothing that a client is believed to train with: the gradient of a class without samples is at
least minus this, divided by the number of classes, times the mean input."""
LARGER = 1000.0
"""Largest ratio of a client's last-layer inputs to made-up ones."""


class _LastLayer(NamedTuple):
    weight: Tensor | None
    bias: Tensor | None
    weight_noise: float
    bias_noise: float
    inputs: Tensor | None
    """Inputs of the layer for made-up samples, ``[2, m]``; None if they are unknown."""


def contradictions(update: Update, model: nn.Module, scheme: Any = None) -> tuple[str, ...]:
    """Return the contradictions of an update's last layer with a mean cross-entropy; empty without any.

    What is too small contradicts nothing: a model that fits its samples well has such gradients. Class weights and
    label smoothing contradict nothing either.

    Parameters
    ----------
    update, model
        The update, and the model before it.
    scheme
        Training scheme of the client, if it is known; momentum makes the change larger.
    """
    try:
        update = update.replace(unwrapped(update.tensors, model))
        if _is_state(update, model):
            return (STATE,)
        last_layer = _seen(update, model, head(model), scheme)
    except (ValueError, RuntimeError):
        return ()  # the attack itself says what is wrong
    checks = (
        (SUM, _unbalanced(last_layer)),
        (SCALE, _too_large(last_layer)),
        (SIGN, _raised(last_layer) > update.samples),
    )
    return tuple(reason for reason, is_so in checks if is_so)


def _is_state(update: Update, model: nn.Module) -> bool:
    """Return whether an update nearly equals the model's parameters, of which it has enough for a comparison."""
    pairs = [
        (update.tensors[k].float().flatten(), p.detach().float().flatten())
        for k, p in model.named_parameters()
        if k in update.tensors
    ]
    if sum(p.numel() for _, p in pairs) < 50:
        return False
    size, length, common = (sum(float(a.dot(b)) for a, b in products) for products in _products(pairs))
    return size > 0 and length + size - 2 * abs(common) < size / 4  # |t - p|² or |t + p|², the smaller


def _products(pairs: list[tuple[Tensor, Tensor]]) -> tuple[list[tuple[Tensor, Tensor]], ...]:
    return [(p, p) for _, p in pairs], [(t, t) for t, _ in pairs], pairs


def _seen(update: Update, model: nn.Module, last: Head, scheme: Any) -> _LastLayer:
    larger = 1.0 if scheme is None or update.kind == "gradient" else float(scheme.weights().mean())
    gradients: list[Tensor | None] = []
    noise: list[float] = []
    for name, p in ((last.weight, last.layer.weight), (last.bias, last.layer.bias)):
        given = update.tensors.get(name) if p is not None else None
        usable = (
            given is not None and given.shape == p.shape and bool(given.any()) and bool(torch.isfinite(given).all())
        )
        usable = usable and not (last.tied and name == last.weight)  # another layer's gradient is in it
        gradients.append(update.gradient(name).double() / larger if usable else None)
        noise.append(_rounding(update, p, given) / larger if usable and given is not None and p is not None else 0.0)
    return _LastLayer(gradients[0], gradients[1], noise[0], noise[1], head_inputs(model))


def _unbalanced(last_layer: _LastLayer) -> bool:
    eps = torch.finfo(torch.float32).eps
    if last_layer.bias is not None:
        bound = SHARE * last_layer.bias.norm() * len(last_layer.bias) ** 0.5 + 4 * len(last_layer.bias) * (
            last_layer.bias_noise + eps
        )
        return bool(last_layer.bias.sum().abs() > bound)
    if last_layer.weight is None:
        return False
    n, m = last_layer.weight.shape
    size = m**0.5 if last_layer.inputs is None else float(last_layer.inputs.norm(dim=1).mean())
    bound = SHARE * last_layer.weight.norm() * n**0.5 + 4 * n * (last_layer.weight_noise * m**0.5 + eps * size)
    return bool(last_layer.weight.sum(0).norm() > bound)


def _too_large(last_layer: _LastLayer) -> bool:
    if last_layer.bias is not None:
        most = last_layer.bias.clamp(max=0).sum().abs().maximum(last_layer.bias.clamp(min=0).sum())
        return bool(most > 1 + SHARE + 4 * len(last_layer.bias) * last_layer.bias_noise)
    if last_layer.weight is None or last_layer.inputs is None:
        return False
    return bool(
        last_layer.weight.clamp(max=0).sum().abs() > LARGER * last_layer.inputs.abs().sum(1).mean().clamp(min=1e-3)
    )


def _raised(last_layer: _LastLayer) -> int:
    """Count the classes that the update raises; an honest update raises none without samples.

    By the bias, and behind a ReLU by every entry of a row.
    """
    of_bias = of_rows = 0
    if last_layer.bias is not None:
        of_bias = int((last_layer.bias < -SMOOTHED / len(last_layer.bias) - 4 * last_layer.bias_noise).sum())
    if last_layer.weight is not None and last_layer.inputs is not None and float(last_layer.inputs.min()) >= 0:
        mean = last_layer.inputs.abs().double().mean(0)
        if last_layer.bias is not None:  # the gradient tells what inputs it was made of
            mean = (last_layer.weight.T @ last_layer.bias / (last_layer.bias @ last_layer.bias)).abs()
        least = SMOOTHED / len(last_layer.weight) * mean.clamp(min=float(mean.mean())) + 4 * last_layer.weight_noise
        of_rows = int((last_layer.weight < -least).any(1).sum())
    return max(of_bias, of_rows)


def _rounding(update: Update, parameter: Tensor, given: Tensor) -> float:
    """Return the rounding error of an entry; a change of weights has that of the weights."""
    eps = max(torch.finfo(parameter.dtype).eps, torch.finfo(given.dtype).eps)
    if update.kind == "gradient" or update.lr is None:
        return eps * float(given.abs().max()) / update.steps
    return eps * float(parameter.detach().abs().max()) / update.lr
