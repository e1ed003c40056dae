"""Recover the words of a client's texts: the rows of an embedding that move are theirs."""

import torch
from torch import Tensor, nn

from fedleak.attacks.registry import Need, attack
from fedleak.federated import Update
from fedleak.models.inputs import embeddings, input_embedding
from fedleak.models.memory import remembered

ROUNDING = 16
"""Largest rounding error of an entry that does not move, in units of its precision."""
CANDIDATES = 101
"""Ratios of change and weight that are tried."""


@remembered
def word_embedding(model: nn.Module) -> str:
    """Name the weight of the embedding of the model's inputs; "" if it has none."""
    layers = embeddings(model)
    name = input_embedding(model) if layers else None
    weight = layers[name].weight if name else None
    return next((name for name, p in model.named_parameters() if p is weight), "")


@attack(
    "embedding rows",
    goal="words",
    needs={Need.BELOW_HEAD_GRADIENT, Need.MODEL},
    summary="The rows of the embedding that move are the words of the texts.",
    standalone_reason="it is for models whose inputs are tokens",
)
def recover(update: Update, model: nn.Module) -> Tensor:
    """Recover the distinct words of all texts behind an update, ``[words]``, in ascending order.

    Weight decay shrinks the rows of all other words by one factor, which is estimated.

    Raises `WithheldParameter` if the embedding's gradient is not shared; `ValueError` if the model's inputs are no
    tokens, or all rows move, as of a weight that is the last layer's too, or in noise.
    """
    if not (name := word_embedding(model)):
        raise ValueError("the model has no embedding that takes its inputs and is trained")
    gradient = update.gradient(name)
    moved = gradient.ne(0).any(1)
    if moved.all():
        # a difference of two states is rounded as the weights are, a gradient as its own entries
        change = update.delta(name) if update.kind == "delta" else gradient
        moved = _moved_besides_decay(change, model.get_parameter(name).detach().to(change), update.kind == "delta")
    if moved.all():
        raise ValueError(f"all {len(moved)} rows of {name!r} move: noise, or a weight that another layer shares")
    return moved.nonzero().flatten()


def _moved_besides_decay(change: Tensor, weight: Tensor, rounded_as_weights: bool) -> Tensor:
    """Return which rows ``[words]`` change by anything but the multiple of their weights that most rows change by."""
    precision = ROUNDING * torch.finfo(change.dtype).eps
    along, squares = (change.double() * weight).sum(1), (weight.double() ** 2).sum(1).clamp(min=1e-300)
    ratios = (along / squares).quantile(torch.linspace(0, 1, CANDIDATES, dtype=torch.float64, device=change.device))

    def is_moved(ratio: Tensor) -> Tensor:
        tolerance = precision * weight.abs() * (1 if rounded_as_weights else ratio.abs())
        return ((change - ratio.to(change) * weight).abs() > tolerance).any(1)

    fewest = min((is_moved(ratio) for ratio in ratios.unique()), key=lambda moved: int(moved.sum()))
    return fewest if (~fewest).sum() > 1 and weight.shape[1] > 1 else torch.ones_like(fewest)
