"""Inspect a model on the client before training, for traces of models that are crafted to leak.

A malicious server sends a model whose gradient reveals more than an honest model's: LIA-SA and EludingSA make one layer
ignore the data, class fishing excludes all classes but one, Robbing the Fed and MANDRAKE sort images into bins. Each
check looks for one such trace and compares a number with a threshold. A server that knows the checks can stay below all
thresholds: a model without a finding may still be malicious.
"""

import copy
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedleak.models.inputs import as_inputs, run, watched

HIDDEN = 10.0
"""Assumed bound of all layers' inputs except the first's; for batch norm's output in standard deviations."""
CONSTANT = 0.1
"""Largest change of a unit's output over all inputs, as a share of the output, of a unit that ignores the data."""
DEAD = 0.9
"""Threshold for the share of a layer's units that ignore the data or are inactive. (Pruning may remove half.)"""
PARALLEL = 1e-4
"""Largest difference of two rows' cosine from ± 1 at which they count as equal up to a scale."""
DUPLICATED = 0.5
"""Threshold for the share of a layer's rows that repeat another row up to a scale."""
ALIGNED = 0.9
"""Threshold for the mean squared cosine of a layer's rows with their common direction."""
SHUT_OUT = 10.0
"""Threshold for the logits by which a class stays below another one for all inputs of the last layer."""
SILENT = 1e-3
"""Largest variation over a batch, as a share of its size, of an activation that counts as silent (a ReLU at 0)."""
SATURATED = 1e-3
"""Threshold for the largest softmax entropy in a batch, relative to the maximum, if all predict the same class."""
SMALLEST = 4
"""Fewest rows and columns of a layer whose rows are compared; bins need twice as many."""


class Finding(NamedTuple):
    """One reason not to train on a model."""

    check: str
    """Name of the check: see `inspect_model`."""
    where: str
    """The inspected tensor or layer."""
    number: float
    """Measured value."""
    threshold: float
    """Value at which the number becomes a finding."""
    why: str
    """Meaning of the value, with its unit."""

    def __str__(self) -> str:
        return f"{self.check}: {self.where} has {self.number:.4g} (threshold {self.threshold:g}): {self.why}"


def inspect_model(
    state: Mapping[str, Tensor],
    model: nn.Module | None = None,
    x: Tensor | None = None,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> list[Finding]:
    """Return the findings that speak against training on a model that a server has sent.

    The checks of the weights are ``"dead units"``, ``"duplicated rows"``, ``"bins"`` (a fully connected layer whose
    rows have the same direction and different biases), ``"class shut out"`` (in the last matrix), ``"not finite"`` and
    ``"not readable"``. With the module the check ``"not the client's model"`` is added, and with samples
    ``"silent activations"`` and ``"saturated softmax"``. Raises `ValueError` for samples without a module, or fewer
    than two.

    Parameters
    ----------
    state
        The state that was sent, as from ``model.state_dict()``. The first weight that is not a vector counts as the
        input layer's, the last matrix as the last layer's.
    model
        The client's module, into a copy of which the state is loaded.
    x
        Samples of the client ``[B, ...]``, at least two. Only activations that are modules of `torch.nn` are inspected,
        not functions.
    bounds
        Range of the model's inputs.
    """
    if x is not None and (model is None or len(x) < 2):
        raise ValueError("samples are passed through the client's model, and are at least two")
    layers = list(_layers(state))
    if not layers:
        why = "tensors that are called weights, which nothing can be inspected without"
        return [Finding("not readable", "the state", 0, 1, why)]
    non_finite_counts = {name: float((~t.isfinite()).sum()) for name, t in state.items() if not t.isfinite().all()}
    if non_finite_counts:
        return [Finding("not finite", name, number, 1, "entries") for name, number in non_finite_counts.items()]
    findings = [f for k, layer in enumerate(layers) for f in _inspect_layer(*layer, None if k else bounds)]
    if matrices := [layer for layer in layers if layer[1].dim() == 2]:
        findings += _inspect_head(*matrices[-1])
    return findings + (_inspect_module(state, model, x) if model is not None else [])


def _layers(state: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor, Tensor | None]]:
    weight_names = [name for name in state if "weight" in name.rpartition(".")[2] and not name.endswith("_mask")]
    weights = [(name, state[name]) for name in weight_names if state[name].is_floating_point() and state[name].numel()]
    for name, weight in sorted(weights, key=lambda item: item[1].dim() < 2):
        path, dot, last = name.rpartition(".")
        bias = state.get(path + dot + last.replace("weight", "bias"))
        has_bias = bias is not None and bias.shape == weight.shape[:1]
        yield name, weight.detach().float(), bias.detach().float() if has_bias and bias is not None else None


def _inspect_layer(
    name: str, weight: Tensor, bias: Tensor | None, bounds: tuple[float, float] | None
) -> Iterator[Finding]:
    rows = weight.flatten(1) if weight.dim() > 1 else weight[:, None]
    low, high = bounds or (-HIDDEN, HIDDEN)
    centre = rows.sum(1) * (low + high) / 2 + (0 if bias is None else bias)
    max_change = rows.abs().sum(1) * (high - low) / 2
    dead = int(((max_change <= CONSTANT * centre.abs()) | (centre + max_change <= 0)).sum()) / len(rows)
    if dead >= DEAD:
        yield Finding("dead units", name, dead, DEAD, "of its units give (nearly) the same whatever goes in")
    if weight.dim() < 2 or min(rows.shape) < SMALLEST:
        return
    unit = nn.functional.normalize(rows[(rows != 0).sum(1) > 1])  # rows with one entry are often parallel by chance
    twins = sum(int(((part @ unit.T).abs() >= 1 - PARALLEL).sum(1).gt(1).sum()) for part in unit.split(1024))
    if twins >= DUPLICATED * len(rows):
        yield Finding("duplicated rows", name, twins / len(rows), DUPLICATED, "of its rows repeat another's direction")
    if weight.dim() > 2 or bias is None or len(unit) < max(2 * SMALLEST, len(rows) / 2):
        return
    common = torch.rand(rows.shape[1], generator=torch.Generator().manual_seed(0)).to(unit)
    for _ in range(10):  # power iterations
        common = nn.functional.normalize(unit.T @ (unit @ common), dim=0)
    aligned = float((unit @ common).square().mean())
    if aligned >= ALIGNED and len(bias.unique()) >= DUPLICATED * len(bias):
        yield Finding("bins", name, aligned, ALIGNED, "mean squared cosine of its rows, whose biases sort the inputs")


def _inspect_head(name: str, weight: Tensor, bias: Tensor | None) -> Iterator[Finding]:
    if bias is None or len(weight) < 2:
        return
    first = int(bias.argmax())
    shortfalls = bias[first] - bias - HIDDEN * (weight - weight[first]).abs().sum(1)
    shortfalls[first] = -math.inf
    if (number := float(shortfalls.max())) >= SHUT_OUT:
        yield Finding("class shut out", name, number, SHUT_OUT, "logits that a class is behind, whatever goes in")


def _inspect_module(state: Mapping[str, Tensor], model: nn.Module, x: Tensor | None) -> list[Finding]:
    model = copy.deepcopy(model)
    try:
        model.load_state_dict(dict(state))
    except RuntimeError as error:
        why = " ".join(str(error).split())
        return [Finding("not the client's model", type(model).__name__, 1, 1, why)]
    if x is None:
        return []
    activations = {n: m for n, m in model.named_modules() if type(m).__module__ == "torch.nn.modules.activation"}
    silenced: dict[str, float] = {}

    def record_silence(name: str, _: Tensor, outputs: Tensor) -> None:
        units = outputs.detach().transpose(0, 1).flatten(1)
        low, high = units.amin(1), units.amax(1)
        silent = high - low <= SILENT * torch.maximum(low.abs(), high.abs())
        silenced[name] = max(silenced.get(name, 0.0), int(silent.sum()) / len(silent))

    with watched(activations, record_silence):
        logits = run(model, as_inputs(x, model))
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        raise ValueError("the client's model does not take these samples, or gives no logits [B, n]")
    if not logits.isfinite().all():
        return [Finding("not finite", "the output", float((~logits.isfinite()).sum()), 1, "entries for these samples")]
    why = "of its units give (nearly) the same for all samples"
    findings = [Finding("silent activations", n, share, DEAD, why) for n, share in silenced.items() if share >= DEAD]
    entropy = float(torch.special.entr(logits.softmax(1)).sum(1).max()) / math.log(logits.shape[1])
    if entropy <= SATURATED and len(logits.argmax(1).unique()) == 1:
        why = "of the largest entropy at most, and the same class for all samples"
        findings.append(Finding("saturated softmax", "the output", entropy, SATURATED, why))
    return findings
