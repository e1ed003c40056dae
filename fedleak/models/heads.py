"""Find the last fully connected layer of a model, and its inputs."""

from collections.abc import Iterable
from dataclasses import is_dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fedleak.models.inputs import REFUSALS, dummy_inputs, run, watched
from fedleak.models.memory import remembered


class Head(NamedTuple):
    """The last fully connected layer of a model."""

    name: str
    layer: nn.Linear
    tied: str = ""
    """The model's name of its weight, if another layer shares the weight and was declared first; else ""."""

    @property
    def weight(self) -> str:
        """Name of the weight among the model's parameters."""
        return self.tied or (f"{self.name}.weight" if self.name else "weight")

    @property
    def bias(self) -> str:
        """Name of the bias among the model's parameters, also if the head has none."""
        return f"{self.name}.bias" if self.name else "bias"


MAX_ROUNDING = 0.02
"""Largest deviation of the outputs of a linear layer with its own ``forward``, such as with quantised weights, from
weight times input, as a share of the largest output."""
_HEAD_NAMES: WeakKeyDictionary[nn.Module, tuple[list[int], str]] = WeakKeyDictionary()


@remembered
def head(model: nn.Module, name: str | None = None) -> Head:
    """Find the `nn.Linear` whose outputs are the model's, whatever the order in which the layers are declared.

    It is the last module of an `nn.Sequential`, or the model itself; in other models a forward pass of a made-up input
    finds it, once per model. It may be frozen if adapters (LoRA) add to its outputs. `name` overrides the search; for
    all attacks, set it on the model: ``model.head_name = "fc"``. Raises `ValueError` if the model has no such layer, if
    its outputs are not those of one layer (two heads, a softmax), or if the layer cannot be determined.
    """
    linears = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    if not linears:
        pointwise = [m for m in model.modules() if isinstance(m, nn.Conv2d)][-1:]
        advice = (
            "; a 1 × 1 convolution with a mean over positions is nn.Linear of the mean inputs, with weight.flatten(1)"
        )
        advice *= bool(pointwise) and pointwise[0].kernel_size == (1, 1)
        raise ValueError(f"{type(model).__name__} has no fully connected layer, so it has no head to attack{advice}")
    name = getattr(model, "head_name", None) if name is None else name
    if name is not None:
        if name not in linears:
            raise ValueError(f"{name!r} is no fully connected layer of the model; there are: {_join_names(linears)}")
        state = [id(m) for m in linears.values()]
        if model not in _HEAD_NAMES or _HEAD_NAMES[model] != (state, name):
            _require_logits(model, name, linears[name])
            _HEAD_NAMES[model] = state, name
        return _head(model, name, linears[name])
    last = model
    while type(last).forward is nn.Sequential.forward and len(last):  # type: ignore[arg-type]
        last = last[-1]  # type: ignore[index]
    name = next((n for n, m in linears.items() if m is last), None)
    if name is None:
        layers = [id(m) for m in linears.values()]
        if model not in _HEAD_NAMES or _HEAD_NAMES[model][0] != layers:
            _HEAD_NAMES[model] = layers, _find_head_name(model, linears)
        name = _HEAD_NAMES[model][1]
    return _head(model, name, linears[name])


def _head(model: nn.Module, name: str, layer: nn.Linear) -> Head:
    require_linear(name, layer)
    untied = Head(name, layer)
    weight_name = next((n for n, p in model.named_parameters() if p is layer.weight), untied.weight)
    return untied if weight_name == untied.weight else Head(name, layer, weight_name)


@torch.enable_grad()
def require_linear(name: str, layer: nn.Linear) -> None:
    """Raise `ValueError` if a trained layer with its own ``forward`` is not linear for two made-up inputs.

    Some subclasses of `nn.Linear`, such as cosine and normalised layers, are not linear. The outputs are compared with
    weight times inputs plus bias, and the weight's gradient with theirs.
    """
    if (type(layer).forward is nn.Linear.forward and "forward" not in vars(layer)) or not layer.weight.requires_grad:
        return
    x = torch.rand(2, layer.in_features, generator=torch.Generator().manual_seed(0)).to(layer.weight)
    x = x * torch.tensor([[1.0], [3.0]]).to(x) - 0.5
    expected = nn.functional.linear(x, layer.weight, layer.bias)
    try:
        with torch.random.fork_rng(devices=[]):
            outputs = layer(x)
    except REFUSALS:
        return
    is_linear = isinstance(outputs, Tensor) and outputs.shape == expected.shape and _is_near(outputs, expected)
    if is_linear and outputs.requires_grad:
        push = expected.detach().sin()
        given, due = (
            torch.autograd.grad(y, layer.weight, push, materialize_grads=True)[0] for y in (outputs, expected)
        )
        is_linear = _is_near(given, due)
    if not is_linear:
        raise ValueError(
            f"the last layer, {name!r}, is no linear layer: {type(layer).__name__} has a forward of its own, whose "
            "outputs are not its weight times its inputs plus its bias, or whose gradients are not theirs; gradients "
            "of such a layer do not have the form that attacks on a last layer read"
        )


def _is_near(values: Tensor, expected: Tensor) -> bool:
    return bool((values - expected).abs().max() <= MAX_ROUNDING * expected.abs().max())


def same_logits(outputs: Tensor, logits: Tensor) -> bool:
    """Return whether outputs ``[..., n]`` are equivalent for a cross-entropy and its gradients.

    Logits and their log-softmax are.
    """
    if outputs.shape != logits.shape or outputs.data_ptr() == logits.data_ptr():
        return outputs.shape == logits.shape
    first, second = (y.float().log_softmax(-1) for y in (outputs, logits))
    return torch.allclose(first, second, atol=1e-5, equal_nan=True)


def pushed(model: nn.Module, layer: nn.Linear, x: Tensor) -> Tensor | None:
    """Return the change of the model's logits relative to a change of a layer's outputs, ``[N, n]``.

    It is 1 if the outputs are the logits, or terms of them, and another number if they are scaled. None if the outputs
    do not have the logits' shape, or the change of an output changes other logits.
    """
    push = torch.rand(layer.out_features, generator=torch.Generator().manual_seed(0)).to(layer.weight) + 0.5
    changes = []
    before = run(model, x)
    for chosen in (push, push * (torch.arange(len(push), device=push.device) == 0)):
        handle = layer.register_forward_hook(lambda _, __, y, by=chosen: y + by)
        try:
            after = run(model, x)
        finally:
            handle.remove()
        if not isinstance(after, Tensor) or after.shape != (len(x), len(push)):
            return None
        changes.append(after - before)
    all_changes, first = changes
    return all_changes / push if (first[:, 1:].abs() <= 1e-5 * first[:, :1].abs()).all() else None


def adds_up(model: nn.Module, layer: nn.Linear, x: Tensor) -> bool:
    """Return whether the model's outputs are those of a frozen layer plus those of adapters."""
    if layer.weight.requires_grad:
        return False
    ratio = pushed(model, layer, x)
    return ratio is not None and torch.allclose(ratio, torch.ones_like(ratio), atol=1e-4)


def _are_among(y: Tensor, outputs: Any) -> bool:
    """Return whether a layer's outputs are a tensor that the model returns, or one of several."""
    parts = vars(outputs) if is_dataclass(outputs) else outputs
    tensors = [part for part in tree_leaves(parts) if isinstance(part, Tensor) and part.is_floating_point()]
    return any(same_logits(y, tensor) for tensor in tensors if tensor.dim())


def _require_logits(model: nn.Module, name: str, layer: nn.Linear) -> None:
    """Raise `ValueError` if, for a made-up input, the outputs of the layer of this name are none of the model's."""
    outputs: list[Tensor] = []
    with watched({name: layer}, lambda _, __, y: outputs.append(y)):
        x, logits = next(((x, y) for x in dummy_inputs(model) if (y := run(model, x)) is not None), (None, None))
    last = outputs[-1] if outputs else None
    if x is None or last is None:
        return
    if not isinstance(logits, Tensor):
        if layer.weight.requires_grad and not _are_among(last, logits):  # to a frozen one adapters may add
            raise ValueError(
                f"the outputs of {name!r}, which model.head_name names, are not among those that the model returns in "
                f"a {type(logits).__name__}: name the layer that makes the logits"
            )
        return
    if last.shape[-1] != logits.shape[-1]:
        raise ValueError(
            f"model.head_name names {name!r}, which has {last.shape[-1]} outputs where the model has "
            f"{logits.shape[-1]}: name the layer whose outputs are the model's"
        )
    if last.shape != logits.shape:
        return
    if not same_logits(last, logits) and not adds_up(model, layer, x):
        raise ValueError(
            f"the model's outputs are not those of {name!r}, which model.head_name names: something behind it changes "
            "them (a temperature, a prior, a softmax, a sum), and gradients have another form. Return its outputs"
        )


def _find_head_name(model: nn.Module, linears: dict[str, nn.Linear]) -> str:
    outputs: dict[str, Tensor] = {}
    with watched(linears, lambda name, _, y: outputs.update({name: y})):
        passes = ((x, run(model, x)) for x in dummy_inputs(model))
        x, logits = next(((x, y) for x, y in passes if y is not None), (torch.empty(0), None))
    if logits is None:
        if len(linears) == 1:
            return next(iter(linears))
        noted = getattr(model, "input_shape", None)
        reason = "the inputs made up for it" if noted is None else f"inputs of model.input_shape, {tuple(noted)}"
        raise ValueError(
            f"which layer makes the outputs is not known: the model does not take {reason}. Note the shape of one "
            f"input, such as model.input_shape = (C, H, W), pass it where shape= is an option, or name the layer: "
            f"model.head_name = one of {_join_names(linears)}"
        )
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        output_kind = f"a tensor {list(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        named = [name for name, y in outputs.items() if _are_among(y, logits)]
        advice = f"name the layer: model.head_name = one of {_join_names(named)}"
        advice = advice if named else "wrap it in a module whose forward returns the logits of one layer"
        raise ValueError(f"a classifier gives one tensor of logits [N, n], this model {output_kind}; {advice}")
    matching_layers = [name for name, y in outputs.items() if same_logits(y, logits)]
    matching_layers = matching_layers or [n for n, layer in linears.items() if adds_up(model, layer, x)]
    if not matching_layers:
        raise ValueError(_explain_missing_head(model, linears, outputs, x, logits))
    return matching_layers[-1]


def _explain_missing_head(
    model: nn.Module, linears: dict[str, nn.Linear], outputs: dict[str, Tensor], x: Tensor, logits: Tensor
) -> str:
    for name, y in outputs.items():
        chosen = y.dim() == 3 and y.shape[0] == len(x) and y.shape[2] == logits.shape[1]
        if chosen and any(same_logits(y[:, k], logits) for k in range(y.shape[1])):
            return (
                f"the last layer, {name!r}, is applied to all {y.shape[1]} positions of a text, and the outputs are "
                "those of one: attacks read a layer that is applied once. Choose the position before the layer"
            )
    for name, layer in linears.items():
        ratio = None if layer.weight.requires_grad else pushed(model, layer, x)
        if ratio is not None and ratio.abs().min() > 1e-3:
            return (
                f"the outputs of the frozen layer {name!r} are scaled, by {float(ratio.min()):.3g} to "
                f"{float(ratio.max()):.3g}, before they are the model's, as DoRA does once it is trained: attacks read "
                "adapters that are added, such as LoRA's. Merge the adapter's magnitudes into the frozen weights"
            )
    return (
        "the last layer has to be linear: the model's outputs are not those of a fully connected layer. Return "
        "logits, without a softmax, a temperature or a prior behind them"
    )


def _join_names(layers: Iterable[str]) -> str:
    names = [repr(name) for name in layers]
    return ", ".join(names if len(names) < 6 else [names[0], "…", *names[-4:]])


_INPUTS: WeakKeyDictionary[nn.Module, tuple[Any, Tensor | None]] = WeakKeyDictionary()


@remembered
def head_inputs(model: nn.Module, shape: tuple[int, ...] | None = None) -> Tensor | None:
    """Return the head's inputs ``[2, m]`` for two made-up inputs of the model; None if it accepts no made-up input.

    `shape` is that of one input, if it does not follow from the model. They are computed once per state of the model.
    """
    state = shape, [(id(p), p._version) for p in model.parameters()]
    if model not in _INPUTS or _INPUTS[model][0] != state:
        inputs: list[Tensor] = []
        with watched({"head": head(model).layer}, lambda _, x, __: inputs.append(x)):
            fits = any(run(model, x) is not None for x in dummy_inputs(model, shape))
        _INPUTS[model] = state, inputs[-1].detach() if fits and inputs else None
    return _INPUTS[model][1]


def negative_inputs(model: nn.Module, shape: tuple[int, ...] | None = None) -> float | None:
    """Return the share of negative head inputs for made-up inputs; None, not measured, if the model accepts none."""
    inputs = head_inputs(model, shape)
    return None if inputs is None else float((inputs < 0).double().mean())
