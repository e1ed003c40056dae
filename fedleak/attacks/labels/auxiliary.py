"""What labelled auxiliary data tell about a model: the mean softmax of each class, before and after a round."""

import copy
from typing import Literal

import torch
from torch import Tensor, nn

from fedleak.data import Images
from fedleak.federated import Update
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
    """Return the logits whose mean softmax stands for a class, and their labels, ``[M, n]`` and ``[M]``.

    Parameters
    ----------
    logits
        Of the auxiliary data, ``[N, n]``.
    labels
        Theirs, ``[N]``; every class occurs.
    method
        ``"average"``: those of the data themselves. ``"gaussian"``: draws from a normal with their moments, class by
        class (Eqs. 7 and 8).
    samples
        Draws a class.
    seed
        Seed of the draws.

    Raises
    ------
    ValueError
        For an unknown method.
    """
    if method == "average":
        return logits, labels
    if method != "gaussian":
        raise ValueError(f"confidence is 'average' or 'gaussian', not {method!r}")
    generator = torch.Generator(logits.device).manual_seed(seed)
    rows = []
    for c in range(logits.shape[1]):
        own = logits[labels == c]
        mean = own.mean(0)
        # A random combination of the centred samples has exactly their covariance, also where it is singular.
        root = (own - mean) / max(len(own) - 1, 1) ** 0.5
        shape = (samples, len(own))
        noise = torch.randn(shape, generator=generator, dtype=logits.dtype, device=logits.device)
        rows.append(mean + noise @ root)
    return torch.cat(rows), torch.arange(len(rows), device=logits.device).repeat_interleave(samples)


def erroneous_confidence(logits: Tensor, labels: Tensor, method: Confidence = "average") -> Tensor:
    """Estimate the expected softmax of each class, ``[class, output]``; off the diagonal it is epsilon (Eq. 6).

    Parameters as for `drawn`.
    """
    z, y = drawn(logits, labels, method)
    return by_class(z.softmax(1), y, logits.shape[1])


def coefficients(confidence: Tensor) -> Tensor:
    """Return A of Eq. 10 from the mean softmax ``[class, output]``: ``1 - own`` on the diagonal, ``-eps`` off it."""
    return torch.eye(len(confidence), dtype=confidence.dtype, device=confidence.device) - confidence.mT


def uploaded(update: Update, model: nn.Module) -> nn.Module:
    """Return the client's model after the round.

    Raises
    ------
    WithheldParameter
        If a parameter is not shared.
    ValueError
        If gradients were shared without the learning rate.
    """
    if update.lr is None:
        raise ValueError("the client's model after its local steps follows from the learning rate: it is missing")
    after = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in after.named_parameters():
            parameter.sub_(update.lr * update.steps * update.gradient(name))
    return after


def require_classes(aux: Images, n_classes: int) -> None:
    """Refuse auxiliary data of other classes, or without a sample of one.

    Raises
    ------
    ValueError
        If so.
    """
    if not isinstance(aux, Images):
        raise ValueError(f"auxiliary data are labelled Images, got {type(aux).__name__}")
    if aux.n_classes != n_classes:
        raise ValueError(f"the auxiliary data have {aux.n_classes} classes, the model has {n_classes}")
    if not aux.class_counts.all():
        empty = aux.classes[int((aux.class_counts == 0).nonzero()[0])]
        raise ValueError(f"the auxiliary data hold no sample of class {empty!r}, so its coefficients are unknown")


def logits_of(seen: HeadPass, model: nn.Module) -> Tensor:
    """Return the outputs of a forward pass, float64 ``[N, n]``."""
    layer = head(model).layer
    return (seen.inputs @ layer.weight.T + layer.bias).detach().double()
