"""The clients' loss: any function of logits and labels, and whether it is a multiple of the mean cross-entropy.

The loss is differentiated, so that modules, lambdas and `functools.partial` are treated in the same way.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]
"""``loss(logits [N, n], labels [N])`` returns one number."""
_DENSE = (nn.BCEWithLogitsLoss, nn.MSELoss, nn.MultiLabelSoftMarginLoss)
"""PyTorch's modules whose targets have the logits' shape, and which therefore get one-hot labels."""
TOLERANCE = 1e-3
"""Tolerance of a measured gradient, as a share of its largest entry."""


def as_loss(loss: Any) -> Loss:
    """Return a module or function as a loss of logits and labels; modules with dense targets get one-hot labels."""
    if isinstance(loss, _DENSE):
        return lambda logits, labels: loss(logits, nn.functional.one_hot(labels, logits.shape[1]).to(logits))
    return loss


def differentiate(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the gradient of a loss with respect to the logits ``[N, n]``.

    Raises `ValueError` if the loss does not accept them, does not return one number, or does not depend on the logits.
    """
    z = logits.detach().clone().requires_grad_()
    problem = f"the loss does not take logits {list(z.shape)} and labels {list(labels.shape)}"
    try:
        with torch.enable_grad():
            value = loss(z, labels)
            if not isinstance(value, Tensor) or value.numel() != 1:
                given = f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
                raise ValueError(f"a loss is one number, this one {given}: reduce it over the batch")
            return torch.autograd.grad(value.sum(), z)[0]
    except (RuntimeError, TypeError, IndexError) as error:
        raise ValueError(f"{problem}: {str(error).strip().splitlines()[0]}") from error


def measure_factor(loss: Loss, n_classes: int, batch_size: int, dtype: torch.dtype = torch.float32) -> float | None:
    """Return the factor by which a loss differs from the mean cross-entropy of a batch; None for any other loss.

    The two gradients with respect to random logits are compared, on batches that together have every class.
    Raises `ValueError` as `differentiate` does.
    """
    generator = torch.Generator().manual_seed(0)
    batches = max(-(-n_classes // batch_size), 3)
    labels = torch.arange(batches * batch_size) % n_classes
    factors = []
    for batch in labels[torch.randperm(len(labels), generator=generator)].split(batch_size):
        logits = 2 * torch.randn(batch_size, n_classes, generator=generator).to(dtype)
        gradient, expected = (differentiate(f, logits, batch).double() for f in (loss, nn.functional.cross_entropy))
        factors.append(float((gradient * expected).sum() / expected.square().sum()))
        if not (gradient - factors[-1] * expected).abs().max() <= TOLERANCE * gradient.abs().max():
            return None
    return factors[0] if max(factors) - min(factors) <= TOLERANCE * abs(factors[0]) else None
