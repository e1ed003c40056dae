"""Measure whether an optimiser's steps are those of SGD, as its parameter groups declare them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedleak.federated.rules import Coefficients, Rule, unroll_rules

_MAX_ENTRIES = 1024
"""Most entries of a tensor that are compared, at a stride that shares no factor with its size."""

OWN_HOOK = "_at_last_parameter"
"""Name of the hook by which `fedleak.federated.loss_check` notices a backward pass."""


@dataclass(eq=False)
class Track:
    """Measurements of one parameter over the steps of a round; sizes are norms over its compared entries."""

    name: str
    parameter: Tensor
    rules: tuple[Rule, ...]
    """Rules of the steps that changed it."""
    error: float
    """Largest difference of a step's change from SGD's, relative to SGD's, minus rounding."""
    ratio: float
    """Change at that step, as a multiple of SGD's."""
    rounding: float
    """Largest rounding error of a step, relative to SGD's change."""
    outside: bool
    """Whether it also changed between the optimiser's steps."""
    change: float
    """Size of its change over the round."""
    carried: float
    """Size of the velocity from an earlier round."""
    decay_error: float = 0.0
    """Change by its weight decay, less the change if its weights had been the mean of start and end at each step."""
    hooked: bool = False
    """Whether a hook of somebody else's sees, and may change, its gradient in the backward pass."""
    altered: float = 0.0
    """Change of its gradient between backward pass and step that is no factor, as a share of its size."""
    factors: tuple[float, ...] = ()
    """Factor of its gradient between backward pass and step, such as a clipped norm's, at each step."""

    @property
    def coefficients(self) -> Coefficients:
        """Decomposition of the parameter's change into the gradients of the steps."""
        return unroll_rules(self.rules)


class StepCheck:
    """Compare the change at each step with the change that SGD's rule computes from the gradients at that step.

    Any optimiser is compared with `torch.optim.SGD`, with the settings that its parameter groups declare: rate,
    momentum, dampening, Nesterov's variant, weight decay, maximize.

    Parameters
    ----------
    model
        The trained model.
    optimiser
        The innermost optimiser, with ``param_groups`` and ``state``; see `unwrap_optimiser`.
    """

    def __init__(self, model: nn.Module, optimiser: Any):
        self.optimiser = optimiser
        self._parameters = {name: p for name, p in model.named_parameters() if p.numel()}
        self._index = {id(p): i for i, p in enumerate(self._parameters.values())}
        # One vector for all parameters' compared entries takes a tenth of the time of one vector each.
        self._zeros = [np.zeros(len(_entries(p))) for p in self._parameters.values()]
        self._sizes = np.array([len(zeros) for zeros in self._zeros])
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._eps = np.array([torch.finfo(p.dtype).eps for p in self._parameters.values()])
        self._rules: list[list[Rule | None]] = []
        self._start = self._current = self._vector(list(self._parameters.values()))
        self._carried, self._error, self._rounding = (np.zeros(len(self._sizes)) for _ in range(3))
        self._ratio = np.ones(len(self._sizes))
        self._outside, self._stepped = (np.zeros(len(self._sizes), bool) for _ in range(2))
        self._expanded: tuple[list[Rule | None], Any] = ([], None)
        self._noted: Any = None
        self._factors: list[Any] = []
        self._altered = np.zeros(len(self._sizes))
        self._hooked = [False] * len(self._sizes)
        self._weights = np.zeros(len(self._current))  # summed over the steps, as far as weight decay used them
        self._decayed = np.zeros(len(self._sizes))  # number of these steps, weighted by rate and decay
        self.inside = False
        """Whether the last step ran the backward pass itself, in a closure."""

    @property
    def steps(self) -> int:
        """Number of steps that were made."""
        return len(self._rules)

    @property
    def changed_outside(self) -> bool:
        """Whether any parameter changed between the optimiser's steps."""
        return bool(self._outside.any())

    def note_gradients(self) -> None:
        """Record all gradients at the end of a backward pass, before they are changed.

        A pass at other weights than those before the step, such as quantised or perturbed ones, is a change outside.
        """
        self.note_outside_changes(settles=False)
        self.inside, self._noted = True, self._vector([p.grad for p in self._parameters.values()])
        for i, p in enumerate(self._parameters.values()):
            hooks = (p._backward_hooks or {}).values()
            self._hooked[i] |= any(getattr(hook, "__name__", "") != OWN_HOOK for hook in hooks)

    def predict_step(self, *_: Any) -> None:
        """Predict the optimiser's next step."""
        self.note_outside_changes()
        self.inside = False
        # Copies, since with a closure the prediction follows the step, which changes the velocity.
        buffers = [self.optimiser.state.get(p, {}).get("momentum_buffer") for p in self._parameters.values()]
        self._moving = [isinstance(buffer, Tensor) for buffer in buffers]
        self._velocity = self._vector([b if isinstance(b, Tensor) else None for b in buffers])
        self._predict()

    def _predict(self) -> None:
        gradients: list[Tensor | None] = [None] * len(self._sizes)
        rules: list[Rule | None] = [None] * len(self._sizes)
        for group in self.optimiser.param_groups:
            first, later = Rule.of(group, True), Rule.of(group, False)
            for p in group["params"]:
                if (i := self._index.get(id(p))) is not None and p.grad is not None:
                    gradients[i], rules[i] = p.grad, later if self._moving[i] else first
        # Fused optimisers unscale a GradScaler's gradients themselves.
        scale = getattr(self.optimiser, "grad_scale", None)
        gradient = self._vector(gradients)
        self._carried = np.where(self._stepped, self._carried, self._norms(self._velocity))
        self._next = rules
        self._gradient = gradient if scale is None else gradient / float(scale)
        self._expected = self._expand_rules(rules).change(self._current, self._gradient, self._velocity)

    def _compare_gradients(self) -> None:
        """Measure the factor by which each gradient differs from the backward pass' result."""
        noted, self._noted = self._noted, None
        if noted is None:
            self._factors.append(np.ones(len(self._sizes)))
            return
        squares = np.add.reduceat(noted * noted, self._starts)
        products = np.add.reduceat(noted * self._gradient, self._starts)
        factors = np.divide(products, squares, out=np.ones(len(squares)), where=squares > 0)
        unexplained, size = (
            self._norms(v) for v in (self._gradient - np.repeat(factors, self._sizes) * noted, self._gradient)
        )
        self._altered = np.maximum(self._altered, np.divide(unexplained, size, out=np.zeros(len(size)), where=size > 0))
        self._factors.append(factors)

    def compare_step(self, *_: Any) -> bool:
        """Compare the optimiser's step with the prediction; return whether there was one."""
        if bool(getattr(self.optimiser, "found_inf", None)):
            return False
        now = self._vector(list(self._parameters.values()))
        if self.inside:
            self._predict()
        self._compare_gradients()
        decay = np.array([0.0 if rule is None else rule.lr * rule.weight_decay for rule in self._next])
        self._decayed += decay
        self._weights += np.repeat(decay, self._sizes) * self._current
        change, self._current = now - self._current, now
        self._rules.append(self._next)
        size, rounding = self._norms(self._expected), self._eps * self._norms(now)
        stepped = np.array([rule is not None for rule in self._next])
        self._stepped |= stepped
        self._outside |= (size == 0) & (self._norms(change) > rounding * stepped)
        compared = stepped & (size > 0)
        size = np.where(compared, size, 1.0)
        error = np.where(compared, self._norms(change - self._expected) - rounding, 0.0) / size
        is_worse = ~(error <= self._error)  # also for NaN
        self._ratio[is_worse] = (np.add.reduceat(change * self._expected, self._starts) / size**2)[is_worse]
        self._error[is_worse] = np.nan_to_num(error[is_worse], nan=np.inf)
        self._rounding = np.maximum(self._rounding, np.where(compared, rounding, 0.0) / size)
        return True

    def note_outside_changes(self, settles: bool = True) -> None:
        """Record parameters that changed since the last step, or since the beginning.

        If it `settles`, later changes are those from now on.
        """
        now = self._vector(list(self._parameters.values()))
        if not np.array_equal(now, self._current):
            self._outside |= np.logical_or.reduceat(now != self._current, self._starts)
        self._current = now if settles else self._current

    def collect_tracks(self) -> dict[str, Track]:
        """Return the measurements of each parameter over the steps so far."""
        change = self._norms(self._current - self._start)
        middle = (self._start + self._current) / 2 if self.steps > 1 else self._start
        columns = {
            "decay_error": self._norms(self._weights - np.repeat(self._decayed, self._sizes) * middle),
            "error": self._error,
            "ratio": self._ratio,
            "rounding": self._rounding,
            "outside": self._outside,
            "change": change,
            "carried": self._carried,
            "altered": self._altered,
        }
        rules = [tuple(r for r in of_one if r is not None) for of_one in zip(*self._rules, strict=True)]
        tracks: dict[str, Track] = {}
        for i, (name, p) in enumerate(self._parameters.items()):
            first: tuple[Rule, ...] = rules[i] if rules else ()
            values = {key: column[i].item() for key, column in columns.items()}
            factors = tuple(step[i].item() for step in self._factors)
            tracks[name] = track = Track(name, p, first, factors=factors, hooked=self._hooked[i], **values)
            if self._decayed[i]:  # momentum repeats what weight decay changed
                track.decay_error *= abs(track.coefficients.decay) / self._decayed[i].item()
        return tracks

    def _vector(self, tensors: Sequence[Tensor | None]) -> Any:
        """Return the compared entries of one tensor per parameter, float64; zeros for None."""
        parts = zip(tensors, self._zeros, strict=True)
        return np.concatenate([zeros if t is None else _entries(t) for t, zeros in parts], dtype=np.float64)

    def _norms(self, vector: Any) -> Any:
        return np.sqrt(np.add.reduceat(vector * vector, self._starts))

    def _expand_rules(self, rules: list[Rule | None]) -> Any:
        """Return one rule whose fields are arrays with a value per compared entry."""
        if self._expanded[0] != rules:
            fields = zip(*(rule or Rule(0.0) for rule in rules), strict=True)
            expanded: Any = [np.repeat(np.array(column, float), self._sizes) for column in fields]
            self._expanded = (rules, Rule(*expanded))
        return self._expanded[1]


def unwrap_optimiser(optimiser: Any) -> Any:
    """Return the optimiser of `torch.optim` inside wrappers such as Opacus' and Accelerate's."""
    for name in ("original_optimizer", "optimizer", "base_optimizer"):
        inner = getattr(optimiser, name, None)
        if inner is not None and hasattr(inner, "param_groups"):
            return unwrap_optimiser(inner)
    return optimiser


def list_declared_rules(optimiser: Any) -> list[Rule]:
    """Return the distinct rules that an optimiser's parameter groups declare."""
    groups: Sequence[dict[str, Any]] = optimiser.param_groups
    return list(dict.fromkeys(Rule.of(group, first=False) for group in groups))


def _entries(tensor: Tensor) -> Any:
    tensor = tensor.detach()
    if tensor.is_cpu and tensor.dtype in (torch.float32, torch.float64) and tensor.layout == torch.strided:
        array = tensor.numpy().reshape(-1)  # slicing takes a third of PyTorch's time
        return array[:: _stride(array.size)]
    flat = (tensor if tensor.layout == torch.strided else tensor.to_dense()).reshape(-1)
    return flat[:: _stride(flat.numel())].to("cpu", torch.float64).numpy()


@lru_cache(maxsize=1024)
def _stride(size: int) -> int:
    """Return the distance of the compared entries: without a factor of the size, so that they lie in all columns."""
    stride = max(-(-size // _MAX_ENTRIES), 1)
    while math.gcd(stride, size) > 1:
        stride += 1
    return stride
