"""Decaf (Dai et al., arXiv 2405.15316): classes that cannot occur first, then a fit of single-class updates.

The reading implemented here, from what is known of the paper: a class whose row of the head's weights nowhere grows is
absent (its null classes); the update of the head is a mixture of what each remaining class alone would send, measured
on auxiliary data, with shares that are not negative and sum to 1. Whether the paper lets its bases take several local
steps is not known to us: here they are the mean of those before and after the round. Without the null classes, and
with its entries weighted by their noise, the fit is `whole_head`.
"""

from functools import cache

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.counts import round_to_total, solve
from fedleak.attacks.labels.inputs import head_gradient, require_classes
from fedleak.attacks.registry import Need, attack
from fedleak.attacks.result import Prepared, once
from fedleak.data import Images
from fedleak.federated import Update
from fedleak.models import as_inputs, head, head_pass


def null_classes(gradient: Tensor) -> Tensor:
    """Return a mask of absent classes, ``[n]``: those whose row of the mean gradient ``[n, d]`` has no negative entry.

    With inputs of the head that are not negative, a class that does not occur is only ever pushed down.
    """
    return (gradient >= 0).all(dim=1)


def bases(model: nn.Module, aux: Images) -> Tensor:
    """Return the mean gradient of the head's weights for a batch of each class alone, ``[class, n, d]``."""
    passed = head_pass(model, as_inputs(aux.x, model))
    labels = aux.y.to(passed.inputs.device)
    wrong = passed.probabilities.double() - nn.functional.one_hot(labels, aux.n_classes)
    inputs = passed.inputs.double()
    return torch.stack([wrong[labels == c].T @ inputs[labels == c] / (labels == c).sum() for c in range(aux.n_classes)])


@attack(
    "after Decaf",
    paper="dai2024decaf",
    needs={Need.HEAD_GRADIENT, Need.ALL_GRADIENTS, Need.SAMPLE_COUNT, Need.MODEL, Need.AUXILIARY_DATA},
    summary="Classes whose row never grows are absent; the others' own updates are fitted to the client's.",
    prepares=True,
)
def prepare(model: nn.Module, aux: Images) -> Prepared:
    """Prepare the fit; updates of several steps need all parameters.

    What is read gives counts ``[n]`` that sum to ``update.samples``. Raises `WithheldParameter` when an update is read:
    if a parameter that is needed is not shared; `ValueError` for auxiliary data that lack a class; when an update is
    read, for NaN or infinite gradients, an update of another model, or if no class has a negative entry in its row, so
    that none could occur.

    Parameters
    ----------
    model
        Before the round.
    aux
        Labelled images of every class.
    """
    require_classes(aux, head(model).layer.out_features)
    before = cache(lambda: bases(model, aux))

    def read(update: Update) -> Tensor:
        gradient = head_gradient(update, model)
        present = ~null_classes(gradient)
        if not present.any():
            raise ValueError("no row of the head's gradient has a negative entry: by Decaf's rule no class occurs")
        ends = [before()] if update.steps == 1 else [before(), bases(update.model(model), aux)]
        system = torch.stack(ends).mean(0).flatten(1)[present]
        counts = gradient.new_zeros(len(gradient))
        counts[present] = solve(system.T / update.samples, gradient.flatten(), update.samples)
        return round_to_total(counts, update.samples)

    return Prepared("after Decaf", read)


recover = once(prepare)
