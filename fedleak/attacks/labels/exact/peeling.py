"""Peeling: prove labels sample by sample, and estimate the remaining ones.

An exclusively activated neuron (Pan et al., USENIX Security 2022), which a single sample of the batch passes, has that
sample's input in its row of the gradient. The input gives the sample's probabilities and gradient; subtracting
proven samples makes further neurons exclusive. `spear` splits up to 16 of the remaining samples, and `whole_head`
estimates the others.

A label is proven if a proposed input x passes four tests, each to the rounding t of the update's own format:

1. the gradient of its neuron's bias is delta_j(x, y) / B, for one label y alone;
2. delta(x, y), at all m outputs, lies in the column space of the layer's gradient, which the B samples' deltas span;
3. with any other label it lies far outside, so that the second test has power;
4. x is not the input of a sample that is proven already.

For a row with several samples, x is a mixture of their inputs. A share of about 2 t n passes the first test by chance
(2 t for a coefficient spread evenly over its size; n labels). Those still face the m - B - 8 equations of the second,
each to t, at least `MIN_SPARE_OUTPUTS` of them. This is an argument for mixtures in general position, not a theorem;
experiments measure how often it fails. Only the label is proven: an input with a small admixture of others can pass by
chance with the right one. The model, B, and one step of the mean cross-entropy of hard labels are taken as given; where
one of them is wrong, the first two tests fail.
"""

import contextlib
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedleak.attacks.labels import whole_head
from fedleak.attacks.labels.exact import spear
from fedleak.attacks.labels.exact.spear import SplitLayer
from fedleak.attacks.labels.inputs import whole_gradient
from fedleak.attacks.registry import WITH_AUXILIARY, Need, attack
from fedleak.attacks.result import Prepared, Result
from fedleak.data import Images
from fedleak.federated import Update
from fedleak.models import Link, head

TOLERANCE_IN_ROUNDINGS = 2**13
"""Tolerance of a test, in units of the last place of the update's format: 1e-3 in float32, 2e-12 in float64."""
MAX_TOLERANCE = 0.01
"""Largest tolerance that still proves labels; half precision is coarser."""
MIN_MISS_OF_OTHER_LABELS = 100
"""Smallest distance of any other label's gradient from the column space, in tolerances."""
SAME_INPUT_DISTANCE = 0.01
"""Inputs that differ by less than this share of their length count as the same sample's."""
EXTRA_DIRECTIONS, MIN_SPARE_OUTPUTS = 8, 16
"""Directions of the column space in addition to one per sample, against rounding; live outputs in addition to all."""
MAX_NEURONS_PER_ROUND, MAX_ENTRIES = 1024, 2**24
"""Most neurons whose inputs are tested in a round; most entries of backpropagated gradients in memory at once."""
DRAWS = 2**12
"""Most draws of directions when the remaining samples are split: about half a second."""


class Traced(NamedTuple):
    """Head inputs, errors and gradients of samples, from one pass forwards and backwards."""

    inputs: Tensor
    """Inputs of the head, ``[k, h]``."""
    errors: Tensor
    """``p - y`` for each possible label, ``[k, n, n]``."""
    deltas: Tensor
    """Gradient of the split layer's outputs for each possible label, ``[k, n, m]``."""


def trace(x: Tensor, links: tuple[Link, ...]) -> Traced:
    """Pass inputs ``[k, d]`` of a layer forwards through the links, and the gradient for each label back."""
    gates = []
    for link in links:
        inputs, x = x, link.outputs(x)
        if link is not links[-1]:
            gates.append(x > 0 if link.relu else torch.ones_like(x, dtype=torch.bool))
            x = x * gates[-1]
    errors = x.softmax(1)[:, None] - torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    deltas = errors
    for link, gate in zip(links[:0:-1], gates[::-1], strict=True):
        deltas = (deltas @ link.matrix()) * gate[:, None]
    return Traced(inputs, errors, deltas)


def is_distinct(x: Tensor, proven: Tensor) -> bool:
    """Return whether all inputs ``[k, d]`` differ from the `proven` samples' inputs ``[s, d]``."""
    return bool((torch.cdist(x, proven) > SAME_INPUT_DISTANCE * x.norm(dim=1, keepdim=True)).all())


class Peeled:
    """The proven samples of an update, and the gradients of layer and head that remain without them.

    Parameters
    ----------
    layer
        The layer that is split; it is not modified.
    head_gradient
        Gradients of the head's weights and bias side by side, ``[n, h + 1]``.
    samples, tolerance
        B and t.
    """

    def __init__(self, layer: SplitLayer, head_gradient: Tensor, samples: int, tolerance: float, seed: int):
        self.samples, self.tolerance = samples, tolerance
        self.layer, self.head_gradient = layer, head_gradient
        self.accumulated_size = layer.bias.abs()  # sum of the sizes of all samples of a neuron
        self.inputs, self.labels = layer.gradient[:0], torch.zeros(0, dtype=torch.long, device=layer.bias.device)
        shape, generator = (layer.gradient.shape[1], samples + EXTRA_DIRECTIONS), torch.Generator().manual_seed(seed)
        probes = torch.randn(shape, generator=generator, dtype=torch.double)
        self.column_space = torch.linalg.qr(layer.gradient @ probes.to(layer.bias.device)).Q

    def compute_misses(self, traced: Traced) -> Tensor:
        """Return the share of the output gradients' length that lies outside the column space, ``[k, n]``."""
        outside = traced.deltas - traced.deltas @ self.column_space @ self.column_space.mT
        return outside.norm(dim=2) / traced.deltas.norm(dim=2).clamp(min=1e-300)

    def test_proposals(self, x: Tensor, target: Tensor, neurons: Tensor) -> tuple[Tensor, Tensor]:
        """Test proposals ``[k, d]`` whose gradients at the `neurons` ``[k, j]`` have to be the `target` ``[k, j]``.

        Returns each proposal's label, and the share of its gradient outside the column space, ``[k]``: inf if a test
        fails.
        """
        traced = trace(x, self.layer.links)
        at = traced.deltas.gather(2, neurons[:, None].expand(-1, traced.deltas.shape[1], -1)) / self.samples
        off = (at - target[:, None]).abs().amax(2) / target.abs().amax(1, keepdim=True).clamp(min=1e-300)
        labels, missed = off.argmin(1), torch.full_like(off[:, 0], torch.inf)
        fitting = ((off <= self.tolerance).sum(1) == 1).nonzero()[:, 0]  # test 1: exactly one label fits
        outside = self.compute_misses(Traced(*(part[fitting] for part in traced)))
        misses = outside.gather(1, labels[fitting, None])[:, 0]
        others = outside.scatter(1, labels[fitting, None], torch.inf).amin(1)
        passes = (misses <= self.tolerance) & (others > MIN_MISS_OF_OTHER_LABELS * self.tolerance)  # tests 2 and 3
        missed[fitting[passes]] = misses[passes]
        return labels, missed

    def subtract(self, x: Tensor, labels: Tensor) -> None:
        """Record samples as proven, and subtract their gradients from those of layer and head."""
        traced, rows = trace(x, self.layer.links), torch.arange(len(x), device=x.device)
        errors, deltas = (part[rows, labels] / self.samples for part in traced[1:])
        links, gradient, bias = self.layer
        self.layer = SplitLayer(links, gradient - deltas.T @ x, bias - deltas.sum(0))
        self.head_gradient = self.head_gradient - errors.T @ nn.functional.pad(traced.inputs, (0, 1), value=1.0)
        self.accumulated_size = self.accumulated_size + deltas.abs().sum(0)
        self.inputs, self.labels = torch.cat([self.inputs, x]), torch.cat([self.labels, labels])

    def peel_round(self) -> bool:
        """Prove and subtract the samples of exclusively activated neurons; return whether there were any."""
        gradient, bias = self.layer[1:]
        unexplained = bias.abs() > self.tolerance**0.5 * self.accumulated_size  # the rest is rounding
        neurons = unexplained.nonzero()[:, 0]
        neurons = neurons[bias[neurons].abs().argsort(descending=True)[:MAX_NEURONS_PER_ROUND]]
        # An exclusive neuron's weight gradient is its sample's input times its bias gradient.
        x, links = gradient[neurons] / bias[neurons, None], self.layer.links
        piece_size = max(1, MAX_ENTRIES // (links[-1].layer.weight.shape[0] * len(bias)))
        parts = [part.split(piece_size) for part in (x, bias[neurons, None], neurons[:, None])]
        tested = [self.test_proposals(*part) for part in zip(*parts, strict=True)]
        if not tested:
            return False
        labels, missed = map(torch.cat, zip(*tested, strict=True))
        new: list[int] = []
        for k in missed.argsort()[: int(missed.isfinite().sum())].tolist():
            proven_inputs = torch.cat([self.inputs, x[new]])
            if len(proven_inputs) < self.samples and is_distinct(x[k : k + 1], proven_inputs):
                new.append(k)
        self.subtract(x[new], labels[new])
        return bool(new)

    def split_remaining(self, seed: int) -> None:
        """Split the remaining gradient by `spear`; subtract the samples if all pass the tests at every neuron."""
        remaining = self.samples - len(self.labels)
        x, labels = spear.split(self.layer, self.head_gradient[:, :-1], remaining, seed, DRAWS)
        for _ in range(2):  # refine the inputs with the model's gates and the labels
            deltas = trace(x, self.layer.links).deltas[torch.arange(remaining, device=x.device), labels] / self.samples
            x = torch.linalg.lstsq(deltas.T, self.layer.gradient).solution
        target = torch.linalg.lstsq(x.T, self.layer.gradient.T).solution
        all_neurons = torch.arange(target.shape[1], device=x.device).expand_as(target)
        implied_labels, missed = self.test_proposals(x, target, all_neurons)
        if bool(missed.isfinite().all()) and implied_labels.equal(labels) and is_distinct(x, self.inputs):
            self.subtract(x, labels)


def find_precision(tensor: Tensor) -> torch.dtype:
    """Return the coarsest floating-point format that represents all values of a tensor exactly."""
    formats = (torch.bfloat16, torch.float16, torch.float32)
    return next((dtype for dtype in formats if tensor.equal(tensor.to(dtype).to(tensor.dtype))), torch.float64)


def peel(update: Update, model: nn.Module, seed: int) -> tuple[Peeled | None, str]:
    """Return the proven samples of an update of one step (or None), and the reason if there are none."""
    head_gradient = whole_gradient(update, model)
    try:
        layer = spear.find_widest_layer(update, model)
    except ValueError as error:
        return None, str(error)
    format_ = find_precision(update.tensors[layer.links[0].weight])
    tolerance = TOLERANCE_IN_ROUNDINGS * torch.finfo(format_).eps
    live, needed = int(layer.gradient.any(1).sum()), update.samples + EXTRA_DIRECTIONS + MIN_SPARE_OUTPUTS
    if tolerance > MAX_TOLERANCE:
        return None, f"the rounding of {str(format_).removeprefix('torch.')} is too coarse to prove a label"
    if len(head_gradient) < 3:
        return None, "of two classes all samples' errors are parallel, which leaves too little to prove a label"
    if min(live, layer.gradient.shape[1]) < needed:
        need = f"at least {needed} inputs and {needed} active units"
        return None, f"labels of {update.samples} samples are proved only by a layer of {need}"
    peeled = Peeled(layer, head_gradient, update.samples, tolerance, seed)
    while len(peeled.labels) < update.samples and peeled.peel_round():
        pass
    if 0 < update.samples - len(peeled.labels) <= spear.MAX_SAMPLES:
        with contextlib.suppress(ValueError):  # the remaining samples cannot be split
            peeled.split_remaining(seed)
    return peeled, "" if len(peeled.labels) else "no sample's gradient passes the tests of a proof"


@attack(
    "peeling",
    paper="pan2022exclusivity",
    equation="beyond the paper",
    needs=WITH_AUXILIARY.has - {Need.ALL_GRADIENTS, Need.ADAPTER_GRADIENT},
    summary="Samples that alone pass a ReLU are proven and taken off, one after the other; the rest is estimated.",
    options={"seed"},
    prepares=True,
    standalone_reason="an experiment of its own counts its proven labels, and RLU-WH estimates the rest",
    applies=lambda *_: True,
)
def prepare(model: nn.Module, aux: Images) -> Prepared:
    """Prepare the attack, which estimates labels without a proof by `whole_head`.

    The `Result` has the counts ``[n]``, which sum to ``update.samples``, and the ``proven`` ones; if there are none,
    ``violated_assumptions`` says why.

    Parameters
    ----------
    model, aux
        The model before the round; labelled images of every class.
    seed
        Argument of ``recover``: the random seed of the directions' draws.

    Raises
    ------
    ValueError
        As for `whole_head.prepare`; in ``recover``: several local steps.
    WithheldParameter
        In ``recover``: the gradient of the head or of the layer that is split is not shared.
    """
    estimate, last = replace(whole_head.prepare(model, aux), check=None), head(model)  # checked once, as peeling

    def read(update: Update, *, seed: int = 0) -> Result:
        if update.steps != 1:
            raise ValueError(f"peeling reads one local step, this update is of {update.steps}")
        peeled, why = peel(update, model, seed)
        if peeled is None:
            counts = estimate.recover(update).counts
            return Result(counts, proven=torch.zeros_like(counts), violated_assumptions=(why,))
        proven = peeled.labels.bincount(minlength=len(peeled.head_gradient))
        counts = proven
        if remaining := update.samples - len(peeled.labels):
            rest = peeled.head_gradient * update.samples / remaining
            tensors = {last.weight: rest[:, :-1], last.bias: rest[:, -1]}
            counts = counts + estimate.recover(Update(tensors, "gradient", remaining)).counts
        return Result(counts, proven=proven, violated_assumptions=(why,) if why else ())

    return Prepared("peeling", read)
