"""What an update's last layer cannot be, if it is made as it was said to be: checked for every label attack."""

from typing import Any

import torch
from torch import Tensor, nn

from fedleak.federated import Update
from fedleak.federated.update import unwrapped
from fedleak.models import head, negative_inputs

SUM = (
    "the rows of the last layer's gradient do not sum to 0, as those of a softmax cross-entropy do: the clients have "
    "another loss (one sigmoid per class), the update was changed on its way, or it is a state and no difference"
)
SCALE = (
    "the last bias' gradient is larger than that of any mean over samples: the loss is a sum or scaled, the local "
    "steps were not divided out, the learning rate is another, or the update is a state and no difference"
)
SIGN = (
    "more classes have a negative gradient than the update has samples: its sign is turned (start minus end), or the "
    "number of samples is another"
)
_SHARE = 0.02
"""By how much sums may be off, as a share of their terms."""


def contradictions(update: Update, model: nn.Module, scheme: Any = None) -> tuple[str, ...]:
    """Say what an update's last layer cannot be, if it is of a mean cross-entropy; empty if nothing contradicts it.

    Parameters
    ----------
    update, model
        The update, and the model before it.
    scheme
        How the client trained, if it is known; momentum makes the change larger.
    """
    try:
        last = head(model)
        tensors = unwrapped(update.tensors, model)
        update = update.replace(tensors)
        larger = 1.0 if scheme is None or update.kind == "gradient" else float(scheme.weights().mean())
        shared = {
            name: update.gradient(name).double() / larger
            for name, p in ((last.bias, last.layer.bias), (last.weight, last.layer.weight))
            if p is not None and name in tensors and tensors[name].shape == p.shape
        }
    except (ValueError, RuntimeError):
        return ()  # the attack itself says what is wrong
    bias, weight = shared.get(last.bias), shared.get(last.weight)
    noise = {
        last.bias: _rounding(update, last.layer.bias, bias),
        last.weight: _rounding(update, last.layer.weight, weight),
    }
    said = []
    rows = bias if bias is not None else None if weight is None or last.tied else weight
    if rows is not None and bool(torch.isfinite(rows).all()):
        rest, terms = rows.sum(0).norm(), rows.norm(dim=0).norm() if rows.dim() > 1 else rows.norm()
        margin = noise[last.bias if bias is not None else last.weight] * rows.numel() ** 0.5 * 4
        if float(rest) > _SHARE * float(terms) * rows.shape[0] ** 0.5 + margin:
            said.append(SUM)
    if (
        bias is not None
        and float(bias.clamp(max=0).sum().abs().maximum(bias.max())) > 1 + _SHARE + 4 * noise[last.bias]
    ):
        said.append(SCALE)
    if weight is not None and not last.tied and _negative_rows(weight, noise[last.weight]) > update.samples:
        if negative_inputs(model) == 0:
            said.append(SIGN)
    elif bias is not None and _negative_rows(bias[:, None], noise[last.bias]) > update.samples:
        said.append(SIGN)
    return tuple(said)


def _negative_rows(rows: Tensor, noise: float) -> int:
    """Count rows with an entry that is negative beyond rounding."""
    least = 1e-5 * float(rows.abs().max()) + 4 * noise
    return int((rows.amin(1) < -least).sum())


def _rounding(update: Update, parameter: Tensor | None, gradient: Tensor | None) -> float:
    """Return the rounding error of an entry: of a change of weights that of the weights themselves."""
    if parameter is None or gradient is None:
        return 0.0
    eps = torch.finfo(parameter.dtype).eps
    if update.kind == "gradient" or update.lr is None:
        return eps * float(gradient.abs().max())
    return eps * float(parameter.detach().abs().max()) / (update.lr * update.steps)
