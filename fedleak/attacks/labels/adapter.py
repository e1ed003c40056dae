"""Recover labels from trained parameters that add to a frozen last layer's outputs, such as LoRA's B or a bias.

If the logits are a sum of ``z B^T`` and other terms, the gradient of B is ``(P - Y)^T Z / K``, as that of a last layer
with inputs z. For LoRA's B, ``z = s A x``, also while B is 0; for a bias, z is 1. Autograd gives z for auxiliary
samples: it is the derivative of their first output with respect to B's first row. For a single sample the largest row
is its label, whatever z is.
"""

from functools import cache

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.counts import round_to_total, solve
from fedleak.attacks.labels.inputs import require_classes
from fedleak.attacks.registry import Need, attack
from fedleak.attacks.result import Prepared, once
from fedleak.data import Images
from fedleak.federated import Update
from fedleak.federated.update import fitting
from fedleak.models import as_inputs, head
from fedleak.models.passes import MAX_BYTES, bytes_per_sample, in_order, places_at_once

SAMPLES_AT_ONCE = 32
"""Number of samples that are differentiated at once: the work for a sample grows with it."""
MAX_ENTRIES = 2**28
"""Most entries of all classes' mean gradients: 2 GiB in double precision."""


def find_adapters(model: nn.Module, x: Tensor) -> list[str]:
    """Name the trained parameters, other than the last layer's weight, whose row i adds to output i alone.

    They are determined from the derivatives for one input `x`, ``[1, …]``, which are the same for each row.
    """
    n, head_weight = head(model).layer.out_features, head(model).weight
    trained = {k: p for k, p in model.named_parameters() if p.requires_grad and k != head_weight}
    names = [k for k, p in trained.items() if p.dim() in (1, 2) and len(p) == n]
    logits, weights = _run(model, names, as_inputs(x, model))
    adapter_names = []
    for name in names:
        rows = [
            torch.autograd.grad(logits[0, i], weights[name], retain_graph=True, allow_unused=True)[0] for i in (0, 1)
        ]
        if any(row is None for row in rows):
            continue
        first, second = (row.view(n, -1) for row in rows)
        is_row_by_row = bool(first[0].any()) and not first[1:].any() and not second[[0, *range(2, n)]].any()
        if is_row_by_row and torch.allclose(first[0], second[1]):
            adapter_names.append(name)
    return adapter_names


def _run(model: nn.Module, names: list[str], x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the logits ``[N, n]`` and the parameters; those in `names` require a gradient."""
    weights = {name: p.detach().clone().requires_grad_(name in names) for name, p in model.named_parameters()}
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        return torch.func.functional_call(model, (weights, buffers), (x,)), weights


def compute_sample_gradients(model: nn.Module, names: list[str], aux: Images) -> Tensor:
    """Compute each auxiliary sample's gradient of these parameters, concatenated, ``[N, n, width]``."""
    return torch.einsum("sn,sw->snw", *_factors(model, names, aux))


def compute_class_gradients(model: nn.Module, names: list[str], aux: Images) -> Tensor:
    """Compute the mean of these gradients over each class's auxiliary samples, ``[n, n, width]``."""
    errors, inputs = _factors(model, names, aux)
    labels = aux.y.to(errors.device)
    members = [labels == k for k in range(errors.shape[1])]
    return torch.stack([errors[is_member].T @ inputs[is_member] / is_member.sum() for is_member in members])


def _factors(model: nn.Module, names: list[str], aux: Images) -> tuple[Tensor, Tensor]:
    """Return each sample's errors ``[N, n]`` and inputs z ``[N, width]``, whose outer product is its gradient."""
    x = as_inputs(aux.x, model)
    places, bytes_of_one = places_at_once(model, x, SAMPLES_AT_ONCE, has_graph=True), bytes_per_sample(model, x, True)
    errors, inputs = [], []
    for place in places:
        logits, weights = _run(model, names, x[place])
        eye, chosen = torch.eye(len(logits), dtype=logits.dtype, device=logits.device), [weights[n] for n in names]
        labels = nn.functional.one_hot(aux.y[place].to(logits.device), logits.shape[1])
        errors.append(logits.detach().double().softmax(1) - labels)
        # Each row of a piece of derivatives takes as much memory as the graph.
        size = max(1, min(SAMPLES_AT_ONCE, MAX_BYTES // (len(logits) * bytes_of_one)))
        rows = []
        for piece in eye.split(size):
            grads = torch.autograd.grad(logits[:, 0], chosen, piece, retain_graph=True, is_grads_batched=True)
            rows.append(torch.cat([g.flatten(2)[:, 0] if g.dim() > 2 else g[:, :1] for g in grads], 1).double())
        inputs.append(torch.cat(rows))
    return in_order(errors, places), in_order(inputs, places)


def has_frozen_head(model: nn.Module, x: Tensor | None, _: int) -> bool:
    """Return whether the last layer is frozen, and other trained parameters add to its outputs."""
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    return x is not None and head(model).weight not in trained and bool(find_adapters(model, x))


@attack(
    "adapter fit",
    needs={Need.ADAPTER_GRADIENT, Need.SAMPLE_COUNT, Need.MODEL, Need.AUXILIARY_DATA},
    summary="Single-class gradients of what adds to a frozen last layer's outputs are fitted to the client's.",
    prepares=True,
    standalone_reason="it is for a last layer that is frozen, with adapters or a bias beside it that are trained",
    applies=has_frozen_head,
)
def prepare(model: nn.Module, aux: Images) -> Prepared:
    """Prepare the fit of single-class gradients; updates of several steps need all parameters.

    ``recover(update)`` returns counts ``[n]`` that sum to ``update.samples``.

    Parameters
    ----------
    model, aux
        The model before the round; labelled samples of every class.

    Raises
    ------
    ValueError
        The auxiliary data lack a class; in ``recover``: NaN or infinite gradients, an update of another model, or no
        shared parameter that adds to the outputs.
    WithheldParameter
        In ``recover``: a parameter that is needed is not shared.
    """
    n = head(model).layer.out_features
    require_classes(aux, n)
    adapter_names, parameters = find_adapters(model, aux.x[:1]), dict(model.named_parameters())

    @cache
    def gradients_before_round(names: tuple[str, ...]) -> Tensor:
        return compute_class_gradients(model, list(names), aux)

    def require_memory(width: int) -> None:
        if n * n * width > MAX_ENTRIES:
            raise ValueError(
                f"the mean gradients of {n:,} classes in {n * width:,} adapter entries would take "
                f"{8 * n * n * width / 2**30:,.1f} GiB, more than {8 * MAX_ENTRIES / 2**30:g}: share at most "
                f"{MAX_ENTRIES // n**2} entries a class with this attack"
            )

    def read(update: Update) -> Tensor:
        names = tuple(name for name in adapter_names if name in update.tensors and update.tensors[name].any())
        if not names:
            raise ValueError("nothing that is shared adds to the last layer's outputs")
        gradient = torch.cat([fitting(update.gradient(k).double(), k, parameters[k]).view(n, -1) for k in names], 1)
        if update.samples == 1 and n > 2:  # row i is its error times z; the label's is minus the sum of all others
            return nn.functional.one_hot(gradient.norm(dim=1).argmax(), n)
        if update.samples == 1:  # two rows of one norm differ in sign, which the most similar auxiliary sample shows
            sample_gradients = compute_sample_gradients(model, list(names), aux)
            directions = nn.functional.normalize(sample_gradients.flatten(1), dim=1)
            return nn.functional.one_hot(aux.y[(directions @ gradient.flatten()).argmax().cpu()], n)
        require_memory(gradient.shape[1])
        means_at_ends = [gradients_before_round(names)]
        if update.steps > 1:
            means_at_ends.append(compute_class_gradients(update.model(model), list(names), aux))
        means = torch.stack(means_at_ends).mean(0).flatten(1)
        return round_to_total(solve(means.T / update.samples, gradient.flatten(), update.samples), update.samples)

    return Prepared("adapter fit", read)


recover = once(prepare)
