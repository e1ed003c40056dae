"""Inspection of a model by a client before training: traces of models that are crafted to leak.

A malicious server sends a model whose gradient says more than an honest one's: LIA-SA and EludingSA cut the data off by
one layer, class fishing shuts all classes but one out, Robbing the Fed and MANDRAKE sort images into bins. Each check
below looks for one such trace and gives a number with its threshold. A server that knows the checks can stay below all
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
"""What goes into a layer behind the first is taken to lie within ± this; batch norm's output, in deviations."""
CONSTANT = 0.1
"""A unit is cut off from the data where all of it moves the unit's output by at most this share of the output."""
DEAD = 0.9
"""Share of a layer's units that are cut off or inactive. (Half of them may be pruned away.)"""
PARALLEL = 1e-4
"""Two rows are the same up to a scale where their cosine differs from ± 1 by less than this."""
DUPLICATED = 0.5
"""Share of a layer's rows that another row repeats up to a scale."""
ALIGNED = 0.9
"""Mean squared cosine of a layer's rows with their common direction."""
SHUT_OUT = 10.0
"""How far, in logits, a class stays below another one, whatever goes into the last layer."""
SILENT = 1e-3
"""An activation is silent on a batch where it varies by at most this share of its size; a ReLU that gives 0 does."""
SATURATED = 1e-3
"""Largest entropy of the batch's softmaxes, as a share of the largest possible one, where all name the same class."""
SMALLEST = 4
"""Layers of fewer rows or columns are not compared row by row; bins are at least twice as many."""


class Finding(NamedTuple):
    """One reason not to train on a model."""

    check: str
    """Name of the check: see `inspect_model`."""
    where: str
    """The tensor or layer that was looked at."""
    number: float
    """Measured value."""
    threshold: float
    """From where on it is a finding."""
    why: str
    """Meaning of the value, with its unit."""

    def __str__(self) -> str:
        return f"{self.check}: {self.where} has {self.number:.4g} (threshold {self.threshold:g}): {self.why}"


class RefusedModel(ValueError):
    """A client refuses to train on a model; ``findings`` say why."""

    def __init__(self, findings: list[Finding]):
        self.findings = findings
        super().__init__("the model is not trained on: " + "; ".join(map(str, findings)))


def inspect_model(
    state: Mapping[str, Tensor],
    model: nn.Module | None = None,
    x: Tensor | None = None,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> list[Finding]:
    """Return what speaks against training on a model that a server has sent; nothing if no check finds anything.

    The weights alone give the checks ``"dead units"``, ``"duplicated rows"``, ``"bins"`` (a fully connected layer whose
    rows have one direction, and biases of their own), ``"class shut out"`` (of the last matrix), ``"not finite"`` and
    ``"not readable"``. With the module there is ``"not the client's model"``, and with samples of the client's own too
    ``"silent activations"`` and ``"saturated softmax"``. Raises `ValueError` for samples without a module, or fewer
    than two of them.

    Parameters
    ----------
    state
        What was sent, as ``model.state_dict()`` has it; weights are known by their names. The first weight that is no
        vector is taken for the input layer's, the last matrix for the last layer's.
    model
        The client's own module, which takes this state; it is copied, and keeps its weights and its mode.
    x
        Samples of the client ``[B, ...]``, two at least, as the model takes them. Activations that are modules of
        `torch.nn` are seen, functions are not.
    bounds
        Between which numbers the model's inputs lie.
    """
    if x is not None and (model is None or len(x) < 2):
        raise ValueError("samples are passed through the client's model, and are at least two")
    layers = list(_layers(state))
    if not layers:
        return [unreadable("tensors that are called weights, which nothing can be inspected without")]
    wrong = {name: float((~t.isfinite()).sum()) for name, t in state.items() if not t.isfinite().all()}
    if wrong:
        return [Finding("not finite", name, number, 1, "entries") for name, number in wrong.items()]
    findings = [f for place, layer in enumerate(layers) for f in _of_layer(*layer, None if place else bounds)]
    if matrices := [layer for layer in layers if layer[1].dim() == 2]:
        findings += _of_head(*matrices[-1])
    return findings + (_of_model(state, model, x) if model is not None else [])


def unreadable(why: object) -> Finding:
    """Return the finding of a model that cannot be inspected, for this reason."""
    return Finding("not readable", "the state", 0, 1, str(why))


def _layers(state: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor, Tensor | None]]:
    called = [name for name in state if "weight" in name.rpartition(".")[2] and not name.endswith("_mask")]
    named = [(name, state[name]) for name in called if state[name].is_floating_point() and state[name].numel()]
    for name, weight in sorted(named, key=lambda item: item[1].dim() < 2):
        path, dot, last = name.rpartition(".")
        bias = state.get(path + dot + last.replace("weight", "bias"))
        fits = bias is not None and bias.shape == weight.shape[:1]
        yield name, weight.detach().float(), bias.detach().float() if fits and bias is not None else None


def _of_layer(name: str, weight: Tensor, bias: Tensor | None, bounds: tuple[float, float] | None) -> Iterator[Finding]:
    rows = weight.flatten(1) if weight.dim() > 1 else weight[:, None]
    low, high = bounds or (-HIDDEN, HIDDEN)
    centre = rows.sum(1) * (low + high) / 2 + (0 if bias is None else bias)
    reach = rows.abs().sum(1) * (high - low) / 2
    dead = int(((reach <= CONSTANT * centre.abs()) | (centre + reach <= 0)).sum()) / len(rows)
    if dead >= DEAD:
        yield Finding("dead units", name, dead, DEAD, "of its units give (nearly) the same whatever goes in")
    if weight.dim() < 2 or min(rows.shape) < SMALLEST:
        return
    unit = nn.functional.normalize(rows[(rows != 0).sum(1) > 1])  # a single entry is parallel to half of the others
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


def _of_head(name: str, weight: Tensor, bias: Tensor | None) -> Iterator[Finding]:
    if bias is None or len(weight) < 2:
        return
    first = int(bias.argmax())
    behind = bias[first] - bias - HIDDEN * (weight - weight[first]).abs().sum(1)
    behind[first] = -math.inf
    if (number := float(behind.max())) >= SHUT_OUT:
        yield Finding("class shut out", name, number, SHUT_OUT, "logits that a class is behind, whatever goes in")


def _of_model(state: Mapping[str, Tensor], model: nn.Module, x: Tensor | None) -> list[Finding]:
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

    def note(name: str, _: Tensor, outputs: Tensor) -> None:
        units = outputs.detach().transpose(0, 1).flatten(1)
        low, high = units.amin(1), units.amax(1)
        silent = high - low <= SILENT * torch.maximum(low.abs(), high.abs())
        silenced[name] = max(silenced.get(name, 0.0), int(silent.sum()) / len(silent))

    with watched(activations, note):
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
