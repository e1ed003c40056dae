"""DLG, deep leakage from gradients (Zhu et al., NeurIPS 2019): reconstruct images and labels by matching gradients."""

from functools import partial
from typing import Unpack

from torch import Tensor, nn

from fedleak.attacks.images.engine import invert
from fedleak.attacks.images.invg import inversion, labelled
from fedleak.attacks.images.objective import View
from fedleak.attacks.images.problem import Descent, Inversion, Start
from fedleak.federated import Update

ITERATIONS = 100
"""Outer L-BFGS steps, as in LLG's comparison (Sec. 6.1); each evaluates the gradient up to 20 times."""
DLG = Descent("DLG", "l2", box=False, optimiser="lbfgs", lr=1.0, labels=True)
DLG_ADAM = Descent("DLG-Adam", "l2", box=False, lr=0.1)
"""AGIC's baseline (Sec. V-A): given labels, and Adam instead of L-BFGS, which fails on deep networks.
Pass it to `fedleak.attacks.images.invg.invert_many` for many updates."""
_DLG = partial(inversion, paper="zhu2019dlg")


def match(update: Update, model: nn.Module, *, iterations: int = ITERATIONS, **options: Unpack[Start]) -> Inversion:
    """Optimise dummy images and labels until their gradient is close to the update's (L-BFGS, learning rate 1).

    Images are not clipped; NaN or infinite iterates are never returned. Layers whose gradient is not shared are
    constants.

    Raises `WithheldParameter` if no gradient is shared; `ValueError` if a gradient is NaN or infinite or not
    of its parameter's shape, or `iterations` is below 1.

    Parameters
    ----------
    update, model
        A client's update, and the model before the round. For several local steps the mean gradient is matched by one
        dummy batch of all samples.
    iterations, **options
        Outer steps; seed, shape, snapshots and box as for `fedleak.attacks.images.engine.invert`.
    """
    return invert([View([update], model)], DLG, iterations=iterations, **options)


@_DLG(
    "DLG",
    equation="Alg. 1",
    summary="Dummy images and labels are optimised until their gradient equals the shared one.",
)
def reconstruct(update: Update, model: nn.Module, *, iterations: int = ITERATIONS, **options: Unpack[Start]) -> Tensor:
    """Reconstruct the images behind an update, ``[samples, C, H, W]``, clipped to `box`; options as for `match`."""
    return match(update, model, iterations=iterations, **options).answer()[0]


@_DLG(
    "DLG (labels)",
    goal="labels",
    equation="Alg. 1",
    summary="The labels that DLG's optimisation ends with.",
)
def recover(update: Update, model: nn.Module, *, iterations: int = ITERATIONS, **options: Unpack[Start]) -> Tensor:
    """Recover label counts ``[n]`` that sum to ``update.samples``; options as for `match`."""
    logits = match(update, model, iterations=iterations, **options).label_logits
    assert logits is not None
    return logits[0].argmax(dim=1).bincount(minlength=logits.shape[2])


@_DLG(
    "DLG-Adam",
    equation="Alg. 1; Adam as in AGIC, Sec. V-A",
    summary="DLG with inferred labels and Adam, which gets further on deep networks.",
)
def reconstruct_adam(
    update: Update, model: nn.Module, *, labels: Tensor | None = None, iterations: int = 1000, **options: Unpack[Start]
) -> Tensor:
    """Reconstruct images ``[samples, C, H, W]`` as `reconstruct`, by DLG-Adam; GI infers labels if None are given."""
    update_list, label_rows = labelled(update, model, labels)
    view = View(update_list, model, label_rows)
    return invert([view], DLG_ADAM, iterations=iterations, **options).answer()[0]
