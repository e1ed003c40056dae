"""Recover the words of a client's texts: the rows of an embedding that move are theirs."""

from collections.abc import Collection

import torch
from torch import Tensor, nn

from fedleak.attacks.registry import Need, attack
from fedleak.federated import Update
from fedleak.federated.update import fitting, unwrapped
from fedleak.models.inputs import as_inputs, embeddings, input_embeddings, look_ups

ROUNDING = 16
"""Largest rounding error of an entry that does not move, in units of its precision."""
CANDIDATES = 101
"""Ratios of change and weight that are tried."""
COLUMNS = 8
"""Entries of a row that are compared for each of them; the best is compared with all."""


def word_embeddings(model: nn.Module, update: Update) -> dict[str, str]:
    """Return the embeddings of the model's inputs with the parameter of each, of those that the update has.

    Of embeddings that look up the same rows it is the first.
    """
    layers, shared = embeddings(model), unwrapped(update.tensors, model)
    by_weight = {id(p): name for name, p in model.named_parameters()}
    weights: dict[str, str] = {}
    for group in input_embeddings(model) or ():
        of_group = {name: by_weight.get(id(layers[name].weight), "") for name in group}
        weights |= dict([item for item in of_group.items() if item[1] in shared][:1])
    return weights


def used_rows(model: nn.Module, names: Collection[str], x: Tensor) -> set[int]:
    """Return the rows of these embeddings, numbered through, that inputs ``[N, ...]`` look up; no padding is one."""
    layers, rows, offset = embeddings(model), set[int](), 0
    calls = look_ups(model, names, as_inputs(x, model)) or {}
    for name in names:
        used = {row for inputs in calls.get(name, ()) for row in inputs.flatten().tolist()}
        rows |= {offset + row for row in used - {getattr(layers[name], "padding_idx", None)}}
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
    update = update.replace(unwrapped(update.tensors, model))
    tables = [_moved(update, model.get_parameter(weight).detach(), weight) for weight in weights.values()]
    if all(moved.all() for moved, _ in tables):
        of = ", ".join(map(repr, weights.values()))
        raise ValueError(f"all rows of {of} move: noise, or a weight that another layer shares")
    has_decay = not any(is_exact for _, is_exact in tables)
    # with weight decay a table that moves as a whole may not have been looked up
    moved = [rows & ~(has_decay and rows.all()) for rows, _ in tables]
    return torch.cat(moved).nonzero().flatten()


def _moved(update: Update, weight: Tensor, name: str) -> tuple[Tensor, bool]:
    """Return which rows ``[words]`` of a parameter move, and whether others do not move at all."""
    gradient = fitting(update.gradient(name), name, weight)
    moved = gradient.ne(0).any(1)
    # Weight decay moves all rows but those of zeros, such as padding's.
    if is_exact := bool((~moved & weight.to(moved.device).ne(0).any(1)).any()):
        return moved, is_exact
    # a difference of two states is rounded as the weights are, in each step; a gradient as its own entries
    change, rounded = (update.delta(name), update.steps) if update.kind == "delta" else (gradient, 0)
    return _moved_besides_decay(change, weight.to(change), rounded), is_exact


def _moved_besides_decay(change: Tensor, weight: Tensor, rounded: int) -> Tensor:
    """Return which rows ``[words]`` change by anything but the multiple of their weights that most rows change by.

    `rounded` says how often the weights' rounding is part of the change.
    """
    precision = torch.finfo(change.dtype).eps * (rounded + ROUNDING)
    along, squares = (change.double() * weight).sum(1), (weight.double() ** 2).sum(1).clamp(min=1e-300)
    ratios = (along / squares).quantile(torch.linspace(0, 1, CANDIDATES, dtype=torch.float64, device=change.device))

    def moved(ratio: Tensor, columns: int) -> Tensor:
        of_weight, of_change = weight[:, :columns], change[:, :columns]
        tolerance = precision * of_weight.abs() * (1 if rounded else ratio.abs())
        return ((of_change - ratio.to(change) * of_weight).abs() > tolerance).any(1)

    ratio = min(ratios.unique(), key=lambda ratio: int(moved(ratio, COLUMNS).sum()))
    rows = moved(ratio, weight.shape[1])
    unmoved = ~rows & weight.ne(0).any(1)
    return rows if unmoved.sum() > 1 and weight.shape[1] > 1 else change.ne(0).any(1)
