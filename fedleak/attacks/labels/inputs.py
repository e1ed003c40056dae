"""What label attacks read off an update, checked once for all of them."""

import torch
from torch import Tensor, nn

from fedleak.federated import Update
from fedleak.models import head


def head_gradient(update: Update, model: nn.Module) -> Tensor:
    """Return the mean gradient of the head's weights over one local step, ``[n, m]``, in double precision.

    Raises
    ------
    WithheldParameter
        If the client did not share it.
    ValueError
        If its shape is not that of the model's head, or an entry is NaN or infinite.
    """
    last = head(model)
    gradient = update.gradient(last.weight)
    if gradient.shape != last.layer.weight.shape:
        raise ValueError(
            f"the update's {last.weight!r} has shape {tuple(gradient.shape)}, "
            f"the model's has {tuple(last.layer.weight.shape)}: is it an update of this model?"
        )
    if not torch.isfinite(gradient).all():
        bad = int((~torch.isfinite(gradient)).sum())
        raise ValueError(f"{bad} of {gradient.numel()} entries of the update's {last.weight!r} are NaN or infinite")
    return gradient.detach().double()


def row_sums(update: Update, model: nn.Module) -> Tensor:
    """Return each class's gradient g_i, the sum over its row of the head's weight gradient, ``[n]``."""
    return head_gradient(update, model).sum(dim=1)
