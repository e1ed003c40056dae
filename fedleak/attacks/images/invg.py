"""InvG, Inverting Gradients (Geiping et al., NeurIPS 2020): match gradients by their cosine, with signed Adam."""

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Unpack

import torch
from torch import Tensor, nn

from fedleak.attacks.images.engine import invert
from fedleak.attacks.images.objective import View
from fedleak.attacks.images.problem import Descent, Inversion, Options, Start
from fedleak.attacks.labels.inputs import head_gradient
from fedleak.attacks.registry import WHITE_BOX, Need, attack, get
from fedleak.errors import WithheldParameter
from fedleak.federated import Update
from fedleak.metrics import as_labels

INVG = Descent("InvG", "cosine", total_variation=1e-4, signed=True, decay=(0.375, 0.625, 0.875))
"""InvG's optimisation; the weight of the total variation is AGIC's for an untrained ResNet20-4 (Sec. V-A)."""
ITERATIONS = 10_000
"""Optimiser steps, as in AGIC's experiments."""
# A decorator that registers an inversion of all layers' gradients.
inversion = partial(
    attack,
    goal="images",
    needs={Need.HEAD_GRADIENT, Need.ALL_GRADIENTS, Need.SAMPLE_COUNT, Need.MODEL},
    cost="minutes",
)


def inferred(update: Update, model: nn.Module, rule: str = "GI") -> Tensor:
    """Infer the labels ``[samples]``, in ascending order, with the label attack named `rule`.

    GI, which the AGIC paper uses, never repeats a label; other attacks do (LLG, LLG*, iLRG, …). Warns if labels repeat
    and GI is used. Raises `ValueError` if the attack recovers nothing, or not as many labels as there are samples.
    """
    try:
        counts = get(rule)(update, model, adversary=WHITE_BOX)
    except (ValueError, WithheldParameter) as error:
        reason = str(error).rstrip(".")
        raise ValueError(f"no labels were given, and {rule} recovers none: {reason}. Pass labels") from error
    if rule == "GI" and bool((head_gradient(update, model)[counts > 0] >= 0).all(1).any()):
        warnings.warn(
            "no labels were given, and fewer classes have a negative gradient than there are samples: labels repeat, "
            "which GI's rule cannot infer. Pass labels",
            stacklevel=4,
        )
    if int(counts.sum()) != update.samples:
        raise ValueError(f"{rule} names {int(counts.sum())} labels for {update.samples} samples: use another rule")
    return torch.arange(len(counts), device=counts.device).repeat_interleave(counts)


def labelled(
    updates: Update | Sequence[Update], model: nn.Module, labels: Tensor | None, rule: str = "GI"
) -> tuple[list[Update], Tensor]:
    """Return updates as a list, and their labels ``[N, samples]``, which `rule` infers if None are given."""
    update_list = [updates] if isinstance(updates, Update) else list(updates)
    if not update_list:
        raise ValueError("nothing to invert: no updates")
    if labels is None:
        labels = torch.stack([inferred(u, model, rule) for u in update_list])
    if isinstance(labels, str) or not isinstance(labels, Tensor | Sequence):
        raise ValueError(f"labels are a tensor of whole numbers [updates, samples], got {labels!r}")
    return update_list, as_labels(torch.as_tensor(labels)).reshape(len(update_list), -1)


def invert_many(
    updates: Sequence[Update],
    model: nn.Module,
    labels: Tensor,
    *,
    descent: Descent = INVG,
    simulate: bool = True,
    **options: Unpack[Options],
) -> Inversion:
    """Reconstruct the images behind N updates at once.

    Parameters
    ----------
    updates, model
        N updates of the same kind, samples and steps, and the model before the round.
    labels
        Labels ``[N, samples]``; under FedAvg in the order of the steps, which a simulation cannot infer.
    descent
        Optimisation; by default InvG's.
    simulate
        Whether to simulate the local steps of FedAvg.
    **options
        Options of `fedleak.attacks.images.engine.invert`.
    """
    if not updates:
        raise ValueError("nothing to invert: no updates")
    view = View(updates, model, labels, simulate=simulate and updates[0].steps > 1)
    return invert([view], descent, **options)


@inversion(
    "InvG",
    paper="geiping2020invg",
    equation="Eq. 4",
    summary="Dummy images are optimised until the cosine of their gradient with the shared one is 1.",
)
def reconstruct(
    updates: Update | Sequence[Update],
    model: nn.Module,
    *,
    labels: Tensor | None = None,
    iterations: int = ITERATIONS,
    **options: Unpack[Start],
) -> Tensor:
    """Reconstruct ``[samples, C, H, W]``, or ``[N, samples, C, H, W]`` from several independent updates.

    Images are in [0, 1], and it warns if this was assumed and nothing shows it; other inputs have another range, `box`.
    Layers whose gradient is not shared are constants.

    Raises `WithheldParameter` if no gradient is shared; `ValueError` for updates that do not fit the model, or several
    local steps without labels.

    Parameters
    ----------
    updates, model
        One update, or several for independent reconstructions; the model before the round.
    labels
        Labels ``[samples]`` or ``[N, samples]``, by default inferred by GI. FedAvg requires them, in the steps' order.
    iterations, **options
        Options of `invert_many`.
    """
    if labels is None and (updates if isinstance(updates, Update) else updates[0]).steps > 1:
        raise ValueError("InvG simulates the local steps, and no attack says which label belongs to which: pass labels")
    update_list, label_rows = labelled(updates, model, labels)
    images = invert_many(update_list, model, label_rows, iterations=iterations, **options).answer()
    return images[0] if isinstance(updates, Update) else images
