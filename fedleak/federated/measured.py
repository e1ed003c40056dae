"""Combine the measurements of a client's loss and steps into facts, and the scale at which its update is read."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedleak.federated.loss_check import Backward, LossCheck
from fedleak.federated.loss_identity import CROSS_ENTROPY, SAMPLE_WEIGHTED, SMOOTHED, WEIGHTED
from fedleak.federated.schemes import Scheme
from fedleak.federated.step_check import StepCheck, Track

MAX_DEVIATION = 0.01
"""Largest deviation of a verified step or loss gradient, as a share of its size."""
MAX_ROUNDING = 0.05
"""Largest rounding error of a verified step, as a share of its size."""
MAX_MISREAD, MAX_MISREAD_BY_SIZE = 0.05, 0.25
"""Largest share of misread labels because samples have different weights (half the sum of the differences): by rates
and parts of a batch; including batches of different sizes, with which most rounds end."""
HARD_LABELS = (CROSS_ENTROPY, WEIGHTED, SAMPLE_WEIGHTED, SMOOTHED)


class StepFactor(NamedTuple):
    """The head's gradient at a step, compared with that of the mean cross-entropy over the step's samples."""

    loss: str = ""
    """Name of the loss; "" if the head was not reached."""
    factor: float = 1.0
    """The gradient as a multiple of the mean cross-entropy's, or of the backward passes' for other losses."""
    altered: float = 0.0
    """Part of the gradient that is not a multiple of the backward passes' result, as a share of its size."""
    weights: tuple[tuple[int, float], ...] = ()
    """Number of samples of each forward pass, and weight of one sample, in any unit."""


def compare_step_gradient(
    backwards: Sequence[Backward], at_step: Tensor | None, scale: float = 1.0, divisor: float | None = None
) -> StepFactor:
    """Compare the gradient at a step with the result of its backward passes.

    Parameters
    ----------
    backwards
        The backward passes whose gradients the step uses.
    at_step
        The head's gradient at the step, after clipping; None if it has none.
    scale
        Number by which the optimiser divides the gradient (GradScaler).
    divisor
        Number by which Opacus divides the sum of the samples' gradients, infinity if the loss is a sum; None without
        Opacus. With it the factor is computed, because its noise prevents a measurement.
    """
    reached_head = any(backward.passes for backward in backwards)
    passes = [item for backward in backwards for item in backward.passes if item.samples]
    if not passes:
        return StepFactor(CROSS_ENTROPY if reached_head else "")
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


def assign_labels_to_steps(
    labels: Sequence[Tensor], check: LossCheck, factors: Sequence[StepFactor], changed_outside: bool = False
) -> tuple[list[Tensor], bool]:
    """Return the labels of each step, ``[steps]`` of int64 ``[N]``, and whether the loss' gradient shows them.

    It does not if a step's gradient is another than that of its backward passes (`factors`), or of one of two heads, or
    if parameters `changed_outside` the steps and no step used a backward pass, as with a second optimiser.
    Then the recorded labels are assigned evenly to the steps, or for a loss that shows none to the backward passes in
    their order, if there are as many.
    """
    steps = len(factors)
    passes = [(item, backward.step) for backward in check.backwards for item in backward.passes]
    has_hard_labels = [item.loss.name in HARD_LABELS for item, step in passes if step in range(steps)]
    is_sum = all(item.altered <= MAX_DEVIATION for item in factors) and check.n_heads == 1
    is_sum &= not (changed_outside and any(item.step is None and item.passes for item in check.backwards))
    shows_labels = bool(has_hard_labels) and not check.failure and all(has_hard_labels) and is_sum
    if shows_labels:
        pairs = [(item.loss.labels.cpu(), step) for item, step in passes]
    elif not is_sum:
        pairs = []
    elif len(labels) == len(passes):
        pairs = [(y, step) for y, (_, step) in zip(labels, passes, strict=True)]
    elif len(labels) == len(check.backwards):
        pairs = [(y, item.step) for y, item in zip(labels, check.backwards, strict=True)]
    else:
        pairs = []
    if not any(step in range(steps) for _, step in pairs):
        pairs = [(y, k * steps // len(labels)) for k, y in enumerate(labels)]
    no_labels = torch.empty(0, dtype=torch.long)
    labels_of_steps = [torch.cat([no_labels, *(y for y, k in pairs if k == step)]) for step in range(steps)]
    return labels_of_steps, shows_labels


def collect_facts(
    steps: StepCheck, check: LossCheck, factors: Sequence[StepFactor], failure: str = ""
) -> dict[str, Any]:
    """Return fields of `Contribution`: verified facts, doubts, and the scale of the update.

    `failure` is the error of a hook; with one nothing is verified.
    """
    if failure:
        return {"verified": [], "doubts": [f"steps and loss could not be measured ({failure})"]}
    tracks = steps.collect_tracks()
    stepped_always = [item for item in tracks.values() if len(item.rules) == steps.steps]
    candidates = (
        [item for item in tracks.values() if item.parameter is check.parameter] or stepped_always or [*tracks.values()]
    )
    track = candidates[-1]
    doubts = _list_doubts(track, "the head")
    if not doubts and len(track.rules) < steps.steps:
        doubts = [f"the head has a gradient in {len(track.rules)} of {steps.steps} steps"]
    # A bias before batch norm has a gradient of rounding errors, and is a negligible part of the update.
    negligible = 1e-3 * math.hypot(*(item.change for item in tracks.values()))
    shared_tracks = {n: item for n, item in tracks.items() if item.rounding <= MAX_ROUNDING or item.change > negligible}
    others = [n for n, item in shared_tracks.items() if item is not track and _list_doubts(item, n)]
    if others and not doubts:
        doubts = [f"{_list_doubts(tracks[others[0]], others[0])[0]} (so of {len(others)} of {len(tracks)} tensors)"]
    partly = [n for n, item in shared_tracks.items() if 0 < len(item.rules) < steps.steps and item.change > negligible]
    if partly and not doubts:
        doubts = [f"{partly[0]} has a gradient in {len(tracks[partly[0]].rules)} of {steps.steps} steps"]
    facts: dict[str, Any] = {"verified": [] if doubts else ["step"]}
    losses = list(dict.fromkeys(item.loss for item in factors))
    altered = max((item.altered for item in factors), default=0.0)
    if "" in losses and len(losses) > 1:
        doubts.append("a step follows no backward pass: a gradient was used again, or not all of them were seen")
    elif "" not in losses:
        facts["loss"] = " and ".join(losses)
        if losses != [CROSS_ENTROPY]:
            doubts.append(f"the loss is not the mean cross-entropy but {facts['loss']}")
        elif check.n_heads > 1:
            doubts.append(f"the loss is of {check.n_heads} outputs of the model, each of a last layer of its own")
        elif altered > MAX_DEVIATION:
            doubts.append(f"{altered:.0%} of the head's gradient was altered between backward pass and step")
        else:
            facts["verified"].append("loss")
    if "step" in facts["verified"]:
        step_factors = [1.0 if abs(item.factor - 1) < 1e-3 else item.factor for item in factors]
        weights = [c * f for c, f in zip(track.coefficients.steps, step_factors, strict=True)]
        if min(weights) > 0:
            facts |= _fit_scheme(tracks, track, weights, step_factors)
        else:
            doubts.append("a step climbs the cross-entropy, or changes nothing")
        rho, weights_of = facts.pop("rho", ()), facts.pop("weights_of", {})
        # Attacks combine the head's weight and bias; the layers below are read by themselves.
        layer = next(n for n, item in tracks.items() if item is track).rpartition(".")[0]
        of_head = [weights_of[n] for n in shared_tracks if n in weights_of and n.rpartition(".")[0] == layer]
        kinds = [weights, *of_head] if rho else []
        shares = [[_misread_share(factors, w, rho, by_size) for w in kinds] for by_size in (True, False)]
        if any(
            max(of, default=0.0) > most for of, most in zip(shares, (MAX_MISREAD, MAX_MISREAD_BY_SIZE), strict=True)
        ):
            doubts.append(
                f"samples do not weigh alike, so that up to {max(map(max, shares)):.0%} of the labels are misread "
                "(batches or parts of different sizes or weights, a schedule of rates, clipping)"
            )
    return {**facts, "doubts": doubts}


def _fit_scheme(tracks: dict[str, Track], head: Track, weights: list[float], factors: list[float]) -> dict[str, Any]:
    """Return rate, scheme, weight decay and factor of the scheme that fits the steps' weights best.

    ``rho`` has the scheme's weights of the steps, ``weights_of`` those of each parameter.
    """
    last = head.rules[-1]
    rules = [("sgd", 0.0), ("nag" if last.nesterov else "sgd", last.momentum)]
    fits = [
        (_ratio_spread(weights, rho := _scheme_weights(name, momentum, len(weights))), name, momentum, rho)
        for name, momentum in rules
    ]
    spread, name, momentum, rho = min(fits, key=lambda fit: fit[0])
    lr = weights[-1] / rho[-1] if spread < 1 + 1e-6 else sum(weights) / sum(rho)
    mean_weight = sum(weights) / len(weights)
    by_name = {n: item.coefficients for n, item in tracks.items() if len(item.rules) == len(factors)}
    weights_of = {
        n: [
            c * f * factor / of_head if of_head else c * f
            for c, f, factor, of_head in zip(unrolled.steps, factors, tracks[n].factors, head.factors, strict=True)
        ]
        for n, unrolled in by_name.items()
    }
    rates = {n: sum(of_steps) / len(factors) for n, of_steps in weights_of.items()}
    # The update subtracts each parameter's rate times its decay; the rate includes the gradient's factor.
    decays = {n: c.decay / (rates[n] * len(factors)) if rates[n] else 0.0 for n, c in by_name.items()}
    decay = head.coefficients.decay / abs(sum(head.coefficients.steps))  # negative for an optimiser that maximizes
    return {
        "optimiser": name,
        "lr": lr,
        "momentum": momentum,
        "weight_decay": decay,
        "decays": {n: value for n, value in decays.items() if abs(value - decay) > 1e-9},
        "factor": sum(factors) / len(factors),
        "rates": {n: rate for n, rate in rates.items() if abs(rate - mean_weight) > 1e-6 * mean_weight},
        "rho": rho,
        "weights_of": weights_of,
    }


def _misread_share(
    factors: Sequence[StepFactor], weights: Sequence[float], rho: Sequence[float], by_size: bool
) -> float:
    """Return the share of a round's weight that is on other samples than if all had the same weight.

    With `by_size` batches are weighted by their size first.
    """
    samples: list[tuple[int, float]] = []
    for item, weight, expected in zip(factors, weights, rho, strict=True):
        total = sum(n * w for n, w in item.weights)
        size = sum(n for n, _ in item.weights) if by_size else 1
        samples += [(n, weight / expected * size * w / total) for n, w in item.weights] if total else []
    n_samples, mass = sum(n for n, _ in samples), sum(n * w for n, w in samples)
    return sum(abs(n * w / mass - n / n_samples) for n, w in samples) / 2 if mass and n_samples else 0.0


def _scheme_weights(name: str, momentum: float, steps: int) -> list[float]:
    kind: Any = name if name == "nag" else "sgdm" if momentum else "fedavg"
    return Scheme(kind, 1.0, steps, momentum).weights().tolist()


def _ratio_spread(weights: list[float], rho: list[float]) -> float:
    ratios = [w / r for w, r in zip(weights, rho, strict=True)]
    return max(ratios) / min(ratios)


def _list_doubts(track: Track, what: str) -> list[str]:
    if track.outside:
        return [f"{what} changed otherwise than by the optimiser's steps"]
    if track.error > MAX_DEVIATION:
        return [f"a step of {what} was not SGD's: {track.ratio:.3g} times as long, and {track.error:.0%} off"]
    if track.rounding > MAX_ROUNDING:
        return [f"the steps of {what} are smaller than 20 roundings of its {track.parameter.dtype}"]
    if track.altered > MAX_DEVIATION and what != "the head":
        return [f"{track.altered:.0%} of the gradient of {what} was altered between backward pass and step"]
    if track.hooked and what != "the head":
        return [f"a hook may change the gradient of {what} in the backward pass"]
    if track.decay_error > MAX_DEVIATION * track.change:
        share = track.decay_error / max(track.change, 1e-300)
        return [f"weight decay cannot be separated from the steps of {what} ({share:.0%} of its change)"]
    if track.rules:
        carried = abs(track.coefficients.carried) * track.carried
        if carried > MAX_DEVIATION * track.change:
            share = carried / max(track.change, 1e-300)
            return [f"{share:.0%} of the change of {what} is momentum from an earlier round"]
    return []
