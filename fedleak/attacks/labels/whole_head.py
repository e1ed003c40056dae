"""RLU extended to the whole head: solve for the counts by weights and bias, weighted by their noise.

RLU uses the update of the bias: n equations for n counts. The head's weights give n * d further equations for the same
counts, and auxiliary data give the noise of each (generalised least squares). For several local steps a round is
simulated on auxiliary data with the current counts, and corrected so that it ends at the client's model.
"""

import copy
from collections.abc import Sequence
from functools import cache, cached_property

import torch
from scipy.optimize import nnls
from torch import Tensor, nn

from fedleak.attacks.labels.confidence import mean_by_class
from fedleak.attacks.labels.counts import round_to_total, solve
from fedleak.attacks.labels.inputs import head_with_bias, require_classes, whole_gradient
from fedleak.attacks.labels.rlu import NEEDS, observe
from fedleak.attacks.registry import attack
from fedleak.attacks.result import Prepared, once
from fedleak.data import Images
from fedleak.federated import Scheme, Softening, Update
from fedleak.models import HeadPass, as_inputs, head_pass

RIDGE = 0.1
"""Addition to the covariance's diagonal, as a share of the diagonal's mean."""
SIMULATED_ROUNDS = 2
"""Number of simulated rounds for an update of several steps; each has the counts that the one before it gave."""
BATCH_FACTOR = 4
"""Size of a simulated batch, in batches of the client: more samples give less noise."""
MAX_COVARIANCE_ROWS = 5000
"""Largest matrix that is factorised, in rows. Larger heads use an N x N matrix of N samples, so this limits N too."""
MAX_GRADIENT_ENTRIES = 10**8
"""Largest product of the numbers of auxiliary samples and of the head's entries."""


def simulate_models(
    model: nn.Module,
    end_model: nn.Module,
    aux: Images,
    counts: Tensor,
    scheme: Scheme,
    batch_size: int,
    seed: int,
    smoothing: float,
) -> list[nn.Module]:
    """Simulate the client's models before each of its local steps, by training on auxiliary data.

    Label counts ``[n]`` are those of the simulated batches. The simulation does not end at the client's `end_model`:
    step t of T therefore gets t/T of the difference.
    """
    generator = torch.Generator().manual_seed(seed)
    class_weights = (counts / counts.sum()).clamp(min=1e-6) / aux.class_counts.to(counts)
    sample_weights = class_weights[aux.y].float().cpu()
    network: nn.Module = copy.deepcopy(model)
    models: list[nn.Module] = []
    initial = [p for p in model.parameters() if p.requires_grad]
    weights: list[Tensor] = [p for p in network.parameters() if p.requires_grad]
    velocities: list[Tensor | None] = [None] * len(weights)
    for _ in range(scheme.steps):
        models.append(copy.deepcopy(network))
        index = torch.multinomial(sample_weights, BATCH_FACTOR * batch_size, replacement=True, generator=generator)
        logits = network(as_inputs(aux.x[index], network))
        loss = nn.functional.cross_entropy(logits, aux.y[index], label_smoothing=smoothing)
        gradients = torch.autograd.grad(loss, weights, materialize_grads=True)
        with torch.no_grad():
            pulls = [scheme.regularisation * (w - start) for w, start in zip(weights, initial, strict=True)]
            scheme.step(weights, [g + pull for g, pull in zip(gradients, pulls, strict=True)], velocities)
    with torch.no_grad():
        differences = [e - p for e, p in zip(end_model.parameters(), network.parameters(), strict=True)]
        for step, simulated in enumerate(models):
            for parameter, difference in zip(simulated.parameters(), differences, strict=True):
                parameter.add_(step / scheme.steps * difference)
    return models


def compute_sample_gradients(
    passes: Sequence[HeadPass], aux: Images, step_weights: Tensor, smoothing: float = 0.0
) -> Tensor:
    """Compute each auxiliary sample's head gradient, a weighted mean over the local steps, ``[N, n, d + 1]``.

    The last column is the gradient of the bias.

    Parameters
    ----------
    passes
        The auxiliary images' passes through the model before each local step.
    step_weights
        Weight of each step in the mean over the steps, as `Scheme.weights`.
    smoothing
        The client's label smoothing.
    """
    total = torch.zeros(())
    targets = (1 - smoothing) * nn.functional.one_hot(aux.y, aux.n_classes).double() + smoothing / aux.n_classes
    for passed, weight in zip(passes, step_weights.tolist(), strict=True):
        inputs = nn.functional.pad(passed.inputs.double(), (0, 1), value=1.0)
        errors = passed.probabilities.double() - targets
        total = total + weight * torch.einsum("sn,sd->snd", errors, inputs)
    return total / len(passes)


class WeightedLeastSquares:
    """Fit the client's gradient by a count-weighted mean of class gradients (generalised least squares).

    Let the columns of A be the classes' means and the client's gradient, and C the covariance of the noise. The
    solution depends on A and C only through ``A^T C^-1 A``. With fewer samples N than entries, C is a multiple of the
    identity plus a matrix of rank N. Woodbury's identity then needs the inverse of one N x N matrix, made from the
    residuals' inner products, which are computed once.

    Parameters
    ----------
    sample_gradients, labels
        Gradients of the auxiliary samples, ``[N, entries]``, and their labels ``[N]``, of every class.
    n_classes
        Number of classes, n.
    """

    def __init__(self, sample_gradients: Tensor, labels: Tensor, n_classes: int):
        self.labels, self.class_sizes = labels, labels.bincount(minlength=n_classes)
        self.class_means = mean_by_class(sample_gradients, labels, n_classes)
        self.residuals = sample_gradients - self.class_means[labels]
        n_samples, entries = sample_gradients.shape
        self.uses_sample_span = n_samples < entries or entries > MAX_COVARIANCE_ROWS
        self.covariance_dimensions = min(n_samples, entries) if entries > MAX_COVARIANCE_ROWS else entries
        """Dimension of the covariance: its trace divided by this is the mean that scales the ridge."""

    @cached_property
    def _residual_products(self) -> Tensor:
        return self.residuals @ self.residuals.T

    def solve(self, gradient: Tensor, samples: int, counts: Tensor | None = None, rounds: int = 3) -> Tensor:
        """Solve for the real counts ``[n]``, not negative and of sum K.

        Parameters
        ----------
        gradient
            The client's weighted mean gradient, ``[entries]``.
        samples
            K.
        counts
            First estimate ``[n]``, by which the classes' covariances are weighted; by default the same for each class.
        rounds
            Number of solutions, each weighted by the one before.
        """
        n_classes = len(self.class_sizes)
        counts = torch.full((n_classes,), samples / n_classes).to(gradient) if counts is None else counts
        for _ in range(rounds):
            columns, goal = self._whitened(gradient, counts / samples)
            counts = solve(columns / samples, goal, samples)
        return counts

    def solve_rescaled(self, gradient: Tensor, previous_shares: Tensor) -> Tensor:
        """Solve for the classes' shares ``[n]`` times the unknown factor of a gradient ``[entries]``.

        Without the sum that is known at a known scale, the solution is that of non-negative least squares.
        """
        columns, goal = (t.cpu().numpy() for t in self._whitened(gradient, previous_shares))
        return torch.from_numpy(nnls(columns, goal, maxiter=50 * columns.shape[1])[0]).to(gradient)

    def _whitened(self, gradient: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
        # a class that seems absent keeps a small weight, since the counts so far may be mistaken
        class_weights = shares.clamp(min=0.02 / len(shares)) / self.class_sizes
        vectors, sample_scale = torch.cat([self.class_means, gradient[None]]), class_weights[self.labels].sqrt()
        whiten = self._whiten_in_sample_span if self.uses_sample_span else self._whiten
        whitened = whiten(vectors, sample_scale)
        return whitened[:, :-1], whitened[:, -1]

    def _whiten(self, vectors: Tensor, sample_scale: Tensor) -> Tensor:
        scaled = self.residuals * sample_scale[:, None]
        covariance = scaled.T @ scaled
        covariance.diagonal().add_(RIDGE * covariance.diagonal().mean())
        return torch.linalg.solve_triangular(torch.linalg.cholesky(covariance), vectors.T, upper=False)

    def _whiten_in_sample_span(self, vectors: Tensor, sample_scale: Tensor) -> Tensor:
        """Return vectors with the same inner products as `_whiten`'s, by Woodbury's identity."""
        products = sample_scale[:, None] * self._residual_products * sample_scale
        ridge = (RIDGE * products.diagonal().sum() / self.covariance_dimensions).clamp(min=1e-300)
        along_samples = sample_scale[:, None] * (self.residuals @ vectors.T)
        products.diagonal().add_(ridge)
        projections = torch.linalg.solve_triangular(torch.linalg.cholesky(products), along_samples, upper=False)
        values, axes = torch.linalg.eigh((vectors @ vectors.T - projections.T @ projections) / ridge)
        # any R with R^T R equal to the inner products gives the same solution; this is that of the eigenvectors
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

    ``recover(update)`` returns counts ``[n]`` that sum to ``update.samples``.

    Parameters
    ----------
    model, aux
        The model before the round; labelled images of every class.
    scheme, seed, smoothing
        Arguments of ``recover``: the client's `Scheme` (default: plain SGD), the seed of the simulated batches, and
        the client's label smoothing.

    Raises
    ------
    ValueError, WithheldParameter
        As for `rlu.prepare`; `ValueError` also for more images and head entries than fit into memory, a scheme with a
        history, or local batches of different sizes.
    """
    layer = head_with_bias(model).layer
    require_classes(aux, layer.out_features)
    aux = aux.to(layer.weight.device)
    entries = layer.weight.numel() + layer.out_features
    max_images = MAX_GRADIENT_ENTRIES // entries
    if entries > MAX_COVARIANCE_ROWS:
        max_images = min(MAX_COVARIANCE_ROWS, max_images)
    if len(aux) > max_images:
        raise ValueError(
            f"{len(aux)} auxiliary images and a head of {entries} entries are too many: pass at most {max_images} "
            "images, or use rlu"
        )
    pass_before_round = cache(lambda: head_pass(model, as_inputs(aux.x, model)))

    def make_system(passes: Sequence[HeadPass], step_weights: Tensor, smoothing: float) -> WeightedLeastSquares:
        sample_gradients = compute_sample_gradients(passes, aux, step_weights, smoothing).flatten(1)
        return WeightedLeastSquares(sample_gradients, aux.y, layer.out_features)

    @cache
    def make_one_step_system(step_weight: float, smoothing: float) -> WeightedLeastSquares:
        return make_system([pass_before_round()], torch.tensor([step_weight]).double(), smoothing)

    def read(update: Update, *, scheme: Scheme | None = None, seed: int = 0, smoothing: float = 0.0) -> Tensor:
        if scheme is not None and scheme.name in ("scaffold", "feddyn", "feddc"):
            raise ValueError(
                f"the whole head's history is not known to this attack, and {scheme.name!r} has one: use rlu"
            )
        Softening(smoothing)  # raises outside [0, 1]
        observed = observe(update, model, scheme, None)
        scheme, samples = observed.scheme, update.samples
        gradient = whole_gradient(update, model).flatten()
        if update.steps == 1:
            system = make_one_step_system(float(scheme.weights()), smoothing)
        else:
            end_model = update.model(model)
            passes = [pass_before_round(), head_pass(end_model, as_inputs(aux.x, end_model))]
            system = make_system(passes, scheme.weights().mean().expand(2), smoothing)
        # The first counts are RLU's: from the bias alone, with the mean of the gradients at both ends.
        bias_means = system.class_means.unflatten(1, (layer.out_features, -1))[:, :, -1]
        counts = solve(-bias_means.T, observed.target, samples)
        for simulation in range(1 if update.steps == 1 else SIMULATED_ROUNDS):
            if update.steps > 1:
                settings = scheme, update.batch_size, seed + simulation, smoothing
                models = simulate_models(model, end_model, aux, counts, *settings)
                passes = [head_pass(network, as_inputs(aux.x, network)) for network in models]
                system = make_system(passes, scheme.weights(), smoothing)
            counts = system.solve(gradient, samples, counts, rounds=2)
        return round_to_total(counts, samples)

    return Prepared("RLU, whole head", read)


recover = once(prepare, scheme=None, seed=0, smoothing=0.0)
