"""Recover the words of a client's texts: the rows of an embedding that move are theirs."""

from collections.abc import Collection

import torch
from torch import Tensor, nn

from fedleak.attacks.registry import Need, attack
from fedleak.federated import Update
from fedleak.models.inputs import as_inputs, embeddings, input_embeddings, look_ups

ROUNDING = 16
"""Largest rounding error of an entry that does not move, in units of its precision."""
CANDIDATES = 101
"""Ratios of change and weight that are tried."""


def word_embeddings(model: nn.Module, update: Update) -> dict[str, str]:
    """Return the embeddings of the model's inputs with the parameter of each, of those that the update has."""
    layers, names = embeddings(model), input_embeddings(model) or ()
    by_weight = {id(p): name for name, p in model.named_parameters()}
    shared = {name: by_weight.get(id(layers[name].weight), "") for name in names}
    return {name: weight for name, weight in shared.items() if weight in update.tensors}


def used_rows(model: nn.Module, names: Collection[str], x: Tensor) -> set[int]:
    """Return the rows of these embeddings, numbered through, that inputs ``[N, L]`` look up; no padding is one."""
    layers, rows, offset = embeddings(model), set[int](), 0
    (inputs,) = look_ups(model, {name: layers[name] for name in names}, as_inputs(x, model)) or [{}]
    for name in names:
        used = set(inputs[name].flatten().tolist()) - {getattr(layers[name], "padding_idx", None)}
        rows |= {offset + row for row in used}
        offset += layers[name].num_embeddings
    return rows


@attack(
    "embedding rows",
    goal="words",
    needs={Need.BELOW_HEAD_GRADIENT, Need.MODEL},
    summary="The rows of the embedding that move are the words of the texts.",
    standalone_reason="it is for models whose inputs are tokens",
)
def recover(update: Update, model: nn.Module) -> Tensor:
    """Recover the distinct words of all texts behind an update, ``[words]``, in ascending order.

    Words are rows of the embedding. Those of several embeddings, as of a table's columns, are numbered through. Weight
    decay shrinks the rows of all other words by one factor, which is estimated.

    Raises `ValueError` if the model's inputs are no tokens, if no embedding of them is trained and shared, or if all
    rows move, as of a weight that is the last layer's too, or in noise.
    """
    weights = word_embeddings(model, update)
    if not weights:
        raise ValueError("the model has no embedding that takes its inputs and is trained")
    moved = torch.cat([_moved(update, model, weight) for weight in weights.values()])
    if moved.all():
        of = ", ".join(map(repr, weights.values()))
        raise ValueError(f"all {len(moved)} rows of {of} move: noise, or a weight that another layer shares")
    return moved.nonzero().flatten()


def _moved(update: Update, model: nn.Module, name: str) -> Tensor:
    """Return which rows ``[words]`` of a parameter move."""
    gradient = update.gradient(name)
    moved = gradient.ne(0).any(1)
    if moved.all():
        # a difference of two states is rounded as the weights are, a gradient as its own entries
        change = update.delta(name) if update.kind == "delta" else gradient
        moved = _moved_besides_decay(change, model.get_parameter(name).detach().to(change), update.kind == "delta")
    return moved


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
