"""A frozen last layer with something trained that adds to its outputs (LoRA's B, a bias): its gradient has the labels.

Where the logits are ``z B^T`` and something else, the gradient of B is ``(P - Y)^T Z / K``, as that of a last layer
whose inputs are z. For LoRA's B, ``z = s A x``, whether B is 0 or not; for a bias, z is 1. What z is of auxiliary
samples, autograd tells: it is the derivative of their first output after B's first row. A single sample's label is the
largest row, whatever z is.
"""

from functools import cache

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.confidence import by_class
from fedleak.attacks.labels.counts import round_to_total, solve
from fedleak.attacks.labels.inputs import require_classes
from fedleak.attacks.registry import Need, attack
from fedleak.attacks.result import Prepared, once
from fedleak.data import Images
from fedleak.federated import Update
from fedleak.federated.update import fitting
from fedleak.models import as_inputs, head

CHUNK = 256
"""Samples that are differentiated at a time."""


def adapters(model: nn.Module, x: Tensor) -> list[str]:
    """Name the parameters that add to the outputs row by row, other than a last layer's weight, by an input ``[1, …]``.

    They are those of which output i moves with row i alone, and every output with its row as the others with theirs.
    """
    n, head_weight = head(model).layer.out_features, head(model).weight
    names = [k for k, p in model.named_parameters() if k != head_weight and p.dim() in (1, 2) and len(p) == n]
    logits, weights = _outputs(model, names, as_inputs(x, model))
    adapter_names = []
    for name in names:
        rows = [
            torch.autograd.grad(logits[0, i], weights[name], retain_graph=True, allow_unused=True)[0] for i in (0, 1)
        ]
        if any(row is None for row in rows):
            continue
        first, second = (row.view(n, -1) for row in rows)
        alone = bool(first[0].any()) and not first[1:].any() and not second[[0, *range(2, n)]].any()
        if alone and torch.allclose(first[0], second[1]):
            adapter_names.append(name)
    return adapter_names


def _outputs(model: nn.Module, names: list[str], x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the logits ``[N, n]`` and the weights that they can be differentiated after."""
    weights = {name: p.detach().clone().requires_grad_(name in names) for name, p in model.named_parameters()}
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        return torch.func.functional_call(model, (weights, buffers), (x,)), weights


def contributions(model: nn.Module, names: list[str], aux: Images) -> Tensor:
    """Return each auxiliary sample's own gradient of these parameters, side by side, ``[N, n, width]``."""
    logits, weights = _outputs(model, names, as_inputs(aux.x, model))
    eye = torch.eye(len(logits), dtype=logits.dtype, device=logits.device)
    chosen = [weights[name] for name in names]
    inputs = []
    for some in eye.split(CHUNK):
        rows = torch.autograd.grad(logits[:, 0], chosen, some, retain_graph=True, is_grads_batched=True)
        inputs.append(torch.cat([g.flatten(2)[:, 0] if g.dim() > 2 else g[:, :1] for g in rows], 1))
    labels = nn.functional.one_hot(aux.y.to(logits.device), logits.shape[1])
    wrong = logits.detach().double().softmax(1) - labels
    return torch.einsum("sn,sw->snw", wrong, torch.cat(inputs).double())


def has_frozen_head(model: nn.Module, x: Tensor | None, _: int) -> bool:
    """Return whether the last layer is frozen, and something beside it is trained."""
    return x is not None and head(model).weight not in dict(model.named_parameters()) and bool(adapters(model, x))


@attack(
    "adapter fit",
    needs={Need.ADAPTER_GRADIENT, Need.SAMPLE_COUNT, Need.MODEL, Need.AUXILIARY_DATA},
    summary="Single-class gradients of what adds to a frozen last layer's outputs are fitted to the client's.",
    prepares=True,
    standalone_reason="it is for a last layer that is frozen, with adapters or a bias beside it that are trained",
    applies=has_frozen_head,
)
def prepare(model: nn.Module, aux: Images) -> Prepared:
    """Prepare the fit; updates of several steps need all parameters.

    What is read gives counts ``[n]`` that sum to ``update.samples``. Raises `WithheldParameter` when an update is read:
    if a parameter that is needed is not shared; `ValueError` for auxiliary data that lack a class; when an update is
    read, for NaN or infinite gradients, an update of another model, or if nothing that is shared adds to the outputs.

    Parameters
    ----------
    model
        Before the round.
    aux
        Labelled samples of every class.
    """
    n = head(model).layer.out_features
    require_classes(aux, n)
    adapter_names, parameters = adapters(model, aux.x[:1]), dict(model.named_parameters())

    @cache
    def before(names: tuple[str, ...]) -> Tensor:
        return contributions(model, list(names), aux)

    def read(update: Update) -> Tensor:
        names = tuple(name for name in adapter_names if name in update.tensors and update.tensors[name].any())
        if not names:
            raise ValueError("nothing that is shared adds to the last layer's outputs")
        gradient = torch.cat([fitting(update.gradient(k).double(), k, parameters[k]).view(n, -1) for k in names], 1)
        if update.samples == 1:  # a row is its error times z, and the label's is as large as all others' together
            return nn.functional.one_hot(gradient.norm(dim=1).argmax(), n)
        ends = [before(names)]
        if update.steps > 1:
            ends.append(contributions(update.model(model), list(names), aux))
        per_sample = torch.stack(ends).mean(0).flatten(1)
        means = by_class(per_sample, aux.y.to(per_sample.device), n)
        return round_to_total(solve(means.T / update.samples, gradient.flatten(), update.samples), update.samples)

    return Prepared("adapter fit", read)


recover = once(prepare)
