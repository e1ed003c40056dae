"""Simulate clients on auxiliary images: the head's gradient of any batch, from a single forward pass.

The head's gradient of a batch is the mean over its samples of ``(p - y) a'``, a the head's input with a 1 appended for
the bias. Every linear feature of it is thus a mean of per-image features, and thousands of batches are gathered from
one table.
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
from fedleak.models.passes import add_rows


class LocalSteps(NamedTuple):
    """A client's local steps of plain SGD, on batches of equal size."""

    steps: int = 1
    lr: float = 1.0


ONE_STEP = LocalSteps()
MakeDefence = Callable[[int, int], Defence]
"""``make(clients, seed)`` returns the defence of that many clients; it has no memory and acts tensor by tensor."""

COPIES_PER_IMAGE = 2
"""Shifted copies of each auxiliary image."""
MAX_SAMPLES_AT_ONCE, MAX_ENTRIES_AT_ONCE = 2**18, 2**26
"""Most samples, and most table entries, that are gathered at once, so that large batches fit into memory."""
UNIFORM_SHARE, SINGLE_CLASS_SHARE = 1 / 5, 1 / 16
"""Share of the simulated batches with uniformly drawn labels; share with labels of a single class."""
MAX_LOGIT_SHIFT, SHIFT_FACTOR = 40.0, 2.0
"""Largest shift of the true class's logit; largest multiple of the shift that gives the training loss."""
LOG10_CONCENTRATION = (-1.5, 1.5)
"""Range of log10 of the Dirichlet concentration, drawn uniformly, from which all other batches have their shares."""


Prior = Callable[[int, int, int, Generator], Tensor]
"""``(batches, B, n, generator)`` draws the labels of batches, ``[batches, B]``."""


def draw_labels(batches: int, batch_size: int, n_classes: int, generator: Generator) -> Tensor:
    """Draw the labels of batches, ``[batches, B]``: from Dirichlet shares, some uniform, some of a single class."""
    lots = torch.rand(batches, 1, generator=generator, dtype=torch.float64)
    low, high = LOG10_CONCENTRATION
    concentration = 10 ** (low + (high - low) * torch.rand(lots.shape, generator=generator, dtype=torch.float64))
    concentration = concentration.expand(-1, n_classes).contiguous()
    shares = torch._standard_gamma(concentration, generator=generator).clamp(min=1e-300)
    classes = torch.randint(n_classes, (batches, 1), generator=generator)
    single = torch.zeros_like(shares).scatter_(1, classes, 1.0)
    shares = torch.where(lots > 1 - SINGLE_CLASS_SHARE, single, shares)
    shares = torch.where(lots < UNIFORM_SHARE, torch.ones_like(shares), shares)
    return torch.multinomial(shares, batch_size, replacement=True, generator=generator)


def shifted_copies(images: Images) -> Images | None:
    """Return copies of images, shifted a sixteenth of their width up, down, left or right, with repeated edges.

    Of texts, rows and images of fewer than 16 pixels there are none.
    """
    if images.x.dim() < 4 or not (by := images.x.shape[-1] // 16):
        return None
    height, width = images.x.shape[-2:]
    padded = nn.functional.pad(images.x, [by] * 4, mode="replicate")
    copies = images.x.repeat(COPIES_PER_IMAGE, 1, 1, 1).unflatten(0, (COPIES_PER_IMAGE, -1))
    corners = enumerate(((0, by), (2 * by, by), (by, 0), (by, 2 * by)))
    for copy, (direction, (top, left)) in product(range(COPIES_PER_IMAGE), corners):
        chosen = slice((direction - copy) % 4, None, 4)  # every fourth image; another direction in each copy
        copies[copy, chosen] = padded[chosen, :, top : top + height, left : left + width]
    return replace(images, x=copies.flatten(0, 1), y=images.y.repeat(COPIES_PER_IMAGE))


def pick_images(labels: Tensor, order: Tensor, counts: Tensor, generator: Generator) -> Tensor:
    """Pick a random image of each label's class, and return the images' indices in the shape of `labels`.

    `order` has the images' indices class after class ``[N]``, `counts` the classes' sizes ``[n]``.
    """
    place = torch.rand(labels.shape, generator=generator, dtype=torch.float64).to(order.device)
    start = counts.cumsum(0) - counts
    return order[start[labels] + (place * counts[labels]).long()]


class Observation(NamedTuple):
    """Features of the head gradients of simulated or real batches, float32."""

    linear_features: Tensor
    """Linear features, ``[..., F]``: row sums, bias, products with class means and principal directions, columns."""
    projections: Tensor
    """Products of the gradient with the directions of the least squares, ``[..., k]``."""


def train_heads(inputs: Tensor, labels: Tensor, weight: Tensor, local: LocalSteps) -> Tensor:
    """Train copies of the head, one per client, and return the mean gradient of their steps.

    Parameters
    ----------
    inputs, labels
        The head's inputs and labels, step after step, ``[clients, K, d]`` and ``[clients, K]``.
    weight
        The head's weight, ``[n, d]``, with the bias as last column if the inputs end in 1.
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


def error_factor(probability: Tensor, shift: Tensor) -> Tensor:
    """Return the factor by which ``p - y`` changes when the true class's logit is raised by `shift`.

    `probability` is that of the true class before.
    """
    return 1 / (1 + probability * shift.expm1())


def find_logit_shift(probabilities: Tensor, loss: float) -> float:
    """Return the shift of the true classes' logits that gives this mean loss; 0 if the loss is below it already.

    `probabilities` are those of the true classes, ``[N]``.
    """
    logits = probabilities.clamp(1e-12, 1 - 1e-12).logit().cpu()

    def excess_loss(shift: float) -> float:
        return nn.functional.softplus(-(logits + shift)).mean().item() - loss

    has_solution = excess_loss(0.0) > 0 > excess_loss(MAX_LOGIT_SHIFT)
    return brentq(excess_loss, 0.0, MAX_LOGIT_SHIFT) if has_solution else 0.0


class Pool(NamedTuple):
    """A table of per-image features, from which the gradients of simulated batches are gathered."""

    errors: Tensor
    """``p - y``, ``[N, n]``."""
    rows: Tensor
    """Products of the head's inputs with the features' directions, ``[N, r]``; with a defence or local steps the
    inputs themselves."""
    projections: Tensor
    """Each image's `Observation.projections`, ``[N, k]``; empty with a defence or local steps."""
    order: Tensor
    """Indices of the images, sorted by class, ``[N]``."""
    counts: Tensor
    """Number of images per class, ``[n]``."""
    observe_defended: Callable[[Tensor, int], Observation] | None = None
    """``(gradients [batches, n, d], seed)`` gives the observation after the clients' defence; None without one."""
    train_heads: Callable[[Tensor], Tensor] | None = None
    """``(indices [batches, K])`` gives the mean gradients of local steps, ``[batches, n, d]``; None for one step."""
    label_probabilities: Tensor | None = None
    """Probability of each image's true class, ``[N]``, if simulated images have to fit the model better; else None."""
    shift: float = 0.0
    """Largest shift of the true class's logit; each batch draws its shift uniformly between 0 and this."""
    prior: Prior = draw_labels
    tokens: Tensor | None = None
    """Rows of the head's weight to which a tied embedding adds, ``[N, L]``; not simulated over local steps."""
    embedded: Tensor | None = None
    """What it adds, in the form of `rows`, ``[N, L, r]``."""

    def draw(self, batches: int, batch_size: int, generator: Generator) -> tuple[Observation, Tensor]:
        """Draw batches; return the server's observation of them and their counts, ``[batches, n]``."""
        n = len(self.counts)
        labels = self.prior(batches, batch_size, n, generator).to(self.order.device)
        index = pick_images(labels, self.order, self.counts, generator)
        seed = 0 if self.observe_defended is None else int(torch.randint(2**31, (1,), generator=generator))
        weights = None
        if self.label_probabilities is not None:
            raised = self.shift * torch.rand(batches, 1, generator=generator).to(index.device)
            weights = error_factor(self.label_probabilities[index], raised)
        counts = labels.new_zeros(batches, n).scatter_add_(1, labels, torch.ones_like(labels))
        return self.observe(index, seed, weights), counts

    def observe(self, index: Tensor, seed: int = 0, weights: Tensor | None = None) -> Observation:
        """Return the server's observation of batches of the images with these indices, ``[batches, B]``.

        `seed` is the defence's; `weights` multiply the images' errors, ``[batches, B]``.
        """
        size = max(1, min(MAX_SAMPLES_AT_ONCE, MAX_ENTRIES_AT_ONCE // self.rows.shape[1]) // index.shape[-1])
        parts = index.split(size)
        if self.train_heads is not None:
            gradient = torch.cat([self.train_heads(part) for part in parts])
        else:
            weighted = [None] * len(parts) if weights is None else weights.split(size)
            sums = [self._sum_gradients(*pair) for pair in zip(parts, weighted, strict=True)]
            gradient = torch.cat(sums) / index.shape[-1]
        if self.observe_defended is not None:
            return self.observe_defended(gradient, seed)
        if weights is None:
            projections = nn.functional.embedding_bag(index, self.projections, mode="mean")
        else:
            shares = weights / index.shape[-1]
            projections = nn.functional.embedding_bag(index, self.projections, mode="sum", per_sample_weights=shares)
        return Observation(gradient.flatten(1), projections)

    def _sum_gradients(self, index: Tensor, weights: Tensor | None) -> Tensor:
        errors = self.errors[index] if weights is None else self.errors[index] * weights[..., None]
        sums = errors.mT @ self.rows[index]
        if self.tokens is not None and self.embedded is not None and self.tokens.shape[1]:
            added = self.embedded[index] if weights is None else self.embedded[index] * weights[..., None, None]
            add_rows(sums, self.tokens[index].flatten(1), added.flatten(1, 2))
        return sums
