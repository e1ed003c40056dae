"""Measure whether a client's change of a model is SGD's on the mean cross-entropy, on the client's own graph.

When a backward pass reaches the outputs of the last layer, the gradient of the mean cross-entropy *of these outputs* is
computed with respect to all parameters that require one at that pass, by one more backward pass through the same graph.
SGD's steps, as the optimiser declares them, are summed from these gradients. A round is *measured* if the state that
leaves the client differs from the received one by a positive multiple of this sum, tensor by tensor. Whatever else
takes part, such as another loss, a penalty, clipping, noise or another optimiser, is in the difference and in no list.
"""

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from fedleak.federated.update import is_statistic

IGNORED = -100
"""Label of samples that PyTorch's cross-entropy ignores."""
CERTAIN = 0.999
"""Probability of a sample's label from which its gradient may be 0 by rounding."""
CHANGED_OTHERWISE = "the weights changed otherwise than by the optimiser's steps"
OTHER_MODE = "a batch norm changed between training and evaluation mode"
NO_CROSS_ENTROPY = "no fully connected layer's outputs have the gradient of a cross-entropy with one label per sample"


class Rule(NamedTuple):
    """SGD's settings for one parameter at one step."""

    lr: float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0


def _guarded(method: Callable[..., None]) -> Callable[..., None]:
    """Decorate a hook so that its errors fail the measurement and do not end the training."""

    @wraps(method)
    def call_without_raising(self: "Measurement", *args: Any) -> None:
        if not self.failed:
            try:
                method(self, *args)
            except Exception as error:  # the client's training continues
                self.failed = f"the gradient could not be measured ({type(error).__name__}: {error!s:.200})"

    return call_without_raising


class Measurement:
    """Hooks on a model and its optimiser that sum SGD's steps on the mean cross-entropy.

    Parameters
    ----------
    model
        The trained model. Its head is the first `nn.Linear` that a backward pass reaches with the gradient of a
        cross-entropy: at most one negative entry per sample, which is the sample's label.
    optimiser
        The innermost optimiser, of `torch.optim`; see `unwrap_optimiser`.
    failed
        Why nothing can be measured, if that is known before: then steps are counted alone.
    """

    def __init__(self, model: nn.Module, optimiser: Any, failed: str = ""):
        self.model, self.optimiser = model, optimiser
        self.failed = failed
        self.head: str | None = None
        self.parameters = {name: p for name, p in model.named_parameters() if not is_statistic(name)}
        """All that may be trained: which of them require a gradient may differ from step to step."""
        self.labels: list[Tensor] = []
        """Labels of each step, as read from the gradient of the head's outputs."""
        self.left_out = 0
        """Samples that the loss gave no gradient, as for an ignored label."""
        norms = [(n, m) for n, m in model.named_modules() if isinstance(m, _NormBase)]
        self.norms = {f"{n}.{key}".lstrip("."): m for n, m in norms for key in [*m.state_dict()][:1]}
        self.by_batch: set[str] | None = None
        """The norms that used a batch's statistics, by the name of a tensor, the same in each step; None before one."""
        self.rules: dict[str, list[Rule | None]] = {name: [] for name in self.parameters}
        """By parameter, the rules of the steps in `labels`; None where a step left it out."""
        self.total: dict[str, Tensor] = {}
        """By parameter, SGD's summed change by the gradients; it is subtracted."""
        self.decay: dict[str, Tensor] = {}
        """The same by weight decay, for parameters that have one."""
        self._velocities: tuple[dict[str, Tensor], dict[str, Tensor]] = {}, {}  # of gradients, of decay
        self._pending: dict[str, Tensor] = {}  # gradients, summed over the samples since the last step
        self._labels: list[Tensor] = []
        self._modes: list[set[str]] = []
        self._weights = {name: p.detach().clone() for name, p in self.parameters.items()}  # after the last step
        self._task, self._depth, self._is_busy = -1, 0, False
        self.steps, self.rule = 0, Rule(0.0)
        """Steps of the optimiser that had a gradient of the model, measured or not, and the latest rule with a rate."""
        linear = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
        self._handles = [
            *(layer.register_forward_hook(partial(self._at_layer, name), with_kwargs=True) for name, layer in linear),
            optimiser.register_step_pre_hook(self._before_step),
            optimiser.register_step_post_hook(self._after_step),
        ]

    def close(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()
        if self.steps and not self._has_same_weights():
            self.failed = self.failed or CHANGED_OTHERWISE

    @_guarded
    def _at_layer(self, name: str, layer: nn.Linear, args: tuple, kwargs: dict, output: Any) -> None:
        if self.head in (None, name) and isinstance(output, Tensor) and output.requires_grad:
            inputs = args[0] if args else kwargs["input"]
            # The hook holds no tensor above the layer, so that graph and hook are no reference cycle.
            values = output.detach().clone()  # whatever changes the outputs in place
            by_batch = {name for name, norm in self.norms.items() if norm.training or norm.running_mean is None}
            known = values, self._has_same_weights(), by_batch
            output.register_hook(partial(self._at_logits, name, layer, inputs, *known))

    @_guarded
    def _at_logits(
        self,
        name: str,
        layer: nn.Linear,
        inputs: Tensor,
        logits: Tensor,
        same_weights: bool,
        by_batch: set[str],
        gradient: Tensor,
    ) -> None:
        if self._is_busy or self.head not in (None, name):
            return
        rows = gradient.detach().flatten(0, -2)
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
        if rows.shape[1] < 2 or int((rows < 0).sum(1).max()) > 1 or rows.sum(1).norm() > 0.05 * rows.norm():
            if self.head is not None:
                self.failed = f"the gradient of the outputs of {name!r} is not that of a cross-entropy"
            return
        values = logits.flatten(0, -2).to(rows)
        certain = values.softmax(1).max(1).values > CERTAIN  # whose gradient may be rounded to 0
        labels = rows.argmin(1).where(rows.any(1), values.argmax(1).where(certain, IGNORED))
        if not bool(rows.any()) or not any(p.requires_grad for p in self.parameters.values()):
            return
        self.head = name
        if not same_weights:
            self.failed = CHANGED_OTHERWISE
            return
        if hooked := next((n for n, p in self.parameters.items() if p._backward_hooks), ""):
            self.failed = f"a hook may change the gradient of {hooked}"
            return
        if any(module._backward_hooks or module._backward_pre_hooks for module in self.model.modules()):
            self.failed = "a module has a hook on its backward pass, which another pass would disturb"
            return
        task = torch._C._current_graph_task_id()  # the same in all hooks of one backward pass
        if task != self._task and not self._has_gradients():
            self._pending, self._labels, self._modes = {}, [], []  # the gradients so far were set to zero
        self._task = task
        self._modes.append(by_batch)
        self._is_busy = True
        try:
            self._add_gradient(layer, inputs, values, labels, rows)
        finally:
            self._is_busy = False

    def _add_gradient(self, layer: nn.Linear, inputs: Tensor, logits: Tensor, labels: Tensor, rows: Tensor) -> None:
        """Add the gradient of the cross-entropy of a layer's outputs ``[N, n]``, summed over the samples."""
        with torch.enable_grad(), torch.autocast(logits.device.type, enabled=False):
            leaf = logits.requires_grad_()
            # The operations of a client's own loss, whose rounding matters where a model fits its samples.
            errors: Tensor = torch.autograd.grad(nn.functional.cross_entropy(leaf, labels), leaf)[0]
            weight, bias = layer.weight, layer.bias  # computed, if the layer is parametrised
        # At the client's scale, which is a GradScaler's too: half precision would round small numbers to 0.
        scale = float((rows * errors).sum() / errors.square().sum())
        scale = scale if 0 < scale < float("inf") and abs(scale - 1) > 1e-3 else 1.0
        errors = scale * errors
        below = inputs.flatten(0, -2).to(errors)
        to_inputs = (errors @ weight.detach().to(errors)).view(inputs.shape)
        ends = (inputs, to_inputs), (weight, errors.T @ below), (bias, errors.sum(0))
        used = [(end, given.to(end)) for end, given in ends if end is not None and end.requires_grad]
        named = {name: p for name, p in self.parameters.items() if p.requires_grad}
        outputs, given = zip(*used, strict=True)
        gradients = torch.autograd.grad(outputs, list(named.values()), given, retain_graph=True, allow_unused=True)
        samples = labels[labels != IGNORED].cpu()
        self.left_out += len(labels) - len(samples)
        for name, gradient in zip(named, gradients, strict=True):
            if gradient is not None:
                dense = gradient.to_dense() if gradient.is_sparse else gradient
                added = dense.to(torch.promote_types(dense.dtype, torch.float32)) * (len(samples) / scale)
                self._pending[name] = self._pending[name].add_(added) if name in self._pending else added
        self._labels.append(samples)

    def _has_same_weights(self) -> bool:
        return all(torch.equal(p.detach(), self._weights[name]) for name, p in self.parameters.items())

    def _before_step(self, *_: Any) -> None:
        self._depth += 1  # hooks run for a subclass' step and again for the inherited one

    def _after_step(self, *_: Any) -> None:
        self._depth -= 1
        if self._depth or bool(getattr(self.optimiser, "found_inf", None)):
            return
        rules = {id(p): read_rule(group) for group in self.optimiser.param_groups for p in group["params"]}
        self._add_step({name: rules[id(p)] for name, p in self.parameters.items() if id(p) in rules})

    def _add_step(self, rules: Mapping[str, Rule]) -> None:
        moving = {name: rule for name, rule in rules.items() if self.parameters[name].grad is not None}
        if moving:  # otherwise the step is of another model that shares the optimiser
            self.steps += 1
            self.rule = next((rule for name, rule in moving.items() if rule.lr), self.rule)
            self._sum(moving)

    @_guarded
    def _sum(self, rules: Mapping[str, Rule]) -> None:
        pending, labels, modes = self._pending, self._labels, self._modes
        self._pending, self._labels, self._modes = {}, [], []
        if self.head is None or (not labels and self._has_gradients()):
            self.failed = NO_CROSS_ENTROPY if self.head is None else "a step follows no pass: a gradient was used again"
            return
        for mode in modes:
            if self.by_batch not in (None, mode):
                self.failed = OTHER_MODE
                return
            self.by_batch = mode
        samples = torch.cat([torch.empty(0, dtype=torch.long), *labels])
        self.labels.append(samples)
        for name, p in self.parameters.items():
            rule = rules.get(name)
            self.rules[name].append(rule)
            if rule is not None:
                gradient = pending[name] / len(samples) if name in pending else None
                self._move(self.total, name, gradient, rule)
                if rule.weight_decay:
                    self._move(self.decay, name, rule.weight_decay * self._weights[name], rule)
            self._weights[name].copy_(p.detach())

    def gradients(self) -> dict[str, Tensor]:
        """Return the gradients that are left at the parameters that require one now."""
        return {n: p.grad for n, p in self.parameters.items() if p.requires_grad and p.grad is not None}

    def _has_gradients(self) -> bool:
        return any(bool((g.to_dense() if g.is_sparse else g).any()) for g in reversed(self.gradients().values()))

    def _move(self, totals: dict[str, Tensor], name: str, direction: Tensor | None, rule: Rule) -> None:
        """Add SGD's step along a direction, None for 0, to the sum of a parameter's changes."""
        velocities = self._velocities[totals is self.decay]
        step = direction
        if rule.momentum:
            if (old := velocities.get(name)) is not None:
                step = old.mul_(rule.momentum) if direction is None else old.mul_(rule.momentum).add_(direction)
            if step is not None:
                velocities[name] = step = step.clone() if step is direction else step
                step = step if not rule.nesterov else rule.momentum * step + (0 if direction is None else direction)
        if step is not None:
            totals[name] = totals[name].add_(step, alpha=rule.lr) if name in totals else rule.lr * step

    def make_gradient_step(self) -> None:
        """Count gradients that no step used as one step at the rate 1, for clients that share them."""
        self._add_step(dict.fromkeys(self.gradients(), Rule(1.0)))


def read_rule(group: Mapping[str, Any]) -> Rule:
    """Return the rule that a parameter group declares; dampening and maximization are none of SGD's, and ignored."""
    lr, momentum, decay = (float(group.get(name) or 0) for name in ("lr", "momentum", "weight_decay"))
    return Rule(lr, momentum, bool(group.get("nesterov")), decay)
