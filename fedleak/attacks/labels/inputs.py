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


def whole_counts(estimates: Tensor, samples: int) -> Tensor:
    """Round estimated counts to non-negative integers that sum to `samples`.

    The estimates are first moved to the nearest point that is not negative and has the sum; then each is rounded down
    and what is left goes to the largest fractions.

    Parameters
    ----------
    estimates
        ``[..., n]``, any real numbers.
    samples
        What the counts sum to.

    Returns
    -------
    LongTensor
        ``[..., n]``

    Raises
    ------
    ValueError
        If an estimate is NaN or infinite, or `samples` is below 1.
    """
    if samples < 1:
        raise ValueError(f"samples is at least 1, got {samples}")
    if not torch.isfinite(estimates).all():
        raise ValueError("estimated counts are NaN or infinite: the update or the model's features are not usable")
    # The nearest point of the simplex: one common shift, then zero for what falls below it.
    ordered, _ = estimates.double().sort(dim=-1, descending=True)
    sizes = torch.arange(1, ordered.shape[-1] + 1, dtype=ordered.dtype, device=ordered.device)
    shifts = (ordered.cumsum(-1) - samples) / sizes
    kept = (ordered > shifts).sum(-1, keepdim=True).clamp(min=1)
    nearest = (estimates.double() - shifts.gather(-1, kept - 1)).clamp(min=0)
    counts = nearest.floor()
    missing = samples - counts.sum(-1, keepdim=True)
    by_fraction = (nearest - counts).argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
    return (counts + (by_fraction < missing)).long()
