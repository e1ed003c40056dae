"""How well an attack did. Counts are ``[..., n]``; each metric works on any number of updates at once."""

import torch
from torch import Tensor


def _checked(recovered: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    if recovered.shape[-1] != truth.shape[-1]:
        raise ValueError(f"counts over {recovered.shape[-1]} and {truth.shape[-1]} classes do not compare")
    if bool((recovered < 0).any()) or bool((truth < 0).any()):
        raise ValueError("counts are not negative")
    if bool((recovered.sum(-1) == 0).any()) or bool((truth.sum(-1) == 0).any()):
        raise ValueError("a label list is empty, so there is nothing to compare")
    return recovered.double(), truth.double()


def counts(labels: Tensor, n_classes: int) -> Tensor:
    """Count labels ``[..., B]`` into ``[..., n_classes]``."""
    zeros = torch.zeros(*labels.shape[:-1], n_classes, dtype=torch.long, device=labels.device)
    return zeros.scatter_add_(-1, labels, torch.ones_like(labels))


def attack_success_rate(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the share of the extracted labels that are right, in [0, 1] (ASR; LLG, Sec. 6.1).

    The size of the multiset intersection over the number of labels that were extracted.
    """
    found, true = _checked(recovered, truth)
    return torch.minimum(found, true).sum(-1) / found.sum(-1)


def hellinger(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the Hellinger distance of the two label distributions, in [0, 1], 0 where they agree."""
    found, true = _checked(recovered, truth)
    overlap = (found / found.sum(-1, keepdim=True) * true / true.sum(-1, keepdim=True)).sqrt().sum(-1)
    return (1 - overlap).clamp(min=0).sqrt()


def label_number_accuracy(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the share of the classes whose number of labels is exactly right, in [0, 1] (LnAcc; iLRG, Sec. 4.1).

    Counts that are all zero are allowed: a rule that names nothing is right about the classes that do not occur.

    Raises
    ------
    ValueError
        If the counts are of different shapes, or one is negative.
    """
    if recovered.shape != truth.shape:
        raise ValueError(f"counts of shapes {tuple(recovered.shape)} and {tuple(truth.shape)} do not compare")
    if bool((recovered < 0).any()) or bool((truth < 0).any()):
        raise ValueError("counts are not negative")
    return (recovered == truth).double().mean(-1)


def instance_accuracy(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the share of the samples whose label was recovered, in [0, 1] (InsAcc; GDBR, Sec. V-A).

    ``sum_j min(n_j, found_j) / B``: a label that is named too often is not counted, one that is missed is missing.
    """
    found, true = _checked(recovered, truth)
    return torch.minimum(found, true).sum(-1) / true.sum(-1)


def class_accuracy(recovered: Tensor, truth: Tensor) -> Tensor:
    """Return the share of the classes whose presence or absence is right, in [0, 1] (ClsAcc; GDBR, Sec. V-A)."""
    found, true = _checked(recovered, truth)
    return ((found > 0) == (true > 0)).double().mean(-1)
