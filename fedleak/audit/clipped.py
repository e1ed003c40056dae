"""Attackers who know that the clients clip, and estimate how much of an update is left.

Clipping multiplies the head's gradient by an unknown factor s. It is then ``s sum_c q_c G_c``, with the shares q of the
classes and the mean gradients G of their auxiliary samples. Non-negative least squares for ``s q`` give both, as the
shares' sum is 1. Where tensors are clipped one by one, the bias has a factor of its own, which follows from q.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.confidence import mean_by_class
from fedleak.attacks.labels.inputs import bias_gradient, head_gradient
from fedleak.attacks.labels.whole_head import MAX_GRADIENT_ENTRIES, WeightedLeastSquares, compute_sample_gradients
from fedleak.attacks.registry import Attack, Need
from fedleak.attacks.result import Prepared
from fedleak.data import Images
from fedleak.federated import Scheme, Update
from fedleak.models import HeadPass, as_inputs, head, head_pass

SUFFIX = ", at an estimated scale"
MAX_SAMPLES = 2000
"""Auxiliary samples that are used, at most: as many of each class as there are."""
ROUNDS = 3
"""Estimates of an update of several steps, each with the client's model at the scale of the one before."""


def clipping_attacks(model: nn.Module, aux: Images, attacks: list[Attack]) -> list[Attack]:
    """Return the attacks of an adversary who undoes clipping.

    There is none for attacks that are trained behind it, and none at all where the head is too large for `MAX_SAMPLES`
    auxiliary samples, or one of each class.
    """
    most = min(MAX_SAMPLES, MAX_GRADIENT_ENTRIES // (head(model).layer.weight.numel() + aux.n_classes))
    if most < aux.n_classes:
        return []
    rank = nn.functional.one_hot(aux.y, aux.n_classes).cumsum(0).gather(1, aux.y[:, None]).flatten()
    some = aux.take(rank.argsort(stable=True)[:most])
    rescale = cache(lambda: make_rescale(model, some))
    return [_at_scale(attack, rescale) for attack in attacks if not attack.blind and not attack.trained]


def make_rescale(model: nn.Module, aux: Images) -> Callable[[Update, Scheme | None], Update]:
    """Return a function that undoes the clipping of a client's update.

    It raises `ValueError` where no scale fits, and errors as `head_gradient`.
    """
    last = head(model)
    before = head_pass(model, as_inputs(aux.x, model))
    read: list[tuple[Update, Scheme | None, Update]] = []  # the last ones, which several attacks read

    def make_system(passes: Sequence[HeadPass], step_weight: float) -> tuple[WeightedLeastSquares, Tensor]:
        weights = torch.full((len(passes),), step_weight).double()
        gradients = compute_sample_gradients(passes, aux, weights)
        system = WeightedLeastSquares(gradients[..., :-1].flatten(1), aux.y, aux.n_classes)
        return system, mean_by_class(gradients[..., -1], aux.y, aux.n_classes)

    system_before = cache(lambda step_weight: make_system([before], step_weight))

    def rescale(update: Update, scheme: Scheme | None) -> Update:
        known = next((corrected for u, s, corrected in read if u is update and s is scheme), None)
        if known is None:
            read[:] = [*read[-1:], (update, scheme, known := compute(update, scheme))]
        return known

    def compute(update: Update, scheme: Scheme | None) -> Update:
        has_bias = last.layer.bias is not None and last.bias in update.tensors
        weight, step_weight = head_gradient(update, model), 1.0 if scheme is None else float(scheme.weights().mean())
        corrected, shares = update, torch.full((len(weight),), 1 / len(weight)).to(weight)
        for _ in range(ROUNDS):
            system, of_bias = system_before(step_weight)
            if corrected is not update and update.steps > 1:
                end = corrected.model(model)
                system, of_bias = make_system([before, head_pass(end, as_inputs(aux.x, end))], step_weight)
            solution = system.solve_rescaled(weight.flatten(), shares)
            if not solution.any():
                raise ValueError("no scale makes the head's gradient a mean of auxiliary samples' gradients")
            scale, shares = float(solution.sum()), solution / solution.sum()
            factors = dict.fromkeys(update.tensors, scale)
            if has_bias:
                bias = shares @ of_bias
                ratio = float(bias_gradient(update, model) @ bias / (bias @ bias).clamp(min=1e-300))
                factors[last.bias] = ratio if ratio > 0 else scale
            corrected = update.replace({name: t / factors[name] for name, t in update.tensors.items()})
        return corrected

    return rescale


def _at_scale(attack: Attack, rescale: Callable[[], Callable[[Update, Scheme | None], Update]]) -> Attack:
    """Return an attack that undoes the clipping of an update before it reads it."""
    recover, name = attack.function, attack.name + SUFFIX

    def once(update: Update, model: Any, **options: Any) -> Any:
        return recover(rescale()(update, options.get("scheme")), model, **options)

    def prepare(model: Any, **options: Any) -> Prepared:
        prepared = recover(model, **options)
        return Prepared(name, lambda u, **more: prepared.read(rescale()(u, more.get("scheme")), **more))

    function = wraps(recover)(prepare if attack.prepares else once)
    needs = attack.needs | {Need.AUXILIARY_DATA, Need.MODEL, Need.HEAD_GRADIENT}
    return replace(attack, name=name, function=function, needs=needs)
