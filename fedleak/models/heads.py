"""The last fully connected layer: where it is, what goes into it, and the gradients that follow in closed form."""

from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fedleak.models.inputs import dummy_inputs, forward, run, watched


class Head(NamedTuple):
    """The last fully connected layer of a model."""

    name: str
    layer: nn.Linear
    tied: str = ""
    """Under which name the model lists its weight, if that is another layer's too and was declared there first."""

    @property
    def weight(self) -> str:
        """Name of the weight among the model's parameters."""
        return self.tied or (f"{self.name}.weight" if self.name else "weight")

    @property
    def bias(self) -> str:
        """Name of the bias among the model's parameters (whether or not there is one)."""
        return f"{self.name}.bias" if self.name else "bias"


_FOUND: WeakKeyDictionary[nn.Module, tuple[list[int], str]] = WeakKeyDictionary()


def head(model: nn.Module, name: str | None = None) -> Head:
    """Find the `nn.Linear` whose outputs are the model's, whatever the order in which the layers are declared.

    It is the last module of an `nn.Sequential`, and a bare `nn.Linear` itself; of other models a forward pass of a
    made-up input tells, once a model. A frozen layer is one too if adapters (LoRA) add to its outputs. Where the caller
    knows the layer, `name` says it; to name it for all attacks, note it on the model: ``model.head_name = "fc"``.
    Raises `ValueError` if the model has no such layer, its outputs are not those of one layer (two heads, a softmax),
    or nothing tells.
    """
    linears = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    if not linears:
        raise ValueError(f"{type(model).__name__} has no fully connected layer, so it has no head to attack")
    name = getattr(model, "head_name", None) if name is None else name
    if name is not None:
        if name not in linears:
            raise ValueError(f"{name!r} is no fully connected layer of the model; there are: {_listed(linears)}")
        return _head(model, name, linears[name])
    last = model
    while type(last).forward is nn.Sequential.forward and len(last):  # type: ignore[arg-type]
        last = last[-1]  # type: ignore[index]
    found = next((n for n, m in linears.items() if m is last), None)
    if found is None:
        layers = [id(m) for m in linears.values()]
        if model not in _FOUND or _FOUND[model][0] != layers:
            _FOUND[model] = layers, _source(model, linears)
        found = _FOUND[model][1]
    return _head(model, found, linears[found])


def _head(model: nn.Module, name: str, layer: nn.Linear) -> Head:
    own = Head(name, layer)
    listed = next((n for n, p in model.named_parameters() if p is layer.weight), own.weight)
    return own if listed == own.weight else Head(name, layer, listed)


def adds_up(model: nn.Module, layer: nn.Linear, x: Tensor) -> bool:
    """Say whether the model's outputs move by just as much as those of a frozen layer, to which adapters add theirs."""
    if layer.weight.requires_grad:
        return False
    push = torch.rand(layer.out_features, generator=torch.Generator().manual_seed(0)).to(layer.weight)
    before = run(model, x)
    handle = layer.register_forward_hook(lambda _, __, y: y + push)
    try:
        after = run(model, x)
    finally:
        handle.remove()
    same = isinstance(after, Tensor) and after.shape == (len(x), layer.out_features)
    return same and torch.allclose(before.log_softmax(1).add(push).log_softmax(1), after.log_softmax(1), atol=1e-5)


def _source(model: nn.Module, linears: dict[str, nn.Linear]) -> str:
    """Name the layer that the outputs come from, by a forward pass."""
    advice = f"name the layer: model.head_name = one of {_listed(linears)}"
    seen: dict[str, Tensor] = {}
    with watched(linears, lambda name, _, y: seen.update({name: y})):
        passes = ((x, run(model, x)) for x in dummy_inputs(model))
        x, logits = next(((x, y) for x, y in passes if y is not None), (torch.empty(0), None))
    if logits is None:
        if len(linears) == 1:
            return next(iter(linears))
        raise ValueError(
            f"which layer makes the outputs is not known: the model does not take the inputs made up for it. Note the "
            f"shape of one input, model.input_shape = (C, H, W), or {advice}"
        )
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        what = f"a tensor {list(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        raise ValueError(f"a classifier gives one tensor of logits [N, n], this model {what}; {advice}")
    # Cross-entropy does not tell logits from their log-softmax, and neither do its gradients.
    target = logits.log_softmax(1)
    same = [
        n
        for n, y in seen.items()
        if y.shape == target.shape and torch.allclose(y.log_softmax(1), target, atol=1e-6, equal_nan=True)
    ]
    same = same or [n for n, layer in linears.items() if adds_up(model, layer, x)]
    if not same:
        raise ValueError(
            "the last layer has to be linear: the model's outputs are not those of a fully connected layer. Return "
            f"logits, without a softmax, or {advice}"
        )
    return same[-1]


def _listed(linears: dict[str, nn.Linear]) -> str:
    names = [repr(name) for name in linears]
    return ", ".join(names if len(names) < 6 else [names[0], "…", *names[-4:]])


def negative_inputs(model: nn.Module) -> float:
    """Return the share of the head's inputs that are negative, for made-up inputs; 0 where none fits."""
    seen: list[Tensor] = []
    with watched({"head": head(model).layer}, lambda _, x, __: seen.append(x)):
        fits = any(run(model, x) is not None for x in dummy_inputs(model))
    return float((seen[-1] < 0).double().mean()) if fits and seen else 0.0


class HeadPass(NamedTuple):
    """One forward pass, seen from the head: all that last-layer gradients depend on."""

    inputs: Tensor
    """Inputs of the head, ``[N, m]``."""
    probabilities: Tensor
    """Softmax of the outputs, ``[N, n]``."""

    def row_sums(self, index: Tensor, labels: Tensor) -> Tensor:
        """Return the row sums ``[..., n]`` of the head's weight gradient for many batches, without a backward pass.

        The mean cross-entropy gradient of the head is ``(P - Y)^T A / B`` with A the head's inputs, so its row
        sums are the batch mean of ``(p_k - y_k) * sum(a_k)`` (LLG, Eqs. 9 and 13).

        `index` says which of the N samples are in a batch, `labels` are theirs, both ``[..., B]``.
        """
        mass = self.inputs.sum(dim=1)
        n_classes = self.probabilities.shape[1]
        flat = index.reshape(-1, index.shape[-1])
        pulled = nn.functional.embedding_bag(flat, self.probabilities * mass[:, None], mode="mean")
        pushed = torch.zeros_like(pulled).scatter_add_(1, labels.to(pulled.device).reshape(flat.shape), mass[flat])
        return (pulled - pushed / index.shape[-1]).reshape(*index.shape[:-1], n_classes)


def batch_dependent(model: nn.Module) -> bool:
    """Say whether one sample's output depends on the rest of its batch (batch norm in training mode)."""
    norms = (nn.modules.batchnorm._BatchNorm,)
    return any(isinstance(m, norms) and (m.training or m.running_mean is None) for m in model.modules())


@torch.no_grad()
def head_pass(model: nn.Module, x: Tensor, chunk: int = 2048) -> HeadPass:
    """Run images ``[N, C, H, W]`` through the model and keep what the head saw; running statistics stay.

    The head is applied once. `chunk` images are run at a time, but all at once where batch norm in training mode makes
    the batch matter.
    """
    if len(x) == 0:
        raise ValueError("no images to run through the model")
    seen: list[Tensor] = []
    with watched({"head": head(model).layer}, lambda _, inputs, __: seen.append(inputs)):
        logits = [forward(model, piece) for piece in ([x] if batch_dependent(model) else x.split(chunk))]
    return HeadPass(torch.cat(seen), torch.cat(logits).softmax(dim=1))
