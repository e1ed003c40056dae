"""The range of an inversion's inputs: facts that contradict pixels in [0, 1], before and after the search."""

import math
import warnings
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedleak.federated import Update
from fedleak.models.inputs import Enough, as_inputs, run, watched

Box = tuple[float, float] | Literal["pixels"] | None
"""Range of the inputs, None for any; ``"pixels"`` is [0, 1] for images and None for rows, signals and sequences."""
ADVICE = "pass box=(low, high), or None, for inputs that a loader normalised"
UNCHECKED = f"not checked: whether the inputs are pixels in [0, 1], as was assumed; {ADVICE}"
OUTSIDE = 0.05
"""Smallest distance from the range, as a share of it, and smallest share of entries, that contradict it."""
MATCHED = {"l2": 1e-4, "cosine": 0.1}
"""Distance, as a share of the squared gradient or as a cosine's, below which images count as a match."""
MIN_PRESSED, MIN_PRESSURE = 0.2, 2.0
"""Smallest share of entries that the range holds back, and ratio of their slopes to those inside, that contradict it.

Pixels have slopes at the edges as large as inside (ratio 1.0 to 1.2, and more for up to 10 % of the entries only);
inputs in [-1, 1] or of mean 0 have 29 to 80 % at the edges, with slopes 2 to 190 times as large."""
_MAX_ENTRIES, _MAX_SAMPLES = 1000, 128


class FirstLayer(NamedTuple):
    """The layer that takes the model's inputs."""

    name: str
    layer: Any
    norm: Any
    """The batch norm that follows it, or the layer itself if it is one; None if there is none."""

    def parameter(self, kind: str) -> str:
        """Return the name of its ``weight`` or ``bias``."""
        return f"{self.name}.{kind}".lstrip(".")


def as_range(box: Box, is_image: bool = True) -> tuple[float, float] | None:
    """Return the range of the inputs, or None for any; raise `ValueError` unless it is two increasing numbers."""
    if isinstance(box, str) and box == "pixels":
        return (0.0, 1.0) if is_image else None
    if box is None:
        return None
    try:
        low, high = map(float, box)
    except (TypeError, ValueError):
        low = high = math.nan
    if not low < high:
        raise ValueError(f"box is the range of the inputs, (low, high), or None for any; got {box!r}")
    return low, high


def contradiction(update: Update, model: nn.Module, shape: tuple[int, ...], low: Tensor, high: Tensor) -> str:
    """Return the fact by which inputs do not lie in their range; "" if model and update show none.

    `low` and `high` are the range of what the model's first layer takes: numbers, or ``[C, 1, 1]``. Facts are example
    inputs that the caller noted, a first fully connected layer's gradient, whose rows are combinations of the inputs,
    and the running statistics of a batch norm behind the first layer.
    """
    pixels = example_pixels(model) if low.dim() == 0 else None
    if pixels is not None and _leaves(pixels, low, high) > OUTSIDE:
        return f"model.example_inputs reach from {float(pixels.min()):.2g} to {float(pixels.max()):.2g}"
    first = first_layer(model, shape, low, high)
    if first is None:
        return ""
    if isinstance(first.layer, nn.Linear) and _excludes_range(update, first, low, high):
        return f"no combination of the gradient's rows of {first.name!r} is an input in this range"
    if first.norm is not None and _statistics_leave(first, low, high):
        return "the running statistics of the first batch norm are none of such inputs"
    return ""


def example_pixels(model: nn.Module) -> Tensor | None:
    """Return the example inputs that the caller noted, ``model.example_inputs``; None for tokens, or without any."""
    example = getattr(model, "example_inputs", None)
    return example if isinstance(example, Tensor) and example.is_floating_point() else None


def _leaves(x: Tensor, low: Any, high: Any) -> float:
    """Return the share of entries that lie outside of a range by more than `OUTSIDE` of it."""
    margin = OUTSIDE * (high - low)
    return float(((x < low - margin) | (x > high + margin)).double().mean())


def clipping_changes(matches: Tensor) -> str:
    """Return how far images that match their gradients leave [0, 1]; "" if clipping them changes little."""
    if not len(matches) or _leaves(matches, 0.0, 1.0) <= OUTSIDE:
        return ""
    return f"gradients match for values from {float(matches.min()):.2g} to {float(matches.max()):.2g}"


def clip(name: str, images: Tensor, box: Box) -> Tensor:
    """Return an attack's exact images ``[N, ...]`` in their range.

    Warns if pixels in [0, 1] are assumed and images leave this range: most of them contradict it, fewer may be wrong.
    """
    pixel_range = as_range(box, images.dim() > 3)
    facts = [clipping_changes(image) for image in images] if pixel_range and box == "pixels" else []
    if any(facts):
        is_excluded = 2 * sum(map(bool, facts)) > len(facts)
        excluded = f"the inputs are no pixels in [0, 1]: {max(facts)}; {ADVICE}"
        warnings.warn(f"{name}: {excluded if is_excluded else UNCHECKED}", stacklevel=3)
    return images if pixel_range is None else images.clamp(*pixel_range)


def pressure(images: Tensor, slopes: Tensor, values: Tensor) -> str:
    """Return how many entries ``[N, ...]`` in [0, 1] are held back by this range; "" unless most matches are.

    `slopes` are the derivatives of the distances `values`, ``[N]``, by the images.
    """
    at_edges = (images <= 0) | (images >= 1)
    outwards = ((images <= 0) & (slopes > 0)) | ((images >= 1) & (slopes < 0))
    shares, is_pressed = [], []
    for edge, out, slope, value in zip(at_edges, outwards, slopes.double().square(), values, strict=True):
        shares.append(float(out.double().mean()))
        ratio = (slope[out].mean() / slope[~edge].mean()).sqrt()
        is_pressed.append(float(value) < MATCHED["cosine"] and shares[-1] > MIN_PRESSED and float(ratio) > MIN_PRESSURE)
    if 2 * sum(is_pressed) <= len(shares):
        return ""
    share = f"{100 * np.mean(shares):.0f} %"
    return f"gradients match better outside of this range, at whose ends {share} of the values are"


def first_layer(model: nn.Module, shape: tuple[int, ...], low: Tensor, high: Tensor) -> FirstLayer | None:
    """Return the layer that takes inputs in [0, 1] as they are, or moved linearly to a range; None for others."""
    kinds = nn.Linear | nn.Conv2d | _BatchNorm
    layers = {name: module for name, module in model.named_modules() if isinstance(module, kinds)}
    calls: list[tuple[str, Tensor, Tensor]] = []
    x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))

    def note(*call: Any) -> None:
        calls.append(call)
        if len(calls) == 2:
            raise Enough

    with watched(layers, note):
        run(model, as_inputs(x, model))
    if not calls:
        return None
    name, inputs, outputs = calls[0]
    expected = as_inputs(x, model) * (high - low).to(inputs) + low.to(inputs)
    if inputs.numel() != expected.numel() or not torch.allclose(inputs.flatten(1), expected.flatten(1), atol=1e-5):
        return None
    layer = layers[name]
    if isinstance(layer, _BatchNorm):
        return FirstLayer(name, layer, layer)
    norm = layers[calls[1][0]] if len(calls) > 1 and calls[1][1] is outputs else None
    return FirstLayer(name, layer, norm if isinstance(norm, _BatchNorm) else None)


def _excludes_range(update: Update, first: FirstLayer, low: Tensor, high: Tensor) -> bool:
    """Return whether the first layer's gradient excludes inputs in a range.

    Its rows with the bias' entries are combinations of the samples' (x, 1), also after several steps. If there are
    fewer samples than rows, each (x, 1) is a combination of the rows: a linear program looks for one in the range.
    """
    weight, bias = (update.tensors.get(first.parameter(kind)) for kind in ("weight", "bias"))
    if weight is None or bias is None or low.dim():
        return False
    rows, generator = torch.cat([weight, bias[:, None]], 1).double().cpu(), torch.Generator().manual_seed(0)
    if update.samples >= min(*rows.shape, _MAX_SAMPLES) or not torch.isfinite(rows).all() or not rows.any():
        return False
    mixtures = torch.randn(update.samples + 1, len(rows), generator=generator, dtype=rows.dtype)
    _, sizes, directions = torch.linalg.svd(mixtures @ rows, full_matrices=False)
    rank = int((sizes > 1e-4 * sizes[0]).sum())
    if rank > update.samples or float(directions[:rank, -1].norm()) < 1e-4:
        return False
    entries = torch.randperm(rows.shape[1] - 1, generator=generator)[:_MAX_ENTRIES]
    x, one = directions[:rank, entries].T.numpy(), directions[:rank, -1].numpy()
    slack = np.ones((len(x), 1))
    above, below = np.hstack([x, -slack]), np.hstack([-x, -slack])
    solved = linprog(
        np.append(np.zeros(rank), 1.0),
        A_ub=np.vstack([above, below]),
        b_ub=np.append(np.full(len(x), float(high)), np.full(len(x), -float(low))),
        A_eq=np.append(one, 0.0)[None],
        b_eq=[1.0],
        bounds=[(None, None)] * rank + [(0, None)],
    )
    return bool(solved.status == 0 and solved.fun > OUTSIDE * float(high - low))


def _statistics_leave(first: FirstLayer, low: Tensor, high: Tensor) -> bool:
    """Return whether means or variances of outputs are larger than those of any inputs in the range."""
    norm, layer = first.norm, first.layer
    if norm.running_mean is None or not int(norm.num_batches_tracked or 0) or getattr(layer, "groups", 1) > 1:
        return False
    start = 0.0 if norm.momentum is None else (1 - norm.momentum) ** int(norm.num_batches_tracked)
    if start > 0.5:  # the initial values, 0 and 1, still count
        return False
    mean, variance = norm.running_mean.double() / (1 - start), (norm.running_var.double() - start) / (1 - start)
    low, high = low.double().to(mean.device), high.double().to(mean.device)
    if layer is norm:
        smallest, largest = low.flatten().expand_as(mean), high.flatten().expand_as(mean)
    else:
        weight = layer.weight.detach().double()
        if getattr(layer, "padding", 0) not in (0, (0, 0)):
            low, high = low.clamp(max=0), high.clamp(min=0)
        positive, negative, dims = weight.clamp(min=0), weight.clamp(max=0), tuple(range(1, weight.dim()))
        bias = 0.0 if layer.bias is None else layer.bias.detach().double()
        smallest = (positive * low + negative * high).sum(dims) + bias
        largest = (positive * high + negative * low).sum(dims) + bias
    margin = OUTSIDE * (largest - smallest)
    leaves = (mean < smallest - margin) | (mean > largest + margin)
    spread = (largest + margin - mean) * (mean - smallest + margin)  # the largest variance of values in a range
    return float((leaves | (variance > spread)).double().mean()) > OUTSIDE
