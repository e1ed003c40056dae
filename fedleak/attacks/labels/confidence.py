"""RLU's erroneous confidence (Chen and Vikalo, ICML 2024): the mean softmax of each class of auxiliary data."""

from typing import Literal

import torch
from torch import Tensor, nn

from fedleak.models import HeadPass, head

Confidence = Literal["average", "gaussian"]


def by_class(values: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """Return the mean of values ``[N, ...]`` over each class's samples, ``[n_classes, ...]``."""
    counts = labels.bincount(minlength=n_classes).clamp(min=1)
    sums = values.new_zeros(n_classes, *values.shape[1:]).index_add_(0, labels, values)
    return sums / counts.view(-1, *[1] * (values.dim() - 1))


def drawn(
    logits: Tensor, labels: Tensor, method: Confidence, samples: int = 300, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Return the logits whose mean softmax represents a class, and their labels, ``[M, n]`` and ``[M]``.

    Parameters
    ----------
    logits, labels
        Those of the auxiliary data, ``[N, n]`` and ``[N]``; every class occurs.
    method
        ``"average"``: those of the data themselves. ``"gaussian"``: `samples` draws a class from a normal with its
        moments (Eqs. 7 and 8). For another a `ValueError`.
    samples, seed
        Random seed of the draws.
    """
    if method == "average":
        return logits, labels
    if method != "gaussian":
        raise ValueError(f"confidence is 'average' or 'gaussian', not {method!r}")
    generator = torch.Generator().manual_seed(seed)  # the same numbers on every device
    rows = []
    for c in range(logits.shape[1]):
        of_class = logits[labels == c]
        mean = of_class.mean(0)
        # A random combination of the centred samples has exactly their covariance, also where it is singular.
        root = (of_class - mean) / max(len(of_class) - 1, 1) ** 0.5
        shape = (samples, len(of_class))
        noise = torch.randn(shape, generator=generator, dtype=logits.dtype)
        rows.append(mean + noise.to(root.device) @ root)
    return torch.cat(rows), torch.arange(len(rows), device=logits.device).repeat_interleave(samples)


def erroneous_confidence(logits: Tensor, labels: Tensor, method: Confidence = "average") -> Tensor:
    """Estimate the expected softmax of each class, ``[class, output]``; off the diagonal it is epsilon (Eq. 6).

    Parameters as for `drawn`.
    """
    z, y = drawn(logits, labels, method)
    return by_class(z.softmax(1), y, logits.shape[1])


def coefficients(confidence: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return A of Eq. 10 from the mean softmax ``[class, output]``: ``1 - own`` on the diagonal, ``-eps`` off it.

    Of labels that are smoothed by a share s, the 1 is one of ``(1 - s) y + s / n`` (beyond the paper).
    """
    labels = torch.eye(len(confidence), dtype=confidence.dtype, device=confidence.device)
    return labels.lerp(torch.full_like(labels, 1 / len(labels)), smoothing) - confidence.mT


def logits_of(passed: HeadPass, model: nn.Module) -> Tensor:
    """Return the outputs of a forward pass, float64 ``[N, n]``."""
    layer = head(model).layer
    return (passed.inputs @ layer.weight.T + layer.bias).detach().double()
