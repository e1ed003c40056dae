"""iDLG (Zhao et al. 2020): the sign of the last layer's gradient gives the label of a single sample."""

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.inputs import row_sums
from fedleak.attacks.registry import Need, attack
from fedleak.federated import Update


@attack(
    "iDLG",
    paper="zhao2020idlg",
    equation="Eq. 5",
    needs={Need.HEAD_GRADIENT},
    summary="For one sample, the only negative row of the last layer's gradient is its label.",
)
def recover(update: Update, model: nn.Module) -> Tensor:
    """Name the one class whose row sum is negative; returns counts ``[n]`` that sum to 1.

    With non-negative inputs of the head exactly one row sum is negative. Without that guarantee the smallest
    row sum is taken, which is the same class where the rule holds.

    Raises
    ------
    ValueError
        If the update holds more than one sample: the rule is for one.
    """
    if update.samples != 1:
        raise ValueError(f"iDLG reads a single sample's gradient, this update holds {update.samples} samples")
    g = row_sums(update, model)
    return nn.functional.one_hot(torch.argmin(g), len(g))
