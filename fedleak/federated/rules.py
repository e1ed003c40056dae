"""SGD's rule for one parameter at one step, and unrolled over a round."""

from functools import lru_cache
from typing import Any, NamedTuple


class Rule(NamedTuple):
    """The rule of `torch.optim.SGD` for one parameter at one step."""

    lr: float
    momentum: float = 0.0
    gain: float = 1.0
    """Weight of the gradient in the velocity: 1 without dampening, and at the first step."""
    nesterov: bool = False
    weight_decay: float = 0.0
    sign: float = 1.0
    """-1 if the optimiser maximizes, otherwise 1."""

    @classmethod
    def of(cls, group: dict[str, Any], first: bool) -> "Rule":
        """Read the rule of a parameter group; at its `first` step there is no velocity yet."""
        momentum = float(group.get("momentum") or 0)
        dampening = 0.0 if first or not momentum else float(group.get("dampening") or 0)
        rest = bool(group.get("nesterov")), float(group.get("weight_decay") or 0)
        return cls(float(group.get("lr") or 0), momentum, 1 - dampening, *rest, -1.0 if group.get("maximize") else 1.0)

    def change(self, weights: Any, gradient: Any, velocity: Any) -> Any:
        """Compute the change of the weights; at the first step the velocity is 0."""
        direction = self.sign * gradient + self.weight_decay * weights
        new = self.momentum * velocity + self.gain * direction
        return -self.lr * (new + self.nesterov * (direction + (self.momentum - 1) * new))


class Coefficients(NamedTuple):
    """Decomposition of a parameter's change over a round: ``-sum(steps[t] gradient[t]) - carried velocity``."""

    steps: tuple[float, ...]
    """Coefficient of the gradient at each step."""
    carried: float
    """Coefficient of the velocity from an earlier round."""
    decay: float
    """Coefficient of the weights, by weight decay."""


@lru_cache(maxsize=64)
def unroll_rules(rules: tuple[Rule, ...]) -> Coefficients:
    """Unroll SGD's rule over a round, from its last step to its first."""
    steps: list[float] = []
    later = decay = 0.0  # `later`: coefficient of a step's velocity in its change and all later ones
    for rule, momentum in zip(reversed(rules), [0.0, *(r.momentum for r in reversed(rules))], strict=False):
        later = rule.lr * (rule.momentum if rule.nesterov else 1.0) + momentum * later
        weight = rule.gain * later + rule.lr * rule.nesterov
        steps.append(rule.sign * weight)
        decay += rule.weight_decay * weight
    return Coefficients(tuple(reversed(steps)), rules[0].momentum * later if rules else 0.0, decay)
