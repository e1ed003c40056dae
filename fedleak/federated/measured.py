"""Put together what a client's loss and steps were measured to be: the scale at which its update is read."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedleak.federated.loss_check import CROSS_ENTROPY, SAMPLE_WEIGHTED, SMOOTHED, WEIGHTED, Backward, LossCheck
from fedleak.federated.schemes import Scheme
from fedleak.federated.step_check import StepCheck, Track

TOLERANCE = 0.01
"""A step, or a loss' gradient, is verified if it is as expected to this share of its size."""
ROUNDING = 0.05
"""Steps whose rounding error is more than this share of their size are not verified."""
UNEVEN, UNEVEN_BATCHES = 0.05, 0.25
"""Shares of the labels that may be misread because samples do not weigh alike, half the sum of the differences: by
rates and parts of a batch, and with steps on batches of different sizes, which most rounds end with."""
HARD_LABELS = (CROSS_ENTROPY, WEIGHTED, SAMPLE_WEIGHTED, SMOOTHED)


class StepFactor(NamedTuple):
    """The head's gradient at a step, compared with that of the mean cross-entropy over the step's samples."""

    loss: str = ""
    """The loss; "" where no head was seen."""
    factor: float = 1.0
    """The gradient as a multiple of the mean cross-entropy's; for other losses, of the backward passes' result."""
    altered: float = 0.0
    """How much of the gradient is no multiple of what the backward passes left, as a share of its size."""
    weights: tuple[tuple[int, float], ...] = ()
    """Of each forward pass the number of samples, and the weight of one, in any unit."""


def step_factor(
    backwards: Sequence[Backward], at_step: Tensor | None, scale: float = 1.0, divisor: float | None = None
) -> StepFactor:
    """Compare the gradient at a step with what the backward passes behind it left.

    Parameters
    ----------
    backwards
        These.
    at_step
        The head's gradient that the optimiser saw, after clipping; None if it has none.
    scale
        By which the optimiser divides it.
    divisor
        What Opacus divides the sum of the samples' gradients by, infinity for a loss that is a sum; None without
        Opacus, whose noise would hide the factor if it were measured.
    """
    seen_any = any(backward.passes for backward in backwards)
    passes = [item for backward in backwards for item in backward.passes if item.samples]
    if not passes:
        return StepFactor(CROSS_ENTROPY if seen_any else "")
    loss = " and ".join(dict.fromkeys(item.loss.name for item in passes))
    factors = [item.loss.factor * item.samples for item in passes]  # 1 for a mean, N for a sum; together k for k means
    total = sum(factors) if loss in (CROSS_ENTROPY, SMOOTHED) else 1.0
    weights = tuple((item.samples, item.loss.factor) for item in passes)
    accumulated = backwards[-1].accumulated
    if accumulated is None:
        accumulated = torch.stack([item.gradient for item in passes]).sum(0)
    if divisor is not None:
        mean = math.isfinite(divisor)  # then Opacus' samples are not divided by the batch
        weights = tuple((n, f * n if mean else f) for n, f in weights)
        total = sum(n * f for n, f in weights) / divisor if mean else total
        sizes = [float(item.samples) if mean else 1.0 for item in passes]
        accumulated = torch.stack([n * item.gradient for n, item in zip(sizes, passes, strict=True)]).sum(0)
    if at_step is None or at_step.shape != accumulated.shape or not bool(accumulated.any()):
        return StepFactor(loss, total, 0.0 if divisor is not None else 1.0, weights)
    old, new = (t.to("cpu", torch.float64).numpy().ravel() for t in (accumulated, at_step / scale))
    clipping = float(new @ old / (old @ old))
    altered = float(np.linalg.norm(new - clipping * old)) / max(float(np.linalg.norm(new)), 1e-300)
    return StepFactor(loss, total * clipping, altered, weights)


def labels_of_steps(labels: Sequence[Tensor], check: LossCheck, steps: int) -> tuple[list[Tensor], bool]:
    """Return the labels behind every step, ``[steps]`` of int64 ``[N]``, and whether the loss' gradient shows them.

    Where it does not, shown labels belong to backward passes in their order; where the numbers of both differ, to the
    steps in equal numbers.
    """
    passes = [(item, backward.step) for backward in check.backwards for item in backward.passes]
    used = [item.loss.name in HARD_LABELS for item, step in passes if step in range(steps)]
    visible = bool(used) and not check.failure and all(used)
    if visible:
        owned = [(item.loss.labels.cpu(), step) for item, step in passes]
    elif len(labels) == len(passes):
        owned = [(y, step) for y, (_, step) in zip(labels, passes, strict=True)]
    elif len(labels) == len(check.backwards):
        owned = [(y, item.step) for y, item in zip(labels, check.backwards, strict=True)]
    else:
        owned = []
    if not any(step in range(steps) for _, step in owned):
        owned = [(y, k * steps // len(labels)) for k, y in enumerate(labels)]
    none = torch.empty(0, dtype=torch.long)
    return [torch.cat([none, *(y for y, owner in owned if owner == step)]) for step in range(steps)], visible


def measured_facts(
    steps: StepCheck, check: LossCheck, factors: Sequence[StepFactor], failure: str = ""
) -> dict[str, Any]:
    """Return fields of `Contribution`: what was verified, what speaks against it, and the scale of the update.

    `failure` is what a hook would have raised: then nothing is verified.
    """
    if failure:
        return {"verified": [], "doubts": [f"steps and loss could not be measured ({failure})"]}
    tracks = steps.tracks()
    stepped = [item for item in tracks.values() if len(item.rules) == steps.steps]
    candidates = (
        [item for item in tracks.values() if item.parameter is check.parameter] or stepped or [*tracks.values()]
    )
    track = candidates[-1]
    doubts = _doubts(track, "the head")
    if not doubts and len(track.rules) < steps.steps:
        doubts = [f"the head has a gradient in {len(track.rules)} of {steps.steps} steps"]
    # A bias in front of batch norm has a gradient of rounding errors alone, and no share in the update.
    negligible = 1e-3 * math.hypot(*(item.change for item in tracks.values()))
    shared = {n: item for n, item in tracks.items() if item.rounding <= ROUNDING or item.change > negligible}
    others = [n for n, item in shared.items() if item is not track and _doubts(item, n)]
    if others and not doubts:
        doubts = [f"{_doubts(tracks[others[0]], others[0])[0]} (so of {len(others)} of {len(tracks)} tensors)"]
    facts: dict[str, Any] = {"verified": [] if doubts else ["step"]}
    losses = list(dict.fromkeys(item.loss for item in factors))
    altered = max((item.altered for item in factors), default=0.0)
    if "" in losses and len(losses) > 1:
        doubts.append("a step follows no backward pass: a gradient was used again, or not all of them were seen")
    elif "" not in losses:
        facts["loss"] = " and ".join(losses)
        if losses != [CROSS_ENTROPY]:
            doubts.append(f"the loss is not the mean cross-entropy but {facts['loss']}")
        elif altered > TOLERANCE:
            doubts.append(f"{altered:.0%} of the head's gradient was altered between backward pass and step")
        else:
            facts["verified"].append("loss")
    if "step" in facts["verified"]:
        step_factors = [1.0 if abs(item.factor - 1) < 1e-3 else item.factor for item in factors]
        weights = [c * f for c, f in zip(track.coefficients.steps, step_factors, strict=True)]
        if min(weights) > 0:
            facts |= _scale(tracks, track, weights, step_factors)
        else:
            doubts.append("a step climbs the cross-entropy, or changes nothing")
        rho = facts.pop("rho", ())
        shares = [_misread(factors, weights, rho, alike) for alike in (True, False)] if rho else [0.0, 0.0]
        if shares[0] > UNEVEN or shares[1] > UNEVEN_BATCHES:
            doubts.append(
                f"samples do not weigh alike, so that up to {max(shares):.0%} of the labels are misread (batches or "
                "parts of different sizes or weights, a schedule of rates, clipping)"
            )
    return {**facts, "doubts": doubts}


def _scale(tracks: dict[str, Track], head: Track, weights: list[float], factors: list[float]) -> dict[str, Any]:
    """Return rate, scheme, weight decay and factor, and by how much the steps' weights differ from the scheme's."""
    last = head.rules[-1]
    forms = [("sgd", 0.0), ("nag" if last.nesterov else "sgd", last.momentum)]
    fits = [
        (_spread(weights, rho := _rho(name, momentum, len(weights))), name, momentum, rho) for name, momentum in forms
    ]
    spread, name, momentum, rho = min(fits, key=lambda fit: fit[0])
    lr = weights[-1] / rho[-1] if spread < 1 + 1e-6 else sum(weights) / sum(rho)
    plain = sum(weights) / len(weights)
    same = {n: item.coefficients for n, item in tracks.items() if len(item.rules) == len(factors)}
    rates = {
        n: sum(
            c * f * factor / of_head if of_head else c * f
            for c, f, factor, of_head in zip(unrolled.steps, factors, tracks[n].factors, head.factors, strict=True)
        )
        / len(factors)
        for n, unrolled in same.items()
    }
    # The update takes off each parameter's rate times its decay, and the rate holds the gradient's factor.
    decays = {n: c.decay / (rates[n] * len(factors)) if rates[n] else 0.0 for n, c in same.items()}
    decay = head.coefficients.decay / sum(head.coefficients.steps)
    return {
        "optimiser": name,
        "lr": lr,
        "momentum": momentum,
        "weight_decay": decay,
        "decays": {n: unrolled for n, unrolled in decays.items() if abs(unrolled - decay) > 1e-9},
        "factor": sum(factors) / len(factors),
        "rates": {n: rate for n, rate in rates.items() if abs(rate - plain) > 1e-6 * plain},
        "rho": rho,
    }


def _misread(factors: Sequence[StepFactor], weights: Sequence[float], rho: Sequence[float], alike: bool) -> float:
    """Return the share of a round's weight that lies on other samples than if all weighed alike.

    `alike`: as if batches of different sizes weighed by their size.
    """
    samples: list[tuple[int, float]] = []
    for item, weight, expected in zip(factors, weights, rho, strict=True):
        total = sum(n * w for n, w in item.weights)
        size = sum(n for n, _ in item.weights) if alike else 1
        samples += [(n, weight / expected * size * w / total) for n, w in item.weights] if total else []
    whole, mass = sum(n for n, _ in samples), sum(n * w for n, w in samples)
    return sum(abs(n * w / mass - n / whole) for n, w in samples) / 2 if mass and whole else 0.0


def _rho(name: str, momentum: float, steps: int) -> list[float]:
    kind: Any = name if name == "nag" else "sgdm" if momentum else "fedavg"
    return Scheme(kind, 1.0, steps, momentum).weights().tolist()


def _spread(weights: list[float], rho: list[float]) -> float:
    ratios = [w / r for w, r in zip(weights, rho, strict=True)]
    return max(ratios) / min(ratios)


def _doubts(track: Track, what: str) -> list[str]:
    if track.outside:
        return [f"{what} changed otherwise than by the optimiser's steps"]
    if track.error > TOLERANCE:
        return [f"a step of {what} was not SGD's: {track.ratio:.3g} times as long, and {track.error:.0%} off"]
    if track.rounding > ROUNDING:
        return [f"the steps of {what} are smaller than 20 roundings of its {track.parameter.dtype}"]
    if track.altered > TOLERANCE and what != "the head":
        return [f"{track.altered:.0%} of the gradient of {what} was altered between backward pass and step"]
    if track.rules:
        carried = abs(track.coefficients.carried) * track.carried
        if carried > TOLERANCE * track.change:
            share = carried / max(track.change, 1e-300)
            return [f"{share:.0%} of the change of {what} is momentum from an earlier round"]
    return []
