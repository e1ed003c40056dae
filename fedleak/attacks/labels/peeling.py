"""Peeling: the labels that an update proves, and an estimate of the others.

A ReLU that a single sample of a batch passes, an exclusively activated neuron (Pan et al., USENIX Security 2022), has
that sample's input in its row of the gradient. The input gives the sample's probabilities and gradient; subtracting
proven samples makes further neurons exclusive. `spear` splits up to 16 of the remaining samples, and `whole_head`
estimates the others.

A label is proven if a proposal x passes four tests, each to the rounding t of the update's own format:

1. the gradient of its neuron's bias is delta_j(x, y) / B, for one label y alone;
2. delta(x, y), at all m outputs, lies in the column space of the layer's gradient, which the B samples' deltas span;
3. with any other label it does not, by far: so that the second test has power;
4. it is no proven sample once more.

For a row with several samples, x is a mixture of their inputs. A share of about 2 t n passes the first test by chance
(2 t for a coefficient spread evenly over its size; n labels). Those still face the m - B - 8 equations of the second,
each to t, at least `SPARE` of them. This is an argument for mixtures in general position, not a theorem; experiments
measure how often it fails. Only the label is proven: an input with a small admixture of others can pass by chance with
the right one. The model, B, and one step of the mean cross-entropy of hard labels are taken as given; where one of them
is wrong, the first two tests fail.
"""

import contextlib
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedleak.attacks.labels import spear, whole_head
from fedleak.attacks.labels.inputs import whole_gradient
from fedleak.attacks.labels.spear import Layer
from fedleak.attacks.registry import WITH_AUXILIARY, Need, attack
from fedleak.attacks.result import Prepared, Result
from fedleak.data import Images
from fedleak.federated import Update
from fedleak.models import Link, head

ROUNDINGS = 2**13
"""A test's tolerance, in units of the last place of the update's format: 1e-3 in float32, 2e-12 in float64."""
COARSEST = 0.01
"""The largest tolerance that proves anything: half precision does not."""
POWER = 100
"""Number of tolerances by which any other label has to miss the column space."""
APART = 0.01
"""Inputs that differ by less, relative to their length, are taken for one sample's."""
MORE, SPARE = 8, 16
"""Directions of the column space beyond the samples', against rounding; live outputs beyond all these."""
ROWS, ENTRIES = 1024, 2**24
"""Neurons of a round whose inputs are tried; entries of backpropagated gradients that are held at once."""

DRAWS = 2**12
"""Draws of directions for the remaining samples, worth half a second."""


class Traced(NamedTuple):
    """Samples, traced through the layers."""

    inputs: Tensor
    """Inputs of the head, ``[k, h]``."""
    errors: Tensor
    """``p - y`` with every label in turn, ``[k, n, n]``."""
    deltas: Tensor
    """Gradients of the split layer's outputs with every label in turn, ``[k, n, m]``."""


def trace(x: Tensor, links: tuple[Link, ...]) -> Traced:
    """Trace inputs ``[k, d]`` of a layer up to the outputs, and the gradient with every label back to it."""
    passed = []
    for link in links:
        inputs, x = x, link.outputs(x)
        if link is not links[-1]:
            passed.append(x > 0 if link.relu else torch.ones_like(x, dtype=torch.bool))
            x = x * passed[-1]
    errors = x.softmax(1)[:, None] - torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    deltas = errors
    for link, gate in zip(links[:0:-1], passed[::-1], strict=True):
        deltas = (deltas @ link.matrix()) * gate[:, None]
    return Traced(inputs, errors, deltas)


def is_distinct(x: Tensor, proven: Tensor) -> bool:
    """Return whether inputs ``[k, d]`` differ from all `proven` ones, ``[s, d]``."""
    return bool((torch.cdist(x, proven) > APART * x.norm(dim=1, keepdim=True)).all())


class Peeled:
    """The proven samples of a layer's gradient, and the remaining gradients of that layer and of the head.

    Parameters
    ----------
    layer
        The layer to split; it is not modified.
    of_head
        Gradients of the head's weights and bias side by side, ``[n, h + 1]``.
    samples, tolerance
        B and t.
    """

    def __init__(self, layer: Layer, of_head: Tensor, samples: int, tolerance: float, seed: int):
        self.samples, self.tolerance = samples, tolerance
        self.layer, self.of_head = layer, of_head
        self.size = layer.bias.abs()  # of all that was ever in a neuron
        self.x, self.labels = layer.gradient[:0], torch.zeros(0, dtype=torch.long, device=layer.bias.device)
        probes = torch.randn(
            layer.gradient.shape[1], samples + MORE, generator=torch.Generator().manual_seed(seed), dtype=torch.double
        )
        self.span = torch.linalg.qr(layer.gradient @ probes.to(layer.bias.device)).Q

    def missed(self, traced: Traced) -> Tensor:
        """Return the share of the output gradients' length that lies outside the column space, ``[k, n]``."""
        outside = traced.deltas - traced.deltas @ self.span @ self.span.mT
        return outside.norm(dim=2) / traced.deltas.norm(dim=2).clamp(min=1e-300)

    def judge(self, x: Tensor, target: Tensor, neurons: Tensor) -> tuple[Tensor, Tensor]:
        """Test proposals ``[k, d]`` whose gradients at the `neurons` ``[k, j]`` have to be the `target` ``[k, j]``.

        Returns the label of each and the share of its gradient outside the column space, ``[k]``; inf where it fails.
        """
        traced = trace(x, self.layer.links)
        at = traced.deltas.gather(2, neurons[:, None].expand(-1, traced.deltas.shape[1], -1)) / self.samples
        off = (at - target[:, None]).abs().amax(2) / target.abs().amax(1, keepdim=True).clamp(min=1e-300)
        labels, missed = off.argmin(1), torch.full_like(off[:, 0], torch.inf)
        some = ((off <= self.tolerance).sum(1) == 1).nonzero()[:, 0]  # test 1: one label alone fits
        outside = self.missed(Traced(*(part[some] for part in traced)))
        mine = outside.gather(1, labels[some, None])
        others = outside.scatter(1, labels[some, None], torch.inf).amin(1)
        right = (mine[:, 0] <= self.tolerance) & (others > POWER * self.tolerance)  # tests 2 and 3
        missed[some[right]] = mine[right, 0]
        return labels, missed

    def take(self, x: Tensor, labels: Tensor) -> None:
        """Record samples as proven, and subtract their gradients."""
        traced, rows = trace(x, self.layer.links), torch.arange(len(x), device=x.device)
        errors, deltas = (part[rows, labels] / self.samples for part in traced[1:])
        links, gradient, bias = self.layer
        self.layer = Layer(links, gradient - deltas.T @ x, bias - deltas.sum(0))
        self.of_head = self.of_head - errors.T @ nn.functional.pad(traced.inputs, (0, 1), value=1.0)
        self.size = self.size + deltas.abs().sum(0)
        self.x, self.labels = torch.cat([self.x, x]), torch.cat([self.labels, labels])

    def round(self) -> bool:
        """Prove and subtract the samples of exclusively activated neurons; return whether there were any."""
        gradient, bias = self.layer[1:]
        unexplained = bias.abs() > self.tolerance**0.5 * self.size  # the others are explained
        neurons = unexplained.nonzero()[:, 0]
        neurons = neurons[bias[neurons].abs().argsort(descending=True)[:ROWS]]
        # An exclusive neuron's weight gradient is its sample's input times its bias gradient.
        x, links = gradient[neurons] / bias[neurons, None], self.layer.links
        piece = max(1, ENTRIES // (links[-1].layer.weight.shape[0] * len(bias)))
        parts = [part.split(piece) for part in (x, bias[neurons, None], neurons[:, None])]
        judged = [self.judge(*part) for part in zip(*parts, strict=True)]
        if not judged:
            return False
        labels, missed = map(torch.cat, zip(*judged, strict=True))
        new: list[int] = []
        for k in missed.argsort()[: int(missed.isfinite().sum())].tolist():
            proven_inputs = torch.cat([self.x, x[new]])
            if len(proven_inputs) < self.samples and is_distinct(x[k : k + 1], proven_inputs):
                new.append(k)
        self.take(x[new], labels[new])
        return bool(new)

    def split(self, seed: int) -> None:
        """Split the remaining gradient into samples; subtract them if all pass the tests at every neuron."""
        remaining = self.samples - len(self.labels)
        x, labels = spear.split(self.layer, self.of_head[:, :-1], remaining, seed, DRAWS)
        for _ in range(2):  # refine the inputs with the model's own gates and labels
            deltas = trace(x, self.layer.links).deltas[torch.arange(remaining, device=x.device), labels] / self.samples
            x = torch.linalg.lstsq(deltas.T, self.layer.gradient).solution
        target = torch.linalg.lstsq(x.T, self.layer.gradient.T).solution
        implied_labels, missed = self.judge(x, target, torch.arange(target.shape[1], device=x.device).expand_as(target))
        if bool(missed.isfinite().all()) and implied_labels.equal(labels) and is_distinct(x, self.x):
            self.take(x, labels)


def precision(tensor: Tensor) -> torch.dtype:
    """Return the format that a tensor's values have: the coarsest one that holds all of them."""
    formats = (torch.bfloat16, torch.float16, torch.float32)
    return next((dtype for dtype in formats if tensor.equal(tensor.to(dtype).to(tensor.dtype))), torch.float64)


def peel(update: Update, model: nn.Module, seed: int) -> tuple[Peeled | None, str]:
    """Return what is proven of an update of one step, or why nothing can be; errors as for `prepare`."""
    of_head = whole_gradient(update, model)
    try:
        layer = spear.widest(update, model)
    except ValueError as error:
        return None, str(error)
    format_ = precision(update.tensors[layer.links[0].weight])
    tolerance = ROUNDINGS * torch.finfo(format_).eps
    live, asked = int(layer.gradient.any(1).sum()), update.samples + MORE + SPARE
    if tolerance > COARSEST:
        return None, f"the rounding of {str(format_).removeprefix('torch.')} is too coarse to prove a label"
    if len(of_head) < 3:
        return None, "of two classes all samples' errors are parallel, which leaves too little to prove a label"
    if min(live, layer.gradient.shape[1]) < asked:
        return None, f"{update.samples} samples need a layer of {asked} inputs and live outputs to prove a label"
    peeled = Peeled(layer, of_head, update.samples, tolerance, seed)
    while len(peeled.labels) < update.samples and peeled.round():
        pass
    if 0 < update.samples - len(peeled.labels) <= spear.MOST:
        with contextlib.suppress(ValueError):  # what is left cannot be split
            peeled.split(seed)
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
    """Prepare the attack, with `whole_head` on auxiliary images ``aux`` for the labels without a proof.

    The `Result` has the counts ``[n]``, which sum to ``update.samples``, and the ``proven`` ones; if there are none,
    ``violated_assumptions`` says why. Raises `ValueError` as `whole_head.prepare`; in ``recover``, for several local
    steps, and `WithheldParameter` if the gradient of the head or of the layer that is split is not shared.
    """
    estimate, last = replace(whole_head.prepare(model, aux), check=None), head(model)  # peeling itself is checked

    def read(update: Update, *, seed: int = 0) -> Result:
        if update.steps != 1:
            raise ValueError(f"peeling reads one local step, this update is of {update.steps}")
        peeled, why = peel(update, model, seed)
        if peeled is None:
            counts = estimate.recover(update).counts
            return Result(counts, proven=torch.zeros_like(counts), violated_assumptions=(why,))
        proven = peeled.labels.bincount(minlength=len(peeled.of_head))
        counts = proven
        if remaining := update.samples - len(peeled.labels):
            rest = peeled.of_head * update.samples / remaining
            tensors = {last.weight: rest[:, :-1], last.bias: rest[:, -1]}
            counts = counts + estimate.recover(Update(tensors, "gradient", remaining)).counts
        return Result(counts, proven=proven, violated_assumptions=(why,) if why else ())

    return Prepared("peeling", read)
