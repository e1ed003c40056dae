"""Estimate RLU's erroneous confidence (Chen and Vikalo, ICML 2024): the mean softmax of each auxiliary class."""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from fedleak.models import HeadPass, head

Confidence = Literal["average", "gaussian"]
MAX_DRAWN_ENTRIES = 2**28
"""Most entries of all classes' drawn logits: 2 GiB in double precision."""


def mean_by_class(values: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """Average values ``[N, ...]`` over the samples of each class, ``[n_classes, ...]``."""
    counts = labels.bincount(minlength=n_classes).clamp(min=1)
    sums = values.new_zeros(n_classes, *values.shape[1:]).index_add_(0, labels, values)
    return sums / counts.view(-1, *[1] * (values.dim() - 1))


def draw_logits(
    logits: Tensor, labels: Tensor, method: Confidence, samples: int = 300, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Return logits that represent each class, and their labels, ``[M, n]`` and ``[M]``.

    Parameters
    ----------
    logits, labels
        Logits and labels of the auxiliary data, ``[N, n]`` and ``[N]``; every class occurs.
    method
        ``"average"``: return the data's logits. ``"gaussian"``: draw from a normal distribution with each class's
        moments (Eqs. 7 and 8). Another one raises `ValueError`.
    samples, seed
        Number of draws per class, and their random seed.
    """
    if method == "average":
        return logits, labels
    n_classes = logits.shape[1]
    if (entries := n_classes**2 * samples) > MAX_DRAWN_ENTRIES:
        gib = entries * 8 / 2**30
        raise ValueError(f"{samples} draws of {n_classes:,} classes each take {gib:,.0f} GiB: use confidence='average'")
    rows = list(_draw_by_class(logits, labels, method, samples, seed))
    return torch.cat(rows), torch.arange(len(rows), device=logits.device).repeat_interleave(samples)


def _draw_by_class(
    logits: Tensor, labels: Tensor, method: Confidence, samples: int = 300, seed: int = 0
) -> Iterator[Tensor]:
    """Yield each class's draws, ``[samples, n]``; parameters as for `draw_logits`."""
    if method != "gaussian":
        raise ValueError(f"confidence is 'average' or 'gaussian', not {method!r}")
    generator = torch.Generator().manual_seed(seed)  # the same numbers on every device
    for c in range(logits.shape[1]):
        of_class = logits[labels == c]
        mean = of_class.mean(0)
        # A random combination of the centred samples has exactly their covariance, also where it is singular.
        root = (of_class - mean) / max(len(of_class) - 1, 1) ** 0.5
        noise = torch.randn((samples, len(of_class)), generator=generator, dtype=logits.dtype)
        yield mean + noise.to(root.device) @ root


def erroneous_confidence(logits: Tensor, labels: Tensor, method: Confidence = "average") -> Tensor:
    """Estimate the expected softmax of each class, ``[class, output]``; off the diagonal it is epsilon (Eq. 6).

    Its parameters are those of `draw_logits`. One class's draws are in memory at a time.
    """
    if method == "average":
        return mean_by_class(logits.softmax(1), labels, logits.shape[1])
    draws = _draw_by_class(logits, labels, method)
    return torch.cat([mean_by_class(z.softmax(1), labels.new_zeros(len(z)), 1) for z in draws])


def coefficients(confidence: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return A of Eq. 10, ``[n, n]``, from the mean softmax P ``[class, output]``: ``I - P^T``.

    With labels that are smoothed by a share s, I is replaced by ``(1 - s) I + s / n`` (beyond the paper).
    """
    labels = torch.eye(len(confidence), dtype=confidence.dtype, device=confidence.device)
    return labels.lerp(torch.full_like(labels, 1 / len(labels)), smoothing) - confidence.mT


def logits_of(passed: HeadPass, model: nn.Module) -> Tensor:
    """Compute the logits of a head pass, float64 ``[N, n]``."""
    layer = head(model).layer
    return (passed.inputs @ layer.weight.T + layer.bias).detach().double()
