"""DLG, deep leakage from gradients (Zhu et al., NeurIPS 2019): images and labels by matching gradients."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from tqdm import tqdm

from fedleak.attacks.registry import Attack, Need, register
from fedleak.federated import Update
from fedleak.models import head, input_shape

ITERATIONS = 100
"""Outer L-BFGS steps in LLG's comparison (Sec. 6.1); each makes up to 20 evaluations of the gradient."""


class Match(NamedTuple):
    """Where the optimisation ended."""

    images: Tensor
    """Dummy images, ``[samples, C, H, W]``, not clipped."""
    label_logits: Tensor
    """Dummy label logits, ``[samples, n]``."""
    distance: float
    """Squared L2 distance between the gradients; NaN or infinite iterates are never returned."""


def match(
    update: Update,
    model: nn.Module,
    *,
    iterations: int = ITERATIONS,
    seed: int = 0,
    shape: tuple[int, ...] | None = None,
    progress: bool = False,
) -> Match:
    """Find dummy images and labels whose gradient is closest to the update's (L-BFGS, learning rate 1).

    Parameters
    ----------
    update
        A client's update with the gradients of all layers. Of several local steps the mean gradient is
        matched, with one dummy batch as large as all of them together.
    model
        The model before the round.
    iterations
        Outer steps.
    seed
        Seed of the N(0, 1) start.
    shape
        Shape of one image, where the model does not tell it.
    progress
        Show a progress bar.

    Raises
    ------
    WithheldParameter
        If a layer's gradient is not shared.
    ValueError
        If a gradient is NaN or infinite or not of its parameter's shape, or `iterations` is below 1.
    """
    if iterations < 1:
        raise ValueError(f"iterations is at least 1, got {iterations}")
    weights = {name: p.detach().requires_grad_() for name, p in model.named_parameters()}
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    target = [update.gradient(name) for name in weights]
    for (name, weight), gradient in zip(weights.items(), target, strict=True):
        if gradient.shape != weight.shape:
            raise ValueError(
                f"the update's {name!r} has shape {tuple(gradient.shape)}, "
                f"the model's has {tuple(weight.shape)}: is it an update of this model?"
            )
    if not all(torch.isfinite(t).all() for t in target):
        raise ValueError("the update holds NaN or infinite gradients, nothing can be matched to them")
    generator = torch.Generator().manual_seed(seed)
    like = target[0]
    draw = [
        torch.randn(update.samples, *size, generator=generator).to(like).requires_grad_()
        for size in (shape or input_shape(model), (head(model).layer.out_features,))
    ]
    images, label_logits = draw
    optimiser = torch.optim.LBFGS(draw, lr=1)

    def closure() -> Tensor:
        optimiser.zero_grad()
        logits = functional_call(model, (weights, buffers), (images,))
        loss = -(label_logits.softmax(dim=1) * logits.log_softmax(dim=1)).sum(dim=1).mean()
        found = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        distance = torch.stack([((f - t) ** 2).sum() for f, t in zip(found, target, strict=True)]).sum()
        images.grad, label_logits.grad = torch.autograd.grad(distance, draw)
        return distance

    best = Match(images.detach().clone(), label_logits.detach().clone(), float("inf"))
    steps: Iterable[int] = range(iterations)
    for _ in tqdm(steps, desc="DLG", disable=not progress, leave=False):
        before = (images.detach().clone(), label_logits.detach().clone())
        distance = optimiser.step(closure).detach().item()  # the distance at `before`
        if distance < best.distance:
            best = Match(*before, distance)
        if not all(torch.isfinite(t).all() for t in draw) or distance < 1e-12:
            break
    distance = closure().item()
    return Match(images.detach(), label_logits.detach(), distance) if distance < best.distance else best


def reconstruct(updates: Update, model: nn.Module, **options: object) -> Tensor:
    """Reconstruct the images behind an update, ``[samples, C, H, W]`` in [0, 1]; options as for `match`."""
    return match(updates, model, **options).images.clamp(0, 1)  # type: ignore[arg-type]


def recover(update: Update, model: nn.Module, **options: object) -> Tensor:
    """Recover label counts ``[n]`` that sum to ``update.samples``; options as for `match`."""
    logits = match(update, model, **options).label_logits  # type: ignore[arg-type]
    return logits.argmax(dim=1).bincount(minlength=logits.shape[1])


_NEEDS = frozenset({Need.HEAD_GRADIENT, Need.ALL_GRADIENTS, Need.SAMPLE_COUNT, Need.MODEL})
register(
    Attack(
        name="DLG",
        goal="images",
        paper="zhu2019dlg",
        equation="Alg. 1",
        needs=_NEEDS,
        summary="Dummy images and labels are optimised until their gradient equals the shared one.",
        run=reconstruct,
    )
)
register(
    Attack(
        name="DLG (labels)",
        goal="labels",
        paper="zhu2019dlg",
        equation="Alg. 1",
        needs=_NEEDS,
        summary="The labels that DLG's optimisation ends with.",
        run=recover,
    )
)
