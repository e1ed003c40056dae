"""Measure whether an optimiser's steps are those of SGD, as its parameter groups declare them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

_ENTRIES = 4096
"""Entries of a tensor that are compared, evenly spread; all of a smaller one."""


class Rule(NamedTuple):
    """SGD's rule for one parameter at one step, as `torch.optim.SGD` has it."""

    lr: float
    momentum: float = 0.0
    gain: float = 1.0
    """Of the gradient in the velocity: 1 without dampening, and at the first step."""
    nesterov: bool = False
    weight_decay: float = 0.0
    sign: float = 1.0
    """-1 where the optimiser maximizes."""

    @classmethod
    def of(cls, group: dict[str, Any], first: bool) -> "Rule":
        """Read a parameter group; `first`: there is no velocity yet."""
        momentum = float(group.get("momentum") or 0)
        dampening = 0.0 if first or not momentum else float(group.get("dampening") or 0)
        rest = bool(group.get("nesterov")), float(group.get("weight_decay") or 0)
        return cls(float(group.get("lr") or 0), momentum, 1 - dampening, *rest, -1.0 if group.get("maximize") else 1.0)

    def change(self, weights: Tensor, gradient: Tensor, velocity: Tensor | None) -> Tensor:
        """Return the change of the weights."""
        direction = self.sign * gradient + self.weight_decay * weights
        new = direction if velocity is None else self.momentum * velocity + self.gain * direction
        return -self.lr * (direction + self.momentum * new if self.nesterov else new)


class Coefficients(NamedTuple):
    """What a parameter's change over a round is made of: ``-sum(steps[t] gradient[t]) - carried velocity``."""

    steps: tuple[float, ...]
    """Of the gradient at each step."""
    carried: float
    """Of the velocity that came in from an earlier round."""
    decay: float
    """Of the weights, by weight decay."""


@lru_cache(maxsize=64)
def coefficients(rules: tuple[Rule, ...]) -> Coefficients:
    """Unroll SGD's rule over a round, from its last step to its first."""
    later, steps, decay = (
        0.0,
        [],
        0.0,
    )  # `later`: how the velocity after this step enters this change and all later ones
    for rule, momentum in zip(reversed(rules), [0.0, *(r.momentum for r in reversed(rules))], strict=False):
        later = rule.lr * (rule.momentum if rule.nesterov else 1.0) + momentum * later
        own = rule.gain * later + rule.lr * rule.nesterov
        steps.append(rule.sign * own)
        decay += rule.weight_decay * own
    return Coefficients(tuple(reversed(steps)), rules[0].momentum * later if rules else 0.0, decay)


@dataclass(eq=False)
class Track:
    """One parameter over the steps of a round."""

    name: str
    parameter: Tensor
    start: Tensor
    """Its entries that are compared, float64, before the round."""
    current: Tensor
    """The same now."""
    rules: list[Rule] = field(default_factory=list)
    """Of the steps that were made."""
    expected: Tensor | None = None
    carried: Tensor | None = None
    """The velocity that came in from an earlier round."""
    error: float = 0.0
    """Largest distance of a step's change from SGD's, in units of SGD's, beyond rounding."""
    ratio: float = 1.0
    """That change, as a multiple of SGD's."""
    rounding: float = 0.0
    """Largest rounding error of the weights' precision, in the same units."""
    outside: bool = False
    """Whether it changed otherwise than by a step of the optimiser."""

    @property
    def coefficients(self) -> Coefficients:
        """How the gradients of the steps make up the parameter's change."""
        return coefficients(tuple(self.rules))


class StepCheck:
    """Compare the change that every step makes with what SGD's rule makes of the gradients at that step.

    Any optimiser is compared with the rule of `torch.optim.SGD`, with what its parameter groups declare: rate,
    momentum, dampening, Nesterov's variant, weight decay, maximize.

    Parameters
    ----------
    model
        What is trained.
    optimiser
        One with ``param_groups`` and ``state``, innermost where several wrap each other.
    """

    def __init__(self, model: nn.Module, optimiser: Any):
        self.optimiser = optimiser
        self.steps = 0
        self.tracks = {name: Track(name, p, _entries(p), _entries(p)) for name, p in model.named_parameters()}
        self._of = {id(track.parameter): track for track in self.tracks.values()}

    def before(self, *_: Any) -> None:
        """Predict the step that is about to be made."""
        self.look_outside()
        scale = getattr(
            self.optimiser, "grad_scale", None
        )  # fused optimisers unscale a GradScaler's gradients themselves
        self._rules: dict[str, Rule] = {}
        for group in self.optimiser.param_groups:
            for parameter in group["params"]:
                track = self._of.get(id(parameter))
                if track is None or parameter.grad is None:
                    continue
                velocity = self.optimiser.state.get(parameter, {}).get("momentum_buffer")
                velocity = _entries(velocity) if isinstance(velocity, Tensor) and group.get("momentum") else None
                if not track.rules:
                    track.carried = velocity
                rule = self._rules[track.name] = Rule.of(group, velocity is None)
                gradient = _entries(parameter.grad) / (1.0 if scale is None else float(scale))
                track.expected = rule.change(track.current, gradient, velocity)

    def after(self, *_: Any) -> bool:
        """Compare the step that was made with the prediction; return whether one was made."""
        if bool(getattr(self.optimiser, "found_inf", None)):
            return False
        for track in self.tracks.values():
            now = _entries(track.parameter)
            change, track.current = now - track.current, now
            if (rule := self._rules.get(track.name)) is None:
                track.outside |= bool(change.any())
                continue
            track.rules.append(rule)
            self._compare(track, change)
        self.steps += 1
        return True

    @staticmethod
    def _compare(track: Track, change: Tensor) -> None:
        assert track.expected is not None
        size = float(track.expected.norm())
        rounding = float(torch.finfo(track.parameter.dtype).eps * track.current.norm())
        if not size:
            track.outside |= float(change.norm()) > rounding
            return
        error = max(float((change - track.expected).norm()) - rounding, 0.0) / size
        if error > track.error:
            track.error, track.ratio = error, float((change * track.expected).sum()) / size**2
        track.rounding = max(track.rounding, rounding / size)

    def look_outside(self) -> None:
        """Notice parameters that changed since the last step, or since the beginning."""
        for track in self.tracks.values():
            now = _entries(track.parameter)
            track.outside |= not torch.equal(now, track.current)
            track.current = now


def innermost(optimiser: Any) -> Any:
    """Return the optimiser of `torch.optim` inside wrappers such as Opacus' and Accelerate's."""
    for name in ("original_optimizer", "optimizer", "base_optimizer"):
        inner = getattr(optimiser, name, None)
        if inner is not None and hasattr(inner, "param_groups"):
            return innermost(inner)
    return optimiser


def declared_rules(optimiser: Any) -> list[Rule]:
    """Return the distinct rules that an optimiser's parameter groups declare."""
    groups: Sequence[dict[str, Any]] = optimiser.param_groups
    return list(dict.fromkeys(Rule.of(group, first=False) for group in groups))


def _entries(tensor: Tensor) -> Tensor:
    """Return entries of a tensor in double precision, evenly spread, a copy."""
    tensor = tensor.detach()
    flat = (tensor if tensor.layout == torch.strided else tensor.to_dense()).flatten()
    return flat[:: max(-(-flat.numel() // _ENTRIES), 1)].to(torch.float64, copy=True)
