"""Compare the state that leaves a client with the received one and SGD's steps, tensor by tensor."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedleak.recording.measurement import NO_CROSS_ENTROPY, Measurement, Rule

MAX_DEVIATION = 0.01
"""Largest part of a tensor's change that SGD's steps may leave unexplained."""
MAX_ROUNDING = 0.05
"""Largest rounding of a tensor's numbers, as a share of its change."""
NEGLIGIBLE = 1e-4
"""Share of the whole change below which a tensor's own is not compared, such as that of a bias before batch norm."""
MAX_MISREAD, MAX_MISREAD_BY_SIZE = 0.025, 0.25
"""Largest share of misread labels because steps weigh unequally: by rates alone, and with batches of unequal size."""


class NotMeasurable(ValueError):
    """A round is not SGD on the mean cross-entropy, or nothing shows that it is."""


class Measured(NamedTuple):
    """The result of a measurement, in fields of `fedleak.recording.folder.Contribution`."""

    batches: Sequence[Tensor]
    """Labels of each step."""
    rule: Rule
    """The scheme that makes the head's change from the mean cross-entropy: its rate includes the loss's factor."""
    scales: dict[str, float]
    """By measured tensor, its rate as a multiple of the head's."""
    decays: dict[str, float]
    """By tensor with weight decay, the share of its weights that the change takes off."""


def compare(m: Measurement, shown: Tensor, before: Mapping[str, Tensor], sent: Mapping[str, Tensor]) -> Measured:
    """Compare the state that leaves the client, or the part of it that does, with the received one.

    Raises `NotMeasurable` with the first fact that does not hold.

    Parameters
    ----------
    m
        The sums of SGD's steps.
    shown
        Labels that the client showed, int64 ``[N]``.
    before, sent
        The received state, and the one that leaves the client, by the model's names.
    """
    if m.failed or m.head is None:
        raise NotMeasurable(m.failed or NO_CROSS_ENTROPY)
    _compare_labels(shown, torch.cat([torch.empty(0, dtype=torch.long), *m.labels]), m.left_out)
    changes = {n: (before[n].double() - t.to(before[n]).double()).cpu() for n, t in sent.items() if n in m.parameters}
    total = float(sum(change.square().sum() for change in changes.values())) ** 0.5
    layer = dict(m.model.named_modules())[m.head]
    own = {id(p) for p in layer.parameters()}
    head = [name for name, p in m.parameters.items() if id(p) in own]
    if untrained := [n for n, change in changes.items() if change.any() and not any(m.rules[n])]:
        raise NotMeasurable(f"{untrained[0]} changed, and no step trained it")
    batches, decays = [labels for labels in m.labels if len(labels)], dict[str, float]()
    rates = {
        name: _compare_tensor(m, name, change, (before[name], sent[name]), decays)
        for name, change in changes.items()
        if max(change.norm(), m.total[name].norm() if name in m.total else 0.0)
        > (name not in head) * NEGLIGIBLE * total
    }
    if not rates:
        raise NotMeasurable("nothing that was trained has changed")
    # An attack takes all steps at one rate: that of plain SGD is `rate`, and a momentum's weights are its scheme's.
    first = next(name for name in (*head, *rates) if name in rates)
    rate, rule = rates[first], next(rule for rule in m.rules[first] if rule is not None)
    rule = rule._replace(lr=rate * len(batches) / sum(_scheme(rule, len(batches))))
    moving = (name for name in changes if name in rates or any(r and r.lr for r in m.rules[name]))
    return Measured(batches, rule, {name: rates.get(name, rate) / rate for name in moving}, decays)


def _compare_tensor(
    m: Measurement, name: str, change: Tensor, states: tuple[Tensor, Tensor], decays: dict[str, float]
) -> float:
    """Return the rate of plain SGD for a parameter's change, and note its weight decay."""
    zero = torch.zeros((), dtype=torch.float64)
    by_gradient, by_decay = (part[name].cpu().double() if name in part else zero for part in (m.total, m.decay))
    before, sent = (state.cpu().double() for state in states)
    size = float(change.norm().clamp(min=1e-300))
    # Each step rounds the weights, and the upload's precision may be lower.
    eps = max(torch.finfo(state.dtype).eps for state in states)
    rounding = eps * float(before.norm()) * math.sqrt(m.steps) / size
    multiple = float(((change - by_decay) * by_gradient).sum() / by_gradient.square().sum().clamp(min=1e-300))
    if not multiple > 0:
        raise NotMeasurable(f"{name} did not move, or against the direction of SGD's steps")
    if rounding > MAX_ROUNDING:
        raise NotMeasurable(f"{name}: its numbers ({states[1].dtype}) are too coarse for its change")
    off = float((change - by_decay - multiple * by_gradient).norm()) / size
    if not off <= MAX_DEVIATION + rounding:
        raise NotMeasurable(f"{off:.0%} of the change of {name} is not SGD's on the mean cross-entropy of the labels")
    if by_decay.dim():  # an attack takes it off again, as a share of weights that lie between both states
        weights = (before + sent) / 2 if m.steps > 1 else before
        decays[name] = float((by_decay * weights).sum() / weights.square().sum().clamp(min=1e-300))
        if (by_decay - decays[name] * weights).norm() > MAX_DEVIATION * size:
            raise NotMeasurable(f"{name}: its weight decay cannot be separated from its change")
    rules = m.rules[name]
    batches = [(w, labels) for w, labels in zip(_unroll(tuple(rules)), m.labels, strict=True) if len(labels)]
    of_steps = torch.tensor([w for w, _ in batches], dtype=torch.float64)
    misread = _misread([labels for _, labels in batches], of_steps, next(rule for rule in rules if rule is not None))
    if misread:
        raise NotMeasurable(f"the steps of {name} weigh unequally: {misread:.0%} of the labels are misread")
    return multiple * float(of_steps.mean())


def _misread(batches: Sequence[Tensor], weights: Tensor, rule: Rule) -> float:
    """Return the share of misread labels because steps weigh unequally, if it is above a limit; otherwise 0."""
    counts = nn.utils.rnn.pad_sequence([labels.bincount() for labels in batches], batch_first=True).double()
    truth = counts.sum(0) / counts.sum()
    scheme = torch.tensor(_scheme(rule, len(batches)))
    for limit, sizes in ((MAX_MISREAD, torch.ones(len(batches))), (MAX_MISREAD_BY_SIZE, counts.sum(1))):
        weighted = [(weights / by / sizes) @ counts for by in (torch.ones(len(batches)), scheme)]
        misread = min(float((labels / labels.sum() - truth).abs().sum() / 2) for labels in weighted)
        if not misread <= limit:
            return misread
    return 0.0


def _scheme(rule: Rule, steps: int) -> list[float]:
    return _unroll((rule._replace(lr=1.0),) * steps)


@lru_cache(maxsize=64)
def _unroll(rules: tuple[Rule | None, ...]) -> list[float]:
    """Return the weight of each step's gradient in the sum of a parameter's changes, by SGD on unit vectors."""
    velocity, total = torch.zeros(2, len(rules), dtype=torch.float64)
    for step, rule in enumerate(rules):
        if rule is not None:
            velocity = rule.momentum * velocity
            velocity[step] += 1
            total += rule.lr * (rule.momentum if rule.nesterov else 1.0) * velocity
            total[step] += rule.lr * rule.nesterov
    return total.tolist()


def _compare_labels(shown: Tensor, used: Tensor, left_out: int) -> None:
    """Raise `NotMeasurable` if the labels that the loss used are not those that were shown, each as often."""
    classes = int(torch.cat([shown, used]).max()) + 1
    times = math.ceil(len(used) / max(len(shown), 1))  # several steps or passes on a batch that is shown once
    missing = int((used.bincount(minlength=classes) - times * shown.bincount(minlength=classes)).clamp(min=0).sum())
    if missing:
        raise NotMeasurable(f"{missing} of the {len(used)} labels that the loss used were not shown")
    if left_out and times * len(shown) > len(used):
        raise NotMeasurable(f"the loss left out {left_out} samples whose labels were shown")
