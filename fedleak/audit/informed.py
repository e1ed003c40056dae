"""Attackers who know the clients' loss: the same attacks, or linear systems, corrected for it.

A factor changes the scale alone: every attack reads the update as the mean cross-entropy would have sent it. Class
weights and soft targets change how much a sample counts: with t, T and D of `fedleak.federated.losses`, the mean
gradient of the head's outputs is ``g = sum_i (t[y_i] p_i - T[y_i]) / D``. Given the mean softmax p_c of each class, it
is linear in the counts n where D is 1, ``sum_c n_c (t_c p_c - T_c) = steps g``. Where D is the sum of ``d[y_i]``, it is
linear in the shares ``q_c = n_c d_c / D``: ``sum_c q_c (t_c p_c - T_c) / d_c = g``. The head's weights give the same
equations, each sample's times its inputs.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.counts import round_to_total, solve
from fedleak.attacks.labels.inputs import bias_gradient, head_gradient, require_classes
from fedleak.attacks.labels.whole_head import MAX_GRADIENT_ENTRIES, WeightedLeastSquares
from fedleak.attacks.registry import Attack, Need
from fedleak.attacks.result import Prepared
from fedleak.data import Images
from fedleak.federated import Scheme, Update
from fedleak.federated.losses import TOLERANCE, LossForm
from fedleak.models import HeadPass, as_inputs, head, head_pass

SUFFIX = ", informed of the loss"


def informed_attacks(form: LossForm, batch_size: int, attacks: list[Attack]) -> list[Attack]:
    """Return the attacks of an adversary informed of a loss of this form; none for the mean cross-entropy."""
    if (form.weights < TOLERANCE * form.weights.max()).any():
        return []  # samples of a class without weight leave no trace
    factor = form.factor(batch_size)
    if factor is None:
        return [_from_model(form), _from_auxiliary(form)]
    equal = abs(factor - 1) < TOLERANCE
    return [] if equal else [_rescaled(attack, factor) for attack in attacks if not attack.blind]


def as_mean(update: Update, factor: float) -> Update:
    """Return the update that the mean cross-entropy would have sent, of one that is `factor` times as large."""
    rate = update.lr and update.lr * factor
    if update.kind == "delta":
        return Update(update.tensors, "delta", update.samples, update.steps, rate)
    tensors = {name: tensor / factor for name, tensor in update.tensors.items()}
    return Update(tensors, "gradient", update.samples, update.steps, rate)


def reading(
    attack: Attack,
    suffix: str,
    change: Callable[[Update, dict[str, Any]], tuple[Update, dict[str, Any]]],
    **fields: Any,
) -> Attack:
    """Return an attack that reads what `change` makes of an update and of the options that are passed with it.

    Its name has the `suffix`; other fields are replaced, too. Auxiliary data that only the change needs are not passed.
    """
    recover = attack.function

    def accepted(options: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in options.items() if name != "aux" or name in attack.options}

    def once(update: Update, model: Any, **options: Any) -> Any:
        changed, options = change(update, options)
        return recover(changed, model, **accepted(options))

    def prepare(model: Any, **options: Any) -> Prepared:
        prepared = recover(model, **accepted(options))

        def read(update: Update, **options: Any) -> Any:
            changed, options = change(update, options)
            return prepared.read(changed, **accepted(options))

        return Prepared(attack.name + suffix, read)

    function = wraps(recover)(prepare if attack.prepares else once)
    return replace(attack, name=attack.name + suffix, function=function, **fields)


def _rescaled(attack: Attack, factor: float) -> Attack:
    """Return an attack that takes the loss's factor off an update before it reads it."""

    def change(update: Update, options: dict[str, Any]) -> tuple[Update, dict[str, Any]]:
        scheme: Scheme | None = options.get("scheme")
        if scheme is not None:
            pull = scheme.regularisation / factor  # the quadratic term has no part in the loss's factor
            options = {**options, "scheme": replace(scheme, lr=scheme.lr * factor, regularisation=pull)}
        return as_mean(update, factor), options

    return reading(attack, SUFFIX, change)


def _per_step(gradient: Tensor, scheme: Scheme | None) -> Tensor:
    return gradient if scheme is None else gradient / scheme.weights().mean().to(gradient)


def _from_model(form: LossForm) -> Attack:

    def recover(update: Update, model: nn.Module, *, scheme: Scheme | None = None) -> Tensor:
        layer = head(model).layer
        weight, bias = (_per_step(g(update, model), scheme) for g in (head_gradient, bias_gradient))
        embeddings = weight / bias.where(bias != 0, torch.finfo(bias.dtype).tiny ** 0.5)[:, None]
        logits = embeddings @ layer.weight.detach().double().T + layer.bias.detach().double()
        system = _errors(form, logits.softmax(1), torch.arange(len(bias))).T
        scale = update.steps if form.norms is None else update.samples
        return _counts(form, solve(system, scale * bias, update.samples))

    needs = {Need.HEAD_GRADIENT, Need.BIAS_GRADIENT, Need.SAMPLE_COUNT, Need.MODEL}
    summary = "iLRG's estimate of each class's softmax, in the linear system that follows from the clients' loss."
    name = "iLRG" + SUFFIX
    return Attack(name, "labels", frozenset(needs), summary, recover, paper="ma2023ilrg", options={"scheme"})


def _from_auxiliary(form: LossForm) -> Attack:

    def prepare(model: nn.Module, aux: Images) -> Prepared:
        last = head(model)
        require_classes(aux, last.layer.out_features)
        before = cache(lambda: head_pass(model, as_inputs(aux.x, model)))

        def read(update: Update, *, scheme: Scheme | None = None) -> Tensor:
            ends = [before()]
            if update.steps > 1:
                ends.append(head_pass(update.model(model), as_inputs(aux.x, model)))
            has_bias = last.layer.bias is not None and last.bias in update.tensors
            small = len(aux) * last.layer.weight.numel() <= MAX_GRADIENT_ENTRIES
            parts = [head_gradient(update, model)] * (small or not has_bias)
            if has_bias:
                parts.append(bias_gradient(update, model)[:, None])
            gradient = _per_step(torch.cat(parts, 1), scheme)
            inputs = [_inputs(passed, gradient.shape[1], has_bias) for passed in ends]
            errors = (_errors(form, passed.probabilities.double(), aux.y) for passed in ends)
            rows = torch.stack([torch.einsum("sn,sd->snd", e, x) for e, x in zip(errors, inputs, strict=True)]).mean(0)
            scale = update.steps / update.samples if form.norms is None else 1.0
            equations = WeightedLeastSquares(rows.flatten(1), aux.y, aux.n_classes)
            return _counts(form, equations.solve(scale * gradient.flatten(), update.samples))

        return Prepared("RLU, whole head" + SUFFIX, read)

    needs = {Need.HEAD_GRADIENT, Need.SAMPLE_COUNT, Need.MODEL, Need.AUXILIARY_DATA}
    summary = "Generalised least squares on the head's gradient, with what each auxiliary sample adds under the loss."
    more: dict[str, Any] = {"paper": "chen2024rlu", "options": {"scheme"}, "prepares": True}
    return Attack("RLU, whole head" + SUFFIX, "labels", frozenset(needs), summary, prepare, **more)


def _errors(form: LossForm, probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return ``t p - T``, over d where there is one, of samples with this softmax ``[N, n]`` and these labels."""
    errors = form.weights[labels, None] * probabilities - form.targets[labels]
    return errors if form.norms is None else errors / form.norms[labels, None]


def _counts(form: LossForm, solution: Tensor) -> Tensor:
    """Return whole counts ``[n]`` of a solution of this sum: real counts, or shares times the samples."""
    samples = round(float(solution.sum()))
    if form.norms is not None:
        solution = solution / form.norms
        solution = solution * samples / solution.sum()
    return round_to_total(solution, samples)


def _inputs(passed: HeadPass, width: int, has_bias: bool) -> Tensor:
    """Return the head's inputs that a gradient of this width has, ``[N, width]``; a bias's, 1, is the last."""
    inputs = passed.inputs.double()
    return nn.functional.pad(inputs, (0, 1), value=1.0)[:, -width:] if has_bias else inputs
