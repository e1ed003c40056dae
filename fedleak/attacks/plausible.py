"""Check an update's last layer for contradictions to its stated origin, before each label attack."""

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
UNCHECKED = (
    "not checked: whether scale and sign of the update are possible, since the bias' gradient is not shared and the "
    "model takes no input that is made up for it (note one input's shape, model.input_shape)"
)
ONE_SIGN, MIXED_SIGNS = 0.9, 0.75
"""Share of the entries of a row with one sign above which inputs are not negative, and below which they are mixed."""
MAX_DEVIATION = 0.02
"""Largest deviation of sums, as a share of their terms."""
MAX_SMOOTHING = 0.2
"""Largest label smoothing that counts as plausible: the gradient of a class without samples is at least minus this,
divided by the number of classes, times the mean input."""
MAX_INPUT_RATIO = 1000.0
"""Largest plausible ratio of a client's last-layer inputs to made-up ones."""


class _LastLayer(NamedTuple):
    weight: Tensor | None
    bias: Tensor | None
    weight_noise: float
    bias_noise: float
    inputs: Tensor | None
    """Inputs of the layer for made-up samples, ``[2, m]``; None if they are unknown."""


class Examination(NamedTuple):
    """The contradictions of an update, and what could not be checked."""

    contradictions: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


def contradictions(update: Update, model: nn.Module, scheme: Any = None) -> tuple[str, ...]:
    """Return the contradictions that `examine` finds."""
    return examine(update, model, scheme).contradictions


def examine(update: Update, model: nn.Module, scheme: Any = None) -> Examination:
    """Return the contradictions of an update's last layer with a mean cross-entropy, and what is not checked.

    Small gradients are no contradiction, as a model that fits its samples well has them. Class weights and label
    smoothing are none either.

    Parameters
    ----------
    update, model
        The update, and the model before it.
    scheme
        Training scheme of the client, if it is known: momentum increases the update.
    """
    try:
        update = update.replace(unwrapped(update.tensors, model))
        if _is_state(update, model):
            return Examination((STATE,))
        last_layer = _read_last_layer(update, model, head(model), scheme)
    except (ValueError, RuntimeError):
        return Examination()  # the attack itself raises
    checks = (
        (SUM, _is_unbalanced(last_layer)),
        (SCALE, _is_too_large(last_layer)),
        (SIGN, _count_raised_classes(last_layer) > update.samples),
    )
    is_unchecked = last_layer.bias is None and last_layer.weight is not None and last_layer.inputs is None
    unchecked = (UNCHECKED,) if is_unchecked else ()
    return Examination(tuple(reason for reason, holds in checks if holds), unchecked)


def majority_of_signs(gradient: Tensor) -> float:
    """Return the largest share of entries with one sign in a row of the head's gradient ``[n, m]``.

    If the head's inputs are not negative, the row of a class without a sample has one sign. If their signs are mixed,
    so are those of every row, up to about 0.7 for 32 inputs or more.
    """
    sizes = gradient.norm(dim=1)
    rows = gradient[sizes > 1e-3 * sizes.max()]
    n_positive, n_negative = (rows > 0).sum(1), (rows < 0).sum(1)
    larger = n_positive.maximum(n_negative) / (n_positive + n_negative).clamp(min=1)
    return float(larger.max()) if len(rows) else 0.0


def has_negative_inputs(gradient: Tensor, samples: int) -> bool | None:
    """Return whether the head's gradient ``[n, m]`` shows inputs of both signs; None if it shows neither.

    With many samples of a few classes, rows have both signs anyway.
    """
    n_classes, n_inputs = gradient.shape
    majority = majority_of_signs(gradient)
    if majority >= ONE_SIGN:
        return False
    has_absent_class = samples < n_classes or (n_classes >= 8 and samples <= 4 * n_classes)
    return True if has_absent_class and n_inputs >= 32 and majority < MIXED_SIGNS else None


def _is_state(update: Update, model: nn.Module) -> bool:
    """Return whether an update nearly equals the model's parameters, or minus these."""
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


def _read_last_layer(update: Update, model: nn.Module, last: Head, scheme: Any) -> _LastLayer:
    scale = 1.0 if scheme is None or update.kind == "gradient" else float(scheme.weights().mean())
    gradients: list[Tensor | None] = []
    noise: list[float] = []
    for name, p in ((last.weight, last.layer.weight), (last.bias, last.layer.bias)):
        tensor = update.tensors.get(name) if p is not None else None
        usable = (
            tensor is not None and tensor.shape == p.shape and bool(tensor.any()) and bool(torch.isfinite(tensor).all())
        )
        usable = usable and not (last.tied and name == last.weight)  # it includes another layer's gradient
        gradients.append(update.gradient(name).double() / scale if usable else None)
        noise.append(_rounding(update, p, tensor) / scale if usable and tensor is not None and p is not None else 0.0)
    return _LastLayer(gradients[0], gradients[1], noise[0], noise[1], head_inputs(model))


def _is_unbalanced(last_layer: _LastLayer) -> bool:
    eps = torch.finfo(torch.float32).eps
    if last_layer.bias is not None:
        bound = MAX_DEVIATION * last_layer.bias.norm() * len(last_layer.bias) ** 0.5 + 4 * len(last_layer.bias) * (
            last_layer.bias_noise + eps
        )
        return bool(last_layer.bias.sum().abs() > bound)
    if last_layer.weight is None:
        return False
    n, m = last_layer.weight.shape
    size = m**0.5 if last_layer.inputs is None else float(last_layer.inputs.norm(dim=1).mean())
    bound = MAX_DEVIATION * last_layer.weight.norm() * n**0.5 + 4 * n * (last_layer.weight_noise * m**0.5 + eps * size)
    return bool(last_layer.weight.sum(0).norm() > bound)


def _is_too_large(last_layer: _LastLayer) -> bool:
    if last_layer.bias is not None:
        largest_sum = last_layer.bias.clamp(max=0).sum().abs().maximum(last_layer.bias.clamp(min=0).sum())
        return bool(largest_sum > 1 + MAX_DEVIATION + 4 * len(last_layer.bias) * last_layer.bias_noise)
    if last_layer.weight is None or last_layer.inputs is None:
        return False
    return bool(
        last_layer.weight.clamp(max=0).sum().abs()
        > MAX_INPUT_RATIO * last_layer.inputs.abs().sum(1).mean().clamp(min=1e-3)
    )


def _count_raised_classes(last_layer: _LastLayer) -> int:
    """Count the classes whose logits the update raises; a client raises only classes of its samples.

    The bias shows these classes, and after a ReLU each entry of a row.
    """
    by_bias = by_rows = 0
    if last_layer.bias is not None:
        by_bias = int((last_layer.bias < -MAX_SMOOTHING / len(last_layer.bias) - 4 * last_layer.bias_noise).sum())
    if last_layer.weight is not None and last_layer.inputs is not None and float(last_layer.inputs.min()) >= 0:
        mean = last_layer.inputs.abs().double().mean(0)
        if last_layer.bias is not None:  # the gradient itself gives the mean of its inputs
            mean = (last_layer.weight.T @ last_layer.bias / (last_layer.bias @ last_layer.bias)).abs()
        smoothed = MAX_SMOOTHING / len(last_layer.weight) * mean.clamp(min=float(mean.mean()))
        threshold = smoothed + 4 * last_layer.weight_noise
        by_rows = int((last_layer.weight < -threshold).any(1).sum())
    return max(by_bias, by_rows)


def _rounding(update: Update, parameter: Tensor, tensor: Tensor) -> float:
    """Return the rounding error of an entry; a change of the weights has the weights' rounding."""
    eps = max(torch.finfo(parameter.dtype).eps, torch.finfo(tensor.dtype).eps)
    if update.kind == "gradient" or update.lr is None:
        return eps * float(tensor.abs().max()) / update.steps
    return eps * float(parameter.detach().abs().max()) / update.lr
