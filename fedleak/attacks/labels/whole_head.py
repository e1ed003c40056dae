"""RLU carried further, beyond its paper: the whole head's update, weighted by its noise, along a simulated round.

RLU reads the update of the bias: n equations for n counts. The head's weights give n * d more, with the same counts as
unknowns, and auxiliary data show how reliable each is (generalised least squares). For several local steps, a round is
trained on auxiliary data with the current counts, and bent so that it ends at the client's own model.
"""

import copy
from collections.abc import Sequence
from functools import cache, cached_property

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.confidence import by_class
from fedleak.attacks.labels.counts import round_to_total, solve
from fedleak.attacks.labels.inputs import head_with_bias, require_classes, whole_gradient
from fedleak.attacks.labels.rlu import NEEDS, observe
from fedleak.attacks.registry import attack
from fedleak.attacks.result import Prepared, once
from fedleak.data import Images
from fedleak.federated import Scheme, Softening, Update
from fedleak.models import HeadPass, as_inputs, head_pass

RIDGE = 0.1
"""Added to the covariance's diagonal, as a share of its mean."""
ROUNDS = 2
LARGER = 4
"""Size of a simulated batch in batches of the client, for less noise."""
MOST = 5000
"""Largest covariance that is inverted, in rows; larger heads use the span of the auxiliary samples."""
NUMBERS = 10**8
"""Entries that auxiliary samples and head may have together, at most."""


def path(
    model: nn.Module,
    client: nn.Module,
    aux: Images,
    counts: Tensor,
    scheme: Scheme,
    batch_size: int,
    seed: int,
    smoothing: float,
) -> list[nn.Module]:
    """Simulate the client's models before each of its local steps, on auxiliary data with these counts ``[n]``.

    The simulated models are moved by a share of the distance between the simulated and the client's end.
    """
    generator = torch.Generator().manual_seed(seed)
    share = (counts / counts.sum()).clamp(min=1e-6) / aux.class_counts.to(counts)
    sample_weights = share[aux.y].float().cpu()
    running: nn.Module = copy.deepcopy(model)
    models: list[nn.Module] = []
    optimiser = scheme.optimiser(running.parameters())
    start = list(model.parameters())
    for _ in range(scheme.steps):
        models.append(copy.deepcopy(running))
        index = torch.multinomial(sample_weights, LARGER * batch_size, replacement=True, generator=generator)
        optimiser.zero_grad()
        logits = running(as_inputs(aux.x[index], running))
        nn.functional.cross_entropy(logits, aux.y[index], label_smoothing=smoothing).backward()
        with torch.no_grad():
            for parameter, first in zip(running.parameters(), start, strict=True):
                assert parameter.grad is not None
                parameter.grad.add_(scheme.regularisation * (parameter - first))
        optimiser.step()
    with torch.no_grad():
        gap = [c - e for c, e in zip(client.parameters(), running.parameters(), strict=True)]
        for step, simulated in enumerate(models):
            for weight, missing in zip(simulated.parameters(), gap, strict=True):
                weight.add_(step / scheme.steps * missing)
    return models


def contributions(passes: Sequence[HeadPass], aux: Images, weights: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return what each auxiliary sample adds to the head's weighted gradient, ``[N, n, d + 1]``, the bias last.

    `passes` are those of the auxiliary images through the models before each step, `weights` the steps'.
    """
    total = torch.zeros(())
    truth = (1 - smoothing) * nn.functional.one_hot(aux.y, aux.n_classes).double() + smoothing / aux.n_classes
    for passed, weight in zip(passes, weights.tolist(), strict=True):
        inputs = nn.functional.pad(passed.inputs.double(), (0, 1), value=1.0)
        total = total + weight * torch.einsum("sn,sd->snd", passed.probabilities.double() - truth, inputs)
    return total / len(passes)


class Equations:
    """The head's equations of auxiliary samples, solved for the counts of any number of updates.

    With C the covariance of the noise, the solution needs only the products ``A' C^-1 A`` of the classes' means and the
    gradient. Where the N samples are fewer than the entries, C is a multiple of 1 plus a matrix of rank N. By
    Woodbury's identity an N x N matrix is inverted, made of products of the samples that no update changes.

    Parameters
    ----------
    parts, labels
        Contributions of the auxiliary samples, ``[N, entries]``, and their labels ``[N]``, of every class.
    n_classes
        Number of classes, n.
    """

    def __init__(self, parts: Tensor, labels: Tensor, n_classes: int):
        self.labels, self.sizes = labels, labels.bincount(minlength=n_classes)
        self.mean = by_class(parts, labels, n_classes)
        self.residual = parts - self.mean[labels]
        self.by_samples = len(parts) < parts.shape[1] or parts.shape[1] > MOST
        self.dimensions = min(parts.shape) if parts.shape[1] > MOST else parts.shape[1]
        """Directions that the ridge is spread over: those of large heads are the samples' span."""

    @cached_property
    def _products(self) -> Tensor:
        return self.residual @ self.residual.T

    def solve(self, gradient: Tensor, start: Tensor, samples: int) -> Tensor:
        """Solve for the real counts ``[n]`` by generalised least squares on the simplex of sum K.

        Parameters
        ----------
        gradient
            The client's weighted mean gradient, ``[entries]``.
        start
            Counts that weight the classes' covariances, ``[n]``.
        samples
            K.
        """
        share = (start / samples).clamp(min=0.02 / len(start)) / self.sizes
        vectors, scale = torch.cat([self.mean, gradient[None]]), share[self.labels].sqrt()
        white = self._by_samples(vectors, scale) if self.by_samples else self._whitened(vectors, scale)
        return solve(white[:, :-1] / samples, white[:, -1], samples)

    def _whitened(self, vectors: Tensor, scale: Tensor) -> Tensor:
        residual = self.residual * scale[:, None]
        covariance = residual.T @ residual
        covariance.diagonal().add_(RIDGE * covariance.diagonal().mean())
        return torch.linalg.solve_triangular(torch.linalg.cholesky(covariance), vectors.T, upper=False)

    def _by_samples(self, vectors: Tensor, scale: Tensor) -> Tensor:
        inner = scale[:, None] * self._products * scale
        ridge = (RIDGE * inner.diagonal().sum() / self.dimensions).clamp(min=1e-300)
        along = scale[:, None] * (self.residual @ vectors.T)
        inner.diagonal().add_(ridge)
        part = torch.linalg.solve_triangular(torch.linalg.cholesky(inner), along, upper=False)
        values, axes = torch.linalg.eigh((vectors @ vectors.T - part.T @ part) / ridge)
        return values.clamp(min=0).sqrt()[:, None] * axes.T


@attack(
    "RLU, whole head",
    paper="chen2024rlu",
    equation="beyond the paper",
    needs=NEEDS,
    summary="RLU's equations for the weights too, weighted by their noise, along a simulated round.",
    options={"scheme", "smoothing"},
    prepares=True,
)
def prepare(model: nn.Module, aux: Images) -> Prepared:
    """Prepare the attack, which passes the auxiliary data through the model once.

    ``recover(update)`` returns counts ``[n]`` that sum to ``update.samples``; errors are those of `rlu.prepare`, and
    `ValueError` for more images and head entries than fit into memory, or local batches of different sizes.

    Parameters
    ----------
    model, aux
        The model before the round; labelled images of every class.
    scheme, seed, smoothing
        Arguments of ``recover``: the client's `Scheme` (default: plain SGD; schemes with a history are rejected), the
        seed of the simulated batches, and the client's label smoothing.
    """
    layer = head_with_bias(model).layer
    require_classes(aux, layer.out_features)
    aux = aux.to(layer.weight.device)
    entries = layer.weight.numel() + layer.out_features
    most = NUMBERS // entries if entries <= MOST else min(MOST, NUMBERS // entries)
    if len(aux) > most:
        raise ValueError(
            f"{len(aux)} auxiliary images and a head of {entries} entries are too many: pass at most {most} images, "
            "or use rlu"
        )
    before = cache(lambda: head_pass(model, as_inputs(aux.x, model)))

    def equations(passes: Sequence[HeadPass], weights: Tensor, smoothing: float) -> Equations:
        return Equations(contributions(passes, aux, weights, smoothing).flatten(1), aux.y, layer.out_features)

    @cache
    def of_one_step(weight: float, smoothing: float) -> Equations:
        return equations([before()], torch.tensor([weight]).double(), smoothing)

    def read(update: Update, *, scheme: Scheme | None = None, seed: int = 0, smoothing: float = 0.0) -> Tensor:
        if scheme is not None and scheme.name in ("scaffold", "feddyn", "feddc"):
            raise ValueError(
                f"the whole head's history is not known to this attack, and {scheme.name!r} has one: use rlu"
            )
        Softening(smoothing)  # refuses what no client can do
        observed = observe(update, model, scheme, None)
        scheme, samples, batch_size = observed.scheme, update.samples, update.batch_size
        gradient = whole_gradient(update, model).flatten()
        if update.steps == 1:
            ends, system = [model], of_one_step(float(scheme.weights()), smoothing)
        else:
            ends = [model, update.model(model)]
            passes = [before(), head_pass(ends[1], as_inputs(aux.x, ends[1]))]
            system = equations(passes, scheme.weights().mean().expand(2), smoothing)
        # RLU's own estimate to start from: the bias alone, with the mean of both ends
        of_bias = system.mean.unflatten(1, (layer.out_features, -1))[:, :, -1]
        counts = solve(-of_bias.T, observed.target, samples)
        for attempt in range(1 if update.steps == 1 else ROUNDS):
            if update.steps > 1:
                simulated = path(model, ends[1], aux, counts, scheme, batch_size, seed + attempt, smoothing)
                passes = [head_pass(network, as_inputs(aux.x, network)) for network in simulated]
                system = equations(passes, scheme.weights(), smoothing)
            for _ in range(2):  # the noise that weights the equations depends on the counts
                counts = system.solve(gradient, counts, samples)
        return round_to_total(counts, samples)

    return Prepared("RLU, whole head", read)


recover = once(prepare, scheme=None, seed=0, smoothing=0.0)
