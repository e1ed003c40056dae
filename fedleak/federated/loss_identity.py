"""Identify a loss from one batch's logits and their gradient."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]

CROSS_ENTROPY = "cross-entropy"
WEIGHTED = "cross-entropy with class weights"
SAMPLE_WEIGHTED = "a loss that weighs each sample by itself (focal loss, sample weights)"
SMOOTHED = "cross-entropy with label smoothing"
NO_SOFTMAX = "not a softmax cross-entropy (one sigmoid per class, a regression)"
OTHER = "another loss (mixed or soft labels, an added term)"


class Loss(NamedTuple):
    """A loss, as identified from the gradient of one batch's logits."""

    name: str
    labels: Tensor
    """Labels in the loss, int64 ``[N]``; empty if they are not single classes."""
    factor: float = float("nan")
    """For cross-entropy: factor of the *sum* over the samples' losses; 1 / N for the mean."""


def identify_loss(logits: Tensor, gradient: Tensor) -> Loss:
    """Identify the loss of one batch, which may be a negative cross-entropy.

    Softmax cross-entropy has the gradient ``f_i (p_i - onehot(y_i))``: one negative entry per sample, at its label.

    Parameters
    ----------
    logits, gradient
        The head's outputs ``[N, n]``, and the gradient of the loss with respect to them.
    """
    tolerance = 1e-3 if gradient.dtype in (torch.float32, torch.float64) else 3e-2
    # A batch's logits are small: NumPy takes a fifth of PyTorch's time.
    z, g = (t.detach().to("cpu", torch.float64).numpy() for t in (logits, gradient))
    exponentials = np.exp(z - z.max(1, keepdims=True))
    p = exponentials / exponentials.sum(1, keepdims=True)
    loss = _identify(p, g, tolerance)
    if loss.name != OTHER:
        return loss
    negative = _identify(p, -g, tolerance)
    return negative._replace(factor=-negative.factor) if negative.name == CROSS_ENTROPY else loss


def _identify(p: Array, g: Array, tolerance: float) -> Loss:
    size = np.linalg.norm(g, axis=1)
    labels = g.argmin(1)
    has_gradient = size > 1e-4 * size.max(initial=0.0)
    # The model is certain of samples with rows near 0; the loss may also ignore samples with zero rows.
    is_certain = ~has_gradient & (p.max(1) > 1 - tolerance)
    has_zero_gradient, is_certain = is_certain & (size == 0), is_certain & (size > 0)
    if not has_gradient.any():
        return _loss(OTHER if len(g) else CROSS_ENTROPY, labels[:0], 1.0)
    direction = (p - _onehot(labels, p.shape[1]))[has_gradient]
    rows = g[has_gradient]
    factors = (rows * direction).sum(1) / (direction**2).sum(1)
    n_samples = (has_gradient | is_certain | has_zero_gradient).sum()
    mean_factor = float((factors * size[has_gradient]).sum() / size[has_gradient].sum()) * n_samples
    if abs(mean_factor - 1) < tolerance:  # the mean is also over samples with zero rows
        is_certain |= has_zero_gradient
    labels = np.where(is_certain, p.argmax(1), labels)[has_gradient | is_certain]
    if _differ(rows, factors[:, None] * direction) < tolerance:
        weight = size[has_gradient]
        factor = float((factors * weight).sum() / weight.sum())
        # With two classes every row that sums to 0 is a multiple of `direction`, whatever the loss: only the factors of
        # the mean and of the sum show which label is the true one.
        is_plain = p.shape[1] > 2 or min(abs(factor * n_samples - 1), abs(factor - 1)) < 10 * tolerance
        if is_plain and (abs(factors - factor) < 10 * tolerance * abs(factor)).all():
            return _loss(CROSS_ENTROPY, labels, factor)
        if p.shape[1] > 2:
            return _loss(_weighted(factors, g.argmin(1)[has_gradient], tolerance), labels, factor)
    if np.linalg.norm(rows.sum(1)) > tolerance * np.linalg.norm(rows):
        return _loss(NO_SOFTMAX, labels[:0])
    return _smoothed(p[has_gradient], rows, g.argmin(1)[has_gradient], tolerance)


def _smoothed(p: Array, rows: Array, labels: Array, tolerance: float) -> Loss:
    """Fit ``f (p - (1 - e) onehot - e / n)``: f and e from all entries except the labels', which are outliers."""
    n = p.shape[1]
    if len(p) * (n - 1) < 4:  # two unknowns fit what has no more entries
        return _loss(OTHER, labels[:0])
    for _ in range(5):
        others = ~_onehot(labels, n)
        design = np.stack([p[others], -np.ones(others.sum())], 1)
        f, share = np.linalg.lstsq(design, rows[others], rcond=None)[0].tolist()
        labels = (rows - f * p + share).argmin(1)
    onehot = _onehot(labels, n)
    if 0 < share * n < 0.99 * f and _differ(rows, f * (p - onehot) + share * (n * onehot - 1.0)) < tolerance:
        return _loss(SMOOTHED, labels, f)
    return _loss(OTHER, labels[:0])


def _onehot(labels: Array, n: int) -> Array:
    return labels[:, None] == np.arange(n)


def _loss(name: str, labels: Array, factor: float = float("nan")) -> Loss:
    return Loss(name, torch.from_numpy(labels), factor)


def _differ(rows: Array, expected: Array) -> float:
    return float(np.linalg.norm(rows - expected) / np.linalg.norm(rows))


def _weighted(factors: Array, labels: Array, tolerance: float) -> str:
    for label in np.unique(labels):
        of_class = factors[labels == label]
        if (abs(of_class - of_class.mean()) > 10 * tolerance * abs(of_class.mean())).any():
            return SAMPLE_WEIGHTED
    return WEIGHTED
