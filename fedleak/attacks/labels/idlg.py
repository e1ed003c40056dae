"""iDLG (Zhao et al. 2020): infer the label of a single sample from the signs of the last layer's gradient."""

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.inputs import head_gradient
from fedleak.attacks.registry import Need, attack
from fedleak.attacks.result import Prepared, Result, once
from fedleak.federated import Update

ROUNDING = 1e-4
"""Largest rounding of a zero in single precision, relative to the gradient's largest entry or singular value."""


def proves_label(gradient: Tensor, label: int) -> bool:
    """Return whether a gradient of the head's weights ``[n, m]`` excludes all other one-hot labels, if it has one.

    The proof is of the cross-entropy with a hard label. With label smoothing another row can be the negative one.

    One sample's gradient is ``(p - y) a^T``: it has rank 1, each column sums to 0, and every row sum has the sign of
    sum(a), except the label's. With three or more classes, the label's row is thus the only one with its sign. A
    gradient that was changed (by noise, quantisation or pruning) does not have this form.
    """
    sums, size = gradient.sum(1), gradient.abs().max()
    values = torch.linalg.svdvals(gradient)
    is_balanced = bool(gradient.sum(0).abs().max() <= ROUNDING * size)
    has_rank_1 = bool(values[1:].sum() <= ROUNDING * values[0])
    is_negative = bool(sums[label] < -ROUNDING * gradient[label].abs().sum())
    return is_balanced and has_rank_1 and is_negative and int((sums > 0).sum()) == len(sums) - 1 > 1


@attack(
    "iDLG",
    paper="zhao2020idlg",
    equation="Eq. 5",
    needs={Need.HEAD_GRADIENT},
    summary="For one sample, the only negative row of the last layer's gradient is its label.",
    prepares=True,
)
def prepare(model: nn.Module) -> Prepared:
    """Prepare iDLG, which computes nothing beforehand; its counts ``[n]`` name the class with the smallest row sum.

    With non-negative inputs of the head exactly one row sum is negative. `proves_label` decides whether the label is
    proven. ``recover`` raises `WithheldParameter` if the head's gradient is not shared; `ValueError` for an update of
    more than one sample.
    """

    def read(update: Update) -> Result:
        if update.samples != 1:
            raise ValueError(f"iDLG reads a single sample's gradient, this update holds {update.samples} samples")
        gradient = head_gradient(update, model)
        label = gradient.sum(1).argmin()
        counts = nn.functional.one_hot(label, len(gradient))
        return Result(counts, proven=counts if proves_label(gradient, int(label)) else torch.zeros_like(counts))

    return Prepared("iDLG", read)


recover = once(prepare)
