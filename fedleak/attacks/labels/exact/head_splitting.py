"""Head splitting: with fewer samples than classes, the head's gradient reveals each sample's input and label.

The gradient of the head's weights and bias is ``G = sum_i e_i a_i^T / B``, with a_i the head's input and a 1 for the
bias, and e_i = softmax(W a_i) - onehot(y_i), which depends on a_i and y_i alone. Let B G = U K V^T, of rank B. Then
every a_i lies in the span of V, every e_i in that of U, and a_j^T V K^-1 U^T e_i is 1 for i = j and 0 for all others.
So each sample solves, for its own label y and with the last entry of a = V z being 1,

    (I - U U^T) e(z, y) = 0    and    z^T K^-1 U^T e(z, y) = 1,

n - B equations for the B - 1 unknowns of z. Up to B = n / 2 the system is overdetermined: in general only the batch's
samples solve it. Levenberg and Marquardt's method finds them from starts near the middle of the samples, for all labels
at once; each solution is subtracted from G, and the search continues with the remainder. In the end all B have to solve
the equations of the original G, and together explain it.

The attack needs no auxiliary data, no ReLU and no other layer's gradient. With auxiliary images it splits batches of up
to n - 1 samples, by the equations of all samples together (`joint`). The derivation is ours;
RLG separates the classes of a batch smaller than n by the span of its errors, and SPEAR finds samples in such a span.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedleak.attacks.labels.exact import joint
from fedleak.attacks.labels.exact.splitting import noise_floor
from fedleak.attacks.labels.inputs import head_with_bias, whole_gradient
from fedleak.attacks.registry import Need, attack
from fedleak.attacks.result import Prepared, Result, once
from fedleak.data import Images
from fedleak.federated import Update
from fedleak.models import head, head_pass

STARTS_PER_LABEL = 3
"""Number of starts of the solver per label."""
START_SPREAD = 0.1
"""Spread of the starts about the middle, relative to its length."""
MAX_SEARCHES, ITERATIONS = 8, 100
"""Number of searches, and of steps of the solver."""
TOLERANCE_IN_NOISE, DOUBLE_ROUNDING, MAX_TOLERANCE = 5.0, 1e-12, 1e-3
"""Tolerance of a residual: a multiple of the gradient's relative noise, plus float64's rounding, up to a limit."""
SAME_INPUT_DISTANCE = 0.01
"""Relative distance below which two inputs are the same sample's."""
MAX_MISFIT = 0.01
"""Largest deviation of the samples' joint solution from the equations of G, as entries of a unit matrix."""
STARTING_LABELS, LABELS_PER_SAMPLE = 64, 8
"""Fewest labels from which a search starts, and labels per sample; it takes those with the gradient's longest rows."""
MAX_PRODUCTS, PRODUCTS_PER_SECOND = 2e11, 1e9
"""Most products of one search, as `products` counts them, and how many a core makes in a second."""
MAX_LOGITS_AT_ONCE = 2**22
"""Largest number of logits that a search holds in memory."""


class SampleSpace(NamedTuple):
    """The subspaces of a gradient's samples, from its singular value decomposition ``U K V^T``."""

    inputs: Tensor
    """V, ``[d + 1, B]``, which spans the inputs."""
    errors: Tensor
    """U, ``[n, B]``, which spans the errors."""
    scaled_errors: Tensor
    """K^-1 U^T, ``[B, n]``."""
    tolerance: float
    """Largest residual of a solution: a few times the ratio of the gradient's noise to its smallest singular value."""

    @property
    def middle(self) -> Tensor:
        """The shortest z whose input ends in 1, ``[B]``."""
        return self.inputs[-1] / self.inputs[-1].square().sum()


def find_space(gradient: Tensor, samples: int) -> SampleSpace:
    """Return the subspaces of a sum of `samples` products, ``[n, d + 1]``; raise `ValueError` for another rank."""
    left_vectors, values, right_vectors = torch.linalg.svd(gradient, full_matrices=False)
    floor = noise_floor(values, samples, "head")
    left_vectors, values = left_vectors[:, :samples], values[:samples]
    tolerance = min(TOLERANCE_IN_NOISE * floor / float(values[-1]) + DOUBLE_ROUNDING, MAX_TOLERANCE)
    return SampleSpace(right_vectors[:samples].T, left_vectors, left_vectors.T / values[:, None], tolerance)


def solve_samples(space: SampleSpace, weight: Tensor, labels: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Solve the equations of samples with these labels ``[k]``, each from a start ``[k, B]`` for z.

    Returns z ``[k, B]``, and the norm of its residual, ``[k]``, with each error scaled to length 1.
    """
    onehot = nn.functional.one_hot(labels, len(weight)).to(weight)
    # z = middle + free_directions @ coordinates leaves the last entry of the input at 1
    free_directions = torch.linalg.qr(space.inputs[-1][:, None], mode="complete").Q[:, 1:]
    logits_per_z = weight @ space.inputs
    logits_per_coordinate = logits_per_z @ free_directions
    coordinates, damping = (start - space.middle) @ free_directions, torch.full_like(start[:, :1], 0.01)
    pairs_of_logits = _row_products(logits_per_coordinate, logits_per_coordinate)
    errors_by_logits = _row_products(space.errors, logits_per_coordinate)
    samples, free = space.errors.shape[1], free_directions.shape[1]

    def evaluate(coordinates: Tensor) -> tuple[Tensor, ...]:
        z = space.middle + coordinates @ free_directions.T
        p = (z @ logits_per_z.T).softmax(1)
        norm = (p - onehot).norm(dim=1, keepdim=True)
        unit_error = (p - onehot) / norm  # else an error near 0 would nearly lie in the span without being a solution
        product_residual = (z * (unit_error * norm @ space.scaled_errors.T)).sum(1, keepdim=True) - 1
        error_residual = unit_error - (unit_error @ space.errors) @ space.errors.T
        return z, p, norm, unit_error, torch.cat([error_residual, product_residual], 1)

    state = evaluate(coordinates)
    for _ in range(ITERATIONS):
        z, p, norm, unit_error, residual = state
        # The slopes of p are S = diag(p) (L - 1 m^T), L the logits' and m their mean by p. S, [n, B] for every start,
        # is not formed: S^T S and U^T S are products of p^2 and p with the rows of L L^T and U L^T, class by class.
        mean = p @ logits_per_coordinate

        def along_slopes(vectors: Tensor) -> Tensor:
            weights = vectors * p  # noqa: B023, called in this step alone
            return weights @ logits_per_coordinate - weights.sum(1, keepdim=True) * mean  # noqa: B023

        squares = p.square()
        across = (squares @ logits_per_coordinate)[..., None] * mean[:, None]
        curvature = (squares @ pairs_of_logits).view(len(p), free, free) - across - across.mT
        curvature = curvature + squares.sum(1)[:, None, None] * mean[..., None] * mean[:, None]
        along_error = along_slopes(unit_error)
        in_span = (p @ errors_by_logits).view(len(p), samples, free) - (p @ space.errors)[..., None] * mean[:, None]
        in_span = in_span - (unit_error @ space.errors)[..., None] * along_error[:, None]
        error_slopes = curvature - along_error[..., None] * along_error[:, None] - in_span.mT @ in_span
        product_slopes = (unit_error * norm @ space.scaled_errors.T) @ free_directions
        product_slopes = product_slopes + along_slopes(z @ space.scaled_errors)
        normal = error_slopes / norm[..., None].square() + product_slopes[..., None] * product_slopes[:, None]
        error_residual, product_residual = residual[:, :-1], residual[:, -1:]
        slope = along_slopes(error_residual) - (unit_error * error_residual).sum(1, keepdim=True) * along_error
        slope = slope / norm + product_slopes * product_residual
        diagonal = normal.diagonal(dim1=1, dim2=2)  # Marquardt's damping, relative to each unknown's curvature
        system = normal + torch.diag_embed(damping * diagonal + 1e-30)
        step = torch.linalg.solve_ex(system, slope[..., None]).result.squeeze(-1)
        new_state = evaluate(coordinates - step)
        is_better = new_state[-1].square().sum(1, keepdim=True) < residual.square().sum(
            1, keepdim=True
        )  # False for NaN
        coordinates = torch.where(is_better, coordinates - step, coordinates)
        damping = torch.where(is_better, (damping / 4).clamp(min=1e-14), (damping * 6).clamp(max=1e12))
        pairs = zip(new_state, state, strict=True)
        state = tuple(torch.where(is_better.view(-1, *[1] * (new.dim() - 1)), new, old) for new, old in pairs)
    return state[0], state[-1].norm(dim=1)


def _row_products(left: Tensor, right: Tensor) -> Tensor:
    """Return the outer products of the rows, ``[n, a b]``."""
    return (left[:, :, None] * right[:, None]).flatten(1)


def search_samples(
    space: SampleSpace, weight: Tensor, candidates: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return the distinct solutions from starts of every candidate: inputs ``[k, d + 1]`` and labels ``[k]``."""
    middle, last_row, samples = space.middle, space.inputs[-1], space.inputs.shape[1]
    labels = candidates.repeat(STARTS_PER_LABEL)
    start = torch.randn(len(labels), samples, generator=generator, dtype=last_row.dtype).to(last_row)
    start = start * middle.norm() * START_SPREAD
    start = middle + start - (start @ last_row)[:, None] * middle
    piece_size = max(1, MAX_LOGITS_AT_ONCE // (len(weight) * samples))
    pieces = zip(labels.split(piece_size), start.split(piece_size), strict=True)
    solutions = [solve_samples(space, weight, *piece) for piece in pieces]
    z, residuals = (torch.cat(parts) for parts in zip(*solutions, strict=True))
    chosen: list[int] = []
    for k in residuals.argsort()[: int((residuals < space.tolerance).sum())].tolist():
        is_far = (z[chosen] - z[k]).norm(dim=1) > SAME_INPUT_DISTANCE * z[k].norm()
        if bool((is_far | (labels[chosen] != labels[k])).all()):
            chosen.append(k)
    return z[chosen] @ space.inputs.T, labels[chosen]


def split(gradient: Tensor, weight: Tensor, samples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Split the mean gradient of a head ``[n, d + 1]`` into its samples: inputs ``[B, d + 1]`` and labels ``[B]``.

    `weight` is the head's, ``[n, d + 1]``; both have the bias as their last column and are in double precision; `seed`
    is that of the starts. Raises `ValueError` as `prepare` says.
    """
    generator, total = torch.Generator().manual_seed(seed), samples * gradient
    full_space, remainder = find_space(total, samples), total
    inputs, labels = total.new_zeros(0, total.shape[1]), torch.zeros(0, dtype=torch.long, device=total.device)
    for _ in range(MAX_SEARCHES):
        # A class without samples has a long row only where the model takes samples for it: few classes a sample.
        longest = remainder.norm(dim=1).topk(starting_labels(len(weight), samples)).indices.sort().values
        space = find_space(remainder, samples - len(labels))
        new_inputs, new_labels = search_samples(space, weight, longest, generator)
        inputs, labels = torch.cat([inputs, new_inputs]), torch.cat([labels, new_labels])
        if len(labels) >= samples:
            break
        remainder = total - compute_errors(inputs, weight, labels).T @ inputs
    if len(labels) == samples:
        z, residuals = solve_samples(full_space, weight, labels, inputs @ full_space.inputs)
        inputs = z @ full_space.inputs.T
        fit = z @ full_space.scaled_errors @ compute_errors(inputs, weight, labels).T
        misfit = (fit - torch.eye(samples).to(fit)).abs().max()
        if bool((residuals < full_space.tolerance).all()) and misfit < MAX_MISFIT:
            return inputs, labels
    raise ValueError(f"the search finds {len(labels)} of {samples} samples, or they do not fit together")


def compute_errors(inputs: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """Return softmax minus onehot of samples, ``[k, n]``."""
    return (inputs @ weight.T).softmax(1) - nn.functional.one_hot(labels, len(weight)).to(weight)


def starting_labels(classes: int, samples: int) -> int:
    """Return from how many labels a search starts."""
    return min(classes, max(STARTING_LABELS, LABELS_PER_SAMPLE * samples))


def products(classes: int, samples: int) -> int:
    """Return about how many products a search takes: B x B sums over the n classes in each step of each start."""
    return ITERATIONS * STARTS_PER_LABEL * starting_labels(classes, samples) * classes * samples**2


def has_few_samples(model: nn.Module, _: Tensor | None, samples: int) -> bool:
    """Return whether one of the two searches handles this number of samples: below n, up to n / 2 or a small limit."""
    classes = head(model).layer.out_features
    few = samples <= classes // 2 and products(classes, samples) <= MAX_PRODUCTS
    return samples < classes and (few or samples <= joint.MAX_SAMPLES)


@attack(
    "head splitting",
    needs={Need.HEAD_GRADIENT, Need.BIAS_GRADIENT, Need.SAMPLE_COUNT, Need.MODEL},
    summary="Solves the samples' equations in the head's gradient, of fewer samples than classes.",
    options={"seed", "aux"},
    prepares=True,
    standalone_reason="it reads batches of fewer samples than there are classes",
    applies=has_few_samples,
)
def prepare(model: nn.Module, aux: Images | None = None) -> Prepared:
    """Prepare head splitting; its `Result` has the counts ``[n]``, all of them ``proven``.

    Parameters
    ----------
    model
        The model before the round.
    aux
        Labelled images; their head inputs are starts of the search for all samples together.

    Raises
    ------
    ValueError
        The head has no bias; in ``recover``: several local steps; more samples than n / 2 (with `aux`, n - 1);
        gradients that are NaN, infinite or another model's; samples that are equal up to rounding, such as the same
        image twice; or samples that the search does not find.
    WithheldParameter
        In ``recover``: a gradient of the head is not shared.
    """
    last = head_with_bias(model)
    layer = last.layer
    assert layer.bias is not None
    weight = torch.cat([layer.weight, layer.bias[:, None]], 1).detach().double()
    starts = [] if aux is None else _find_starts(model, aux, len(weight))
    input_norm = float(np.mean([np.linalg.norm(inputs, axis=1).mean() for inputs in starts])) if starts else 0.0

    def read(update: Update, *, seed: int = 0) -> Result:
        samples, n = update.samples, len(weight)
        if update.steps != 1 or samples > (n - 1 if starts else n // 2):
            raise ValueError(
                f"head splitting reads one step of at most half as many samples as the {n} classes, with auxiliary "
                f"images of fewer samples than classes; got {update.steps} steps, {samples} samples"
            )
        if 2 * samples <= n and (needed := products(n, samples)) > MAX_PRODUCTS:
            minutes = needed / PRODUCTS_PER_SECOND / 60
            raise ValueError(
                f"head splitting of {samples} samples of {n:,} classes would take {minutes:,.0f} minutes a search: "
                "use iLRG or LLG, which infer labels from sums of rows"
            )
        gradient, labels = whole_gradient(update, model), None
        if 2 * samples <= n:
            try:
                _, labels = split(gradient, weight, samples, seed)
            except ValueError:
                if not starts:
                    raise
        if labels is None:
            total = samples * gradient
            floor = noise_floor(torch.linalg.svdvals(total), samples, "head")
            rounding = torch.finfo(update.tensors[last.weight].dtype).eps * input_norm
            matrices = total.cpu().numpy(), weight.cpu().numpy()
            recovered = joint.recover_labels(*matrices, samples, floor, rounding, starts, seed)
            labels = torch.from_numpy(recovered).to(weight.device)
        counts = labels.bincount(minlength=n)
        return Result(counts, proven=counts)

    return Prepared("head splitting", read)


def _find_starts(model: nn.Module, aux: Images, n_classes: int) -> list[np.ndarray]:
    """Return each class's head inputs and a 1, ``[k, d + 1]``; for a class without images those of all classes."""
    x = aux.x.to(next(model.parameters()).dtype) if aux.x.is_floating_point() else aux.x
    inputs = nn.functional.pad(head_pass(model, x).inputs.double(), (0, 1), value=1.0).cpu().numpy()
    labels = aux.y.cpu().numpy()
    return [inputs[labels == y] if (labels == y).any() else inputs for y in range(n_classes)]


recover = once(prepare, seed=0)
