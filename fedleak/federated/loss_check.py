"""Measure which loss a client minimises, from the logits and their gradients in its backward passes."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedleak.models.heads import same_logits

Array = NDArray[Any]

CROSS_ENTROPY = "cross-entropy"
WEIGHTED = "cross-entropy with class weights"
SAMPLE_WEIGHTED = "a loss that weighs each sample by itself (focal loss, sample weights)"
SMOOTHED = "cross-entropy with label smoothing"
NO_SOFTMAX = "not a softmax cross-entropy (one sigmoid per class, a regression)"
OTHER = "another loss (mixed or soft labels, an added term)"
OUTPUTS = "(outputs)"
"""Replaces the head's name if the model's outputs are not those of one layer, as with adapters."""
_MAX_LOGITS = 10**7
"""Most logits of a batch that is examined."""


def note_failure(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a hook so that its errors are noted in its object's ``failure`` and do not end the training."""

    @wraps(method)
    def call_without_raising(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.failure = self.failure or f"{type(error).__name__}: {error}"
            return None

    return call_without_raising


class Loss(NamedTuple):
    """A loss, as identified from the gradient of one batch's logits."""

    name: str
    labels: Tensor
    """Labels in the loss, int64 ``[N]``; empty if they are not single classes."""
    factor: float = float("nan")
    """For cross-entropy: factor of the *sum* over the samples' losses; 1 / N for the mean."""


def identify_loss(logits: Tensor, gradient: Tensor) -> Loss:
    """Identify the loss of one batch, which may be a negative cross-entropy.

    Softmax cross-entropy has the gradient ``f_i (p_i - onehot(y_i))``: one negative entry per sample, at its label.

    Parameters
    ----------
    logits, gradient
        The head's outputs ``[N, n]``, and the gradient of the loss with respect to them.
    """
    tolerance = 1e-3 if gradient.dtype in (torch.float32, torch.float64) else 3e-2
    # A batch's logits are small: NumPy takes a fifth of PyTorch's time.
    z, g = (t.detach().to("cpu", torch.float64).numpy() for t in (logits, gradient))
    exponentials = np.exp(z - z.max(1, keepdims=True))
    p = exponentials / exponentials.sum(1, keepdims=True)
    loss = _identify(p, g, tolerance)
    if loss.name != OTHER:
        return loss
    negative = _identify(p, -g, tolerance)
    return negative._replace(factor=-negative.factor) if negative.name == CROSS_ENTROPY else loss


def _identify(p: Array, g: Array, tolerance: float) -> Loss:
    size = np.linalg.norm(g, axis=1)
    labels = g.argmin(1)
    has_gradient = size > 1e-4 * size.max(initial=0.0)
    # The model is certain of samples with rows near 0; the loss may also ignore samples with zero rows.
    is_certain = ~has_gradient & (p.max(1) > 1 - tolerance)
    has_zero_gradient, is_certain = is_certain & (size == 0), is_certain & (size > 0)
    if not has_gradient.any():
        return _loss(OTHER if len(g) else CROSS_ENTROPY, labels[:0], 1.0)
    direction = (p - _onehot(labels, p.shape[1]))[has_gradient]
    rows = g[has_gradient]
    factors = (rows * direction).sum(1) / (direction**2).sum(1)
    n_samples = (has_gradient | is_certain | has_zero_gradient).sum()
    mean_factor = float((factors * size[has_gradient]).sum() / size[has_gradient].sum()) * n_samples
    if abs(mean_factor - 1) < tolerance:  # the mean is also over samples with zero rows
        is_certain |= has_zero_gradient
    labels = np.where(is_certain, p.argmax(1), labels)[has_gradient | is_certain]
    if _differ(rows, factors[:, None] * direction) < tolerance:
        weight = size[has_gradient]
        factor = float((factors * weight).sum() / weight.sum())
        if (abs(factors - factor) < 10 * tolerance * abs(factor)).all():
            return _loss(CROSS_ENTROPY, labels, factor)
        return _loss(_weighted(factors, g.argmin(1)[has_gradient], tolerance), labels, factor)
    if np.linalg.norm(rows.sum(1)) > tolerance * np.linalg.norm(rows):
        return _loss(NO_SOFTMAX, labels[:0])
    return _smoothed(p[has_gradient], rows, g.argmin(1)[has_gradient], tolerance)


def _smoothed(p: Array, rows: Array, labels: Array, tolerance: float) -> Loss:
    """Fit ``f (p - (1 - e) onehot - e / n)``: f and e from all entries except the labels', which are outliers."""
    n = p.shape[1]
    for _ in range(5):
        others = ~_onehot(labels, n)
        design = np.stack([p[others], -np.ones(others.sum())], 1)
        f, share = np.linalg.lstsq(design, rows[others], rcond=None)[0].tolist()
        labels = (rows - f * p + share).argmin(1)
    onehot = _onehot(labels, n)
    if 0 < share * n < 0.99 * f and _differ(rows, f * (p - onehot) + share * (n * onehot - 1.0)) < tolerance:
        return _loss(SMOOTHED, labels, f)
    return _loss(OTHER, labels[:0])


def _onehot(labels: Array, n: int) -> Array:
    return labels[:, None] == np.arange(n)


def _loss(name: str, labels: Array, factor: float = float("nan")) -> Loss:
    return Loss(name, torch.from_numpy(labels), factor)


def _differ(rows: Array, expected: Array) -> float:
    return float(np.linalg.norm(rows - expected) / np.linalg.norm(rows))


def _weighted(factors: Array, labels: Array, tolerance: float) -> str:
    for label in np.unique(labels):
        of_class = factors[labels == label]
        if (abs(of_class - of_class.mean()) > 10 * tolerance * abs(of_class.mean())).any():
            return SAMPLE_WEIGHTED
    return WEIGHTED


@dataclass(eq=False)
class Pass:
    """One forward pass of a backward pass."""

    loss: Loss
    samples: int
    """Number of samples in the loss."""
    gradient: Tensor
    """Gradient of this pass' loss with respect to the head's weight (or its bias)."""


@dataclass(eq=False)
class Backward:
    """One backward pass, with its forward passes."""

    passes: list[Pass] = field(default_factory=list)
    accumulated: Tensor | None = None
    """Gradient of the last trained parameter after it, if the head has none."""
    step: int | None = None
    """Number of the optimiser step that used its gradient, from 0; -1 if none did; None if it is not yet known."""


class LossCheck:
    """Identify the loss of each backward pass by hooks on a model's head.

    Parameters
    ----------
    model
        The trained model. Its head is the `nn.Linear` whose outputs are the model's or, if only parts of the model are
        called, the first one that a backward pass reaches.
    accumulates
        Whether gradients outlive ``zero_grad``, as in Opacus' optimiser, so that each backward pass counts.
    after_backward
        Function that is called at the end of each backward pass that reached the head.
    """

    def __init__(self, model: nn.Module, accumulates: bool = False, after_backward: Callable[[], None] = lambda: None):
        self.failure = ""
        """Error that a hook would have raised, if any."""
        self.backwards: list[Backward] = []
        self.head: str | None = None
        """Name of the head; `OUTPUTS` if the model's outputs are not those of one fully connected layer."""
        self._accumulates, self._after_backward = accumulates, after_backward
        parameter_uses = Counter(id(p) for m in model.modules() for p in m._parameters.values())
        self._tied = {key for key, count in parameter_uses.items() if count > 1}
        self._layers = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
        self._outputs: dict[str, Tensor] = {}
        self._current: Backward | None = None
        self._passes = 0
        self._looked_at: set[int] = set()
        self._handles: list[Any] = [
            layer.register_forward_hook(partial(self._after_layer, name)) for name, layer in self._layers.items()
        ]
        self._handles.append(model.register_forward_hook(self._after_model))
        self._trained = [p for p in model.parameters() if p.requires_grad]
        if self._trained:
            self._handles.append(self._trained[-1].register_hook(self._at_last_parameter))

    def close(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()

    @property
    def parameter(self) -> Tensor | None:
        """The head's trained parameter whose gradients are compared: its weight, or else its bias."""
        layer = self._layers.get(self.head) if self.head is not None else None
        parameters = () if layer is None else (layer.weight, layer.bias)
        trained = (p for p in parameters if isinstance(p, nn.Parameter) and p.requires_grad and id(p) not in self._tied)
        return next(trained, None)

    @property
    def last(self) -> Tensor | None:
        """The last trained parameter that has a gradient, or the last of all."""
        with_gradient = (p for p in reversed(self._trained) if p.grad is not None)
        return next(with_gradient, self._trained[-1] if self._trained else None)

    def take(self, step: int) -> list[Backward]:
        """Assign all backward passes whose gradients are not used yet to an optimiser step; return them."""
        unassigned = [item for item in self.backwards if item.step is None]
        for item in unassigned:
            item.step = step
        return unassigned

    @note_failure
    def _after_layer(self, name: str, _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if self.head not in (None, name) or not (isinstance(output, Tensor) and output.requires_grad):
            return
        if self.head is None:
            self._outputs[name] = output.detach()
        self._passes += 1
        head_inputs = inputs[0].detach() if inputs else torch.empty(0)
        output.register_hook(partial(self._at_logits, name, self._passes, head_inputs, output.detach()))

    @note_failure
    def _after_model(self, _: nn.Module, __: Any, output: Any) -> None:
        outputs, self._outputs = self._outputs, {}
        logits = next((t for t in _tensors(output) if t.dim() > 1), None)
        if logits is None or not logits.requires_grad:
            return
        if self.head is None:
            matching_layers = [n for n, y in outputs.items() if same_logits(y, logits.detach())]
            self.head = matching_layers[-1] if matching_layers else OUTPUTS
        if self.head == OUTPUTS:
            self._passes += 1
            logits.register_hook(partial(self._at_logits, OUTPUTS, self._passes, logits.detach(), logits.detach()))

    @note_failure
    def _at_logits(self, name: str, number: int, inputs: Tensor, logits: Tensor, gradient: Tensor) -> None:
        if self.head is None:
            self.head = name
        if name != self.head or (self._accumulates and number in self._looked_at) or gradient.numel() > _MAX_LOGITS:
            return
        self._looked_at.add(number)
        parameter = self.parameter
        if self._current is None:  # the first logits in a backward pass, which has not reached a parameter yet
            self._current = self._begin(self.last if parameter is None else parameter)
            torch.autograd.Variable._execution_engine.queue_callback(self._end)
        flat = gradient.detach().flatten(0, -2)
        loss = identify_loss(logits.flatten(0, -2), flat)
        uses_weight = parameter is not None and parameter.dim() > 1
        head_gradient = flat.T @ inputs.flatten(0, -2).to(flat.dtype) if uses_weight else flat.sum(0)
        samples = len(loss.labels) or int((flat.abs().sum(1) > 0).sum())
        self._current.passes.append(Pass(loss, samples, head_gradient))

    @note_failure
    def _at_last_parameter(self, _: Tensor) -> None:
        if self._current is None and self.head is None:
            self._begin(self.last)

    def _begin(self, parameter: Tensor | None) -> Backward:
        old = None if parameter is None else parameter.grad
        if not self._accumulates and (old is None or not bool(old.any())):
            for item in self.backwards:
                item.step = -1 if item.step is None else item.step
        self.backwards.append(Backward())
        return self.backwards[-1]

    @note_failure
    def _end(self) -> None:
        if self._current and self.parameter is None and self.last is not None and self.last.grad is not None:
            self._current.accumulated = self.last.grad.detach().clone()
        self._current = None
        self._after_backward()


def _tensors(output: Any) -> Iterator[Tensor]:
    """Yield the tensors of a model's output, those named logits first."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in [output[k] for k in ("logits",) if k in output] + list(output.values()):
            yield from _tensors(value)
    elif isinstance(output, tuple | list):
        for value in output:
            yield from _tensors(value)
