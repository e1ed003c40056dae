"""Measure which loss a client minimises, from the logits and their gradients in its backward passes."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn

from fedleak.federated.loss_identity import Loss, identify_loss
from fedleak.models.heads import same_logits

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
        self.n_heads = 1
        """Number of fully connected layers whose outputs are the model's and in the loss."""
        self._other_heads: set[str] = set()
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
        tensors = [t for t in _tensors(output) if t.dim() > 1]
        logits = next(iter(tensors), None)
        if logits is None or not logits.requires_grad:
            return
        if self.head is None:
            matching_layers = [n for n, y in outputs.items() if same_logits(y, logits.detach())]
            self.head = matching_layers[-1] if matching_layers else OUTPUTS
            others = [t.detach() for t in tensors[1:]]
            self._other_heads = {n for n, y in outputs.items() if any(same_logits(y, t) for t in others)} - {self.head}
        if self.head == OUTPUTS:
            self._passes += 1
            logits.register_hook(partial(self._at_logits, OUTPUTS, self._passes, logits.detach(), logits.detach()))

    @note_failure
    def _at_logits(self, name: str, number: int, inputs: Tensor, logits: Tensor, gradient: Tensor) -> None:
        if self.head is None:
            self.head = name
        if name in self._other_heads:
            self._other_heads.remove(name)
            self.n_heads += 1
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
