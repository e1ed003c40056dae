"""Attackers who know that the clients clip, and estimate how much of an update is left.

Clipping multiplies the head's gradient by an unknown factor s. It is then ``s sum_c q_c G_c``, with the shares q of the
classes and the mean gradients G of their auxiliary samples. Non-negative least squares for ``s q`` give both, as the
shares' sum is 1. Where tensors are clipped one by one, the bias has a factor of its own, which follows from q.

DP-SGD clips each sample's gradient at a bound that is public. Auxiliary samples are clipped in the same way.
"""

import copy
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.confidence import mean_by_class
from fedleak.attacks.labels.counts import round_to_total
from fedleak.attacks.labels.inputs import bias_gradient, head_gradient, whole_gradient
from fedleak.attacks.labels.whole_head import MAX_GRADIENT_ENTRIES, WeightedLeastSquares, compute_sample_gradients
from fedleak.attacks.registry import Attack, Need
from fedleak.attacks.result import Prepared
from fedleak.audit.informed import reading
from fedleak.data import Images
from fedleak.errors import WithheldParameter, extra
from fedleak.federated import Scheme, Update
from fedleak.models import HeadPass, as_inputs, head, head_pass

SUFFIX = ", at an estimated scale"
LEAST_SQUARES = "least squares" + SUFFIX
CLIPPED_SAMPLES = "RLU on clipped samples"
NEEDS = frozenset({Need.HEAD_GRADIENT, Need.SAMPLE_COUNT, Need.MODEL, Need.AUXILIARY_DATA})
MAX_SAMPLES = 2000
"""Auxiliary samples that are used, at most: as many of each class as there are."""
ROUNDS = 3
"""Estimates of an update of several steps, each with the client's model at the scale of the one before."""


def clipping_attacks(model: nn.Module, aux: Images, attacks: list[Attack]) -> list[Attack]:
    """Return the attacks of an adversary who undoes clipping, but for those that are trained behind it.

    There are none where the head is too large for one auxiliary sample of each class.
    """
    if (some := usable(model, aux)) is None:
        return []
    estimate = cache(lambda: make_estimate(model, some))
    readers = (attack for attack in attacks if not (attack.blind or attack.trained or attack.sends))
    return [_scale_free(estimate), *(_at_scale(attack, estimate) for attack in readers if attack.sees == "one update")]


def usable(model: nn.Module, aux: Images) -> Images | None:
    """Return as many auxiliary samples, alike of each class, as the head's size allows; None if it allows too few."""
    most = min(MAX_SAMPLES, MAX_GRADIENT_ENTRIES // (head(model).layer.weight.numel() + aux.n_classes))
    if len(aux) <= most or most < aux.n_classes:
        return aux if most >= aux.n_classes else None
    rank = nn.functional.one_hot(aux.y, aux.n_classes).cumsum(0).gather(1, aux.y[:, None]).flatten()
    return aux.take(rank.argsort(stable=True)[:most])


def clipped_samples_attack(model: nn.Module, aux: Images, bound: float) -> list[Attack]:
    """Return the attack on DP-SGD with this bound: least squares on the last layer, with clipped auxiliary samples."""
    if (some := usable(model, aux)) is None:
        return []

    def prepare(model: nn.Module, aux: Images) -> Prepared:
        last = head(model)
        norms = sample_norms(model, some)
        gradients = compute_sample_gradients([head_pass(model, as_inputs(some.x, model))], some, torch.ones(1))
        clipped = gradients * (bound / norms).clamp(max=1).double()[:, None, None]

        @cache
        def make_system(has_bias: bool) -> WeightedLeastSquares:
            parts = clipped if has_bias else clipped[..., :-1]
            return WeightedLeastSquares(parts.flatten(1), some.y, some.n_classes)

        def read(update: Update) -> Tensor:
            has_bias = last.layer.bias is not None and last.bias in update.tensors
            gradient = (whole_gradient if has_bias else head_gradient)(update, model).flatten()
            return round_to_total(make_system(has_bias).solve(gradient, update.samples), update.samples)

        return Prepared(CLIPPED_SAMPLES, read)

    summary = "Generalised least squares on the head's gradient, with auxiliary samples clipped as in DP-SGD."
    return [Attack(CLIPPED_SAMPLES, "labels", NEEDS, summary, prepare, prepares=True)]


@extra("book")
def sample_norms(model: nn.Module, aux: Images) -> Tensor:
    """Return the norm of each sample's gradient over all trained parameters, ``[N]``, by Opacus as in DP-SGD."""
    from opacus import GradSampleModule

    module = GradSampleModule(copy.deepcopy(model).train(), loss_reduction="sum")
    for part in module.modules():  # Opacus reads layers in training mode alone; dropout stays as it is in the model
        part.training = any(True for _ in part.parameters(recurse=False))
    trained, norms = [p for p in module.parameters() if p.requires_grad], []
    chunk = max(1, MAX_GRADIENT_ENTRIES // sum(p.numel() for p in trained))
    for x, y in zip(aux.x.split(chunk), aux.y.split(chunk), strict=True):
        nn.functional.cross_entropy(module(as_inputs(x, model)), y, reduction="sum").backward()
        norms.append(torch.stack([p.grad_sample.flatten(1).norm(dim=1) for p in trained]).norm(dim=0))
        module.zero_grad(set_to_none=True)
    return torch.cat(norms)


Estimate = Callable[[Update, Scheme | None], tuple[Update, Tensor]]


def make_estimate(model: nn.Module, aux: Images) -> Estimate:
    """Return a function that undoes the clipping of an update, and returns it with the classes' shares ``[n]``.

    It raises `ValueError` where no scale fits, and errors as `head_gradient`.
    """
    last = head(model)
    before = head_pass(model, as_inputs(aux.x, model))
    latest: list[tuple[Update, Scheme | None, tuple[Update, Tensor]]] = []  # several attacks read the same update

    def make_system(passes: Sequence[HeadPass], step_weight: float) -> tuple[WeightedLeastSquares, Tensor]:
        weights = torch.full((len(passes),), step_weight).double()
        gradients = compute_sample_gradients(passes, aux, weights)
        system = WeightedLeastSquares(gradients[..., :-1].flatten(1), aux.y, aux.n_classes)
        return system, mean_by_class(gradients[..., -1], aux.y, aux.n_classes)

    system_before = cache(lambda step_weight: make_system([before], step_weight))

    def end_model(update: Update) -> nn.Module | None:
        try:
            return update.model(model) if update.steps > 1 else None
        except WithheldParameter:  # the gradients before the round have to do
            return None

    def estimate(update: Update, scheme: Scheme | None) -> tuple[Update, Tensor]:
        answer = next((answer for u, s, answer in latest if u is update and s is scheme), None)
        if answer is None:
            answer = compute(update, scheme)
            latest[:] = [*latest[-1:], (update, scheme, answer)]
        return answer

    def compute(update: Update, scheme: Scheme | None) -> tuple[Update, Tensor]:
        has_bias = last.layer.bias is not None and last.bias in update.tensors
        weight, step_weight = head_gradient(update, model), 1.0 if scheme is None else float(scheme.weights().mean())
        corrected, shares = update, torch.full((len(weight),), 1 / len(weight)).to(weight)
        for _ in range(ROUNDS):
            system, of_bias = system_before(step_weight)
            if corrected is not update and (end := end_model(corrected)) is not None:
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
        return corrected, shares

    return estimate


def _scale_free(estimate: Callable[[], Estimate]) -> Attack:
    """Return the attack that takes the estimated shares for its answer."""

    def recover(update: Update, model: nn.Module, aux: Images, *, scheme: Scheme | None = None) -> Tensor:
        _, shares = estimate()(update, scheme)
        return round_to_total(update.samples * shares, update.samples)

    summary = "Non-negative least squares on the gradient of the head's weights, whose scale is unknown."
    return Attack(LEAST_SQUARES, "labels", NEEDS, summary, recover, options={"scheme"})


def _at_scale(attack: Attack, estimate: Callable[[], Estimate]) -> Attack:
    """Return an attack that undoes the clipping of an update before it reads it."""

    def change(update: Update, options: dict[str, Any]) -> tuple[Update, dict[str, Any]]:
        return estimate()(update, options.get("scheme"))[0], options

    return reading(attack, SUFFIX, change, needs=attack.needs | NEEDS)
