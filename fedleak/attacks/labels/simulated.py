"""Clients simulated on auxiliary images: what the head's gradient of any batch would be, from one forward pass.

The head's gradient of a batch is the mean over its samples of ``(p - y) a'``, a the head's input with a 1 appended for
the bias. So all that is linear in it is a mean of numbers that each auxiliary image has of its own, and thousands of
batches are gathered from one table.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import torch
from scipy.optimize import brentq
from torch import Generator, Tensor, nn

from fedleak.data import Images
from fedleak.federated.defences import Defence


class Local(NamedTuple):
    """A client's local steps of plain SGD, on batches of equal size."""

    steps: int = 1
    lr: float = 1.0


ONE_STEP = Local()
Defended = Callable[[int, int], Defence]
"""``make(clients, seed)`` returns a client's memoryless defence for a number of clients; it acts tensor by tensor."""

COPIES = 2
"""Moved copies of each auxiliary image."""
AT_ONCE, NUMBERS = 2**18, 2**26
"""Largest numbers of samples and of entries that are gathered at once, so that large batches fit into memory."""
EVEN, SINGLE = 1 / 5, 1 / 16
"""Shares of the simulated batches whose labels are uniform draws, and all of one class."""
MOST_SHIFT, WIDER = 40.0, 2.0
"""Largest shift of logits, and largest multiple, in a simulation, of the shift that gives the training loss."""
ALPHA = (-1.5, 1.5)
"""log10 of the Dirichlet distribution's concentration, uniform between these, of all other batches' class shares."""


Prior = Callable[[int, int, int, Generator], Tensor]
"""``(batches, B, n, generator)`` draws the labels of batches ``[batches, B]``: which counts are how likely."""


def draw_labels(batches: int, batch_size: int, n_classes: int, generator: Generator) -> Tensor:
    """Draw the labels of batches ``[batches, B]``: Dirichlet shares, some uniform, some of one class."""
    kind = torch.rand(batches, 1, generator=generator, dtype=torch.float64)
    alpha = 10 ** (ALPHA[0] + (ALPHA[1] - ALPHA[0]) * torch.rand(kind.shape, generator=generator, dtype=torch.float64))
    shares = torch._standard_gamma(alpha.expand(-1, n_classes).contiguous(), generator=generator).clamp(min=1e-300)
    classes = torch.randint(n_classes, (batches, 1), generator=generator)
    single = torch.zeros_like(shares).scatter_(1, classes, 1.0)
    shares = torch.where(kind < EVEN, torch.ones_like(shares), torch.where(kind > 1 - SINGLE, single, shares))
    return torch.multinomial(shares, batch_size, replacement=True, generator=generator)


def shifted(images: Images) -> Images:
    """Return images with copies that are moved up, down, left or right by a sixteenth of their width, edges repeated.

    Texts, rows and images of fewer than 16 pixels are returned as they are.
    """
    if images.x.dim() < 4 or not (by := images.x.shape[-1] // 16):
        return images
    height, width = images.x.shape[-2:]
    wide = nn.functional.pad(images.x, [by] * 4, mode="replicate")
    copies = images.x.repeat(COPIES, 1, 1, 1).unflatten(0, (COPIES, -1))
    for copy, (way, (top, left)) in product(range(COPIES), enumerate(((0, by), (2 * by, by), (by, 0), (by, 2 * by)))):
        some = slice((way - copy) % 4, None, 4)
        copies[copy, some] = wide[some, :, top : top + height, left : left + width]
    x = torch.cat([images.x, *copies])
    return replace(images, x=x, y=images.y.repeat(1 + COPIES))


def pick(labels: Tensor, order: Tensor, counts: Tensor, generator: Generator) -> Tensor:
    """Pick an image of each label's class, all equally likely: indices of the labels' shape.

    `order` has the images' indices class after class ``[N]``, `counts` the classes' sizes ``[n]``.
    """
    place = torch.rand(labels.shape, generator=generator, dtype=torch.float64).to(order.device)
    start = counts.cumsum(0) - counts
    return order[start[labels] + (place * counts[labels]).long()]


class Observation(NamedTuple):
    """Features of the head gradients of simulated or real batches, float32."""

    entries: Tensor
    """The rows' sums, bias, along class means and principal directions, and some columns as they are, ``[..., F]``."""
    pulls: Tensor
    """The gradient along the least squares' directions, ``[..., k]``."""


def walk(inputs: Tensor, labels: Tensor, weight: Tensor, local: Local) -> Tensor:
    """Train the head alone on batches of its inputs, for many clients at once.

    Parameters
    ----------
    inputs, labels
        The clients' samples, step after step, ``[clients, K, d]`` and ``[clients, K]``.
    weight
        Of the head, ``[n, d]``, with the bias as a column if the inputs have its 1.
    local
        The local steps.

    Returns
    -------
    Tensor
        The mean gradient of the steps, ``[clients, n, d]``.
    """
    weights = weight.expand(len(inputs), -1, -1)
    total = torch.zeros_like(weights)
    for x, y in zip(inputs.chunk(local.steps, 1), labels.chunk(local.steps, 1), strict=True):
        errors = (x @ weights.mT).softmax(-1) - nn.functional.one_hot(y, len(weight))
        gradient = errors.mT @ x / x.shape[1]
        weights = weights - local.lr * gradient
        total += gradient
    return total / local.steps


def raise_own(probability: Tensor, shift: Tensor) -> Tensor:
    """Return the factor of ``p - y`` when the logit of the true class, of this `probability`, is raised by `shift`."""
    return 1 / (1 + probability * shift.expm1())


def fitting(probabilities: Tensor, loss: float) -> float:
    """Return by how much the logits of images' own classes ``[N]`` are raised for this mean loss; 0 if it is below."""
    logits = probabilities.clamp(1e-12, 1 - 1e-12).logit().cpu()

    def above(shift: float) -> float:
        return nn.functional.softplus(-(logits + shift)).mean().item() - loss

    return brentq(above, 0.0, MOST_SHIFT) if above(0.0) > 0 > above(MOST_SHIFT) else 0.0


class Pool(NamedTuple):
    """A table from which batches are gathered: numbers of each image, and the order of the classes."""

    errors: Tensor
    """``p - y``, ``[N, n]``."""
    rows: Tensor
    """Head inputs along the features' directions, ``[N, r]``; with a defence or local steps all of them."""
    pulls: Tensor
    """``[N, k]``, as `Observation.pulls`; empty with a defence or local steps."""
    order: Tensor
    """Indices of the images, class after class, ``[N]``."""
    counts: Tensor
    """Images of each class, ``[n]``."""
    defended: Callable[[Tensor, int], Observation] | None = None
    """Observation of head gradients ``[batches, n, d]`` after the clients' defence, given a seed."""
    walked: Callable[[Tensor], Tensor] | None = None
    """The mean gradients ``[batches, n, d]`` of local steps on these images ``[batches, K]``."""
    label_probabilities: Tensor | None = None
    """Probability of each image's own class ``[N]``, where clients are simulated whose images fit the model better."""
    shift: float = 0.0
    """By how much the logit of the own class is raised, at most: for every batch uniform between 0 and this."""
    prior: Prior = draw_labels

    def draw(self, batches: int, batch_size: int, generator: Generator) -> tuple[Observation, Tensor]:
        """Draw batches; return what the server sees of them, and their counts ``[batches, n]``."""
        n = len(self.counts)
        labels = self.prior(batches, batch_size, n, generator).to(self.order.device)
        index = pick(labels, self.order, self.counts, generator)
        seed = 0 if self.defended is None else int(torch.randint(2**31, (1,), generator=generator))
        weights = None
        if self.label_probabilities is not None:
            raised = self.shift * torch.rand(batches, 1, generator=generator).to(index.device)
            weights = raise_own(self.label_probabilities[index], raised)
        return self.of(index, seed, weights), nn.functional.one_hot(labels, n).sum(1)

    def of(self, index: Tensor, seed: int = 0, weights: Tensor | None = None) -> Observation:
        """Return what is seen of batches of these images ``[batches, B]``.

        The seed is the defence's. The weights ``[batches, B]`` are of the images' errors.
        """
        size = max(1, min(AT_ONCE, NUMBERS // self.rows.shape[1]) // index.shape[-1])
        parts = index.split(size)
        if self.walked is not None:
            gradient = torch.cat([self.walked(part) for part in parts])
        else:
            weighted = [None] * len(parts) if weights is None else weights.split(size)
            gradient = torch.cat([self._summed(*pair) for pair in zip(parts, weighted, strict=True)]) / index.shape[-1]
        if self.defended is not None:
            return self.defended(gradient, seed)
        if weights is None:
            pulls = nn.functional.embedding_bag(index, self.pulls, mode="mean")
        else:
            shares = weights / index.shape[-1]
            pulls = nn.functional.embedding_bag(index, self.pulls, mode="sum", per_sample_weights=shares)
        return Observation(gradient.flatten(1), pulls)

    def _summed(self, index: Tensor, weights: Tensor | None) -> Tensor:
        errors = self.errors[index] if weights is None else self.errors[index] * weights[..., None]
        return errors.mT @ self.rows[index]
