"""Decaf (Dai et al., arXiv 2405.15316): exclude absent classes, then fit a mixture of single-class updates.

We implement what is public of the paper. A class is absent (a null class) if no entry of its row in the head's weights
grows. The head's update is a mixture of the other classes' single-class updates, which are computed on auxiliary data,
with non-negative shares that sum to 1. We do not know how the paper treats several local steps; here the single-class
updates are the mean of those before and after the round. Without null classes, and with entries weighted by their
noise, the fit is `whole_head`.
"""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.counts import round_to_total, solve
from fedleak.attacks.labels.inputs import head_gradient, require_classes
from fedleak.attacks.registry import Need, attack
from fedleak.attacks.result import Prepared, once
from fedleak.data import Images
from fedleak.federated import Update
from fedleak.models import HeadPass, as_inputs, head, head_pass

MAX_ENTRIES = 2**27
"""Most entries of the gradients of the classes that are not excluded: 1 GiB in double precision."""


def null_classes(gradient: Tensor) -> Tensor:
    """Return which classes are absent, ``[n]``: those without a negative entry in their row of the mean gradient.

    `gradient` is that of the head's weights, ``[n, d]``. If the head's inputs are not negative, the rows of absent
    classes have no negative entry.
    """
    return (gradient >= 0).all(dim=1)


def class_gradients(passed: HeadPass, aux: Images, classes: Sequence[int]) -> Tensor:
    """Compute the mean gradient of the head's weights for these classes' auxiliary images, ``[class, n, d]``."""
    labels = aux.y.to(passed.inputs.device)

    def gradient(label: int) -> Tensor:
        members = (labels == label).nonzero().flatten()
        errors = passed.probabilities[members].double()
        errors[:, label] -= 1
        return errors.T @ passed.inputs[members].double() / len(members)

    return torch.stack([gradient(label) for label in classes])


@attack(
    "after Decaf",
    paper="dai2024decaf",
    needs={Need.HEAD_GRADIENT, Need.ALL_GRADIENTS, Need.SAMPLE_COUNT, Need.MODEL, Need.AUXILIARY_DATA},
    summary="Classes whose row never grows are absent; the others' own updates are fitted to the client's.",
    prepares=True,
)
def prepare(model: nn.Module, aux: Images) -> Prepared:
    """Prepare Decaf; updates of several steps need all parameters.

    ``recover(update)`` returns counts ``[n]`` that sum to ``update.samples``.

    Parameters
    ----------
    model, aux
        The model before the round; labelled images of every class.

    Raises
    ------
    ValueError
        The auxiliary data lack a class; in ``recover``: NaN or infinite gradients, an update of another model, no class
        with a negative entry in its row, or more such classes than fit into memory.
    WithheldParameter
        In ``recover``: a parameter that is needed is not shared.
    """
    layer = head(model).layer
    require_classes(aux, layer.out_features)
    pass_images = lambda network: head_pass(network, as_inputs(aux.x, network))  # noqa: E731
    before = cache(lambda: pass_images(model))

    def read(update: Update) -> Tensor:
        gradient = head_gradient(update, model)
        present = ~null_classes(gradient)
        if not present.any():
            raise ValueError("no row of the head's gradient has a negative entry: by Decaf's rule no class occurs")
        classes = present.nonzero().flatten().tolist()
        if (entries := len(classes) * layer.weight.numel()) > MAX_ENTRIES:
            raise ValueError(
                f"the gradients of {len(classes):,} classes that are not excluded would take "
                f"{8 * entries / 2**30:,.1f} GiB, more than {8 * MAX_ENTRIES / 2**30:g}: use rlu or ilrg"
            )
        ends = [before()] if update.steps == 1 else [before(), pass_images(update.model(model))]
        system = torch.stack([class_gradients(end, aux, classes) for end in ends]).mean(0).flatten(1)
        counts = gradient.new_zeros(len(gradient))
        counts[present] = solve(system.T / update.samples, gradient.flatten(), update.samples)
        return round_to_total(counts, update.samples)

    return Prepared("after Decaf", read)


recover = once(prepare)
