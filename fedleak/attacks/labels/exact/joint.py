"""Solve a head gradient for all of its samples at once, with fewer samples than classes.

``B G = sum_i e_i a_i^T`` is (n - 1) B equations for B (B - 1) unknowns: the inputs a_i lie in the span of G's rows and
end in 1, and the errors e_i = softmax(W a_i) - onehot(y_i) follow from inputs and labels. Up to B = n - 1 there are
enough equations. Label vectors are enumerated: if inputs are not negative, as after a ReLU, a class occurs where its
row has a negative entry, and the B samples can be divided among these classes in few ways. The derivation is ours.
"""

from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
from scipy.optimize import least_squares
from scipy.special import softmax

MAX_SAMPLES, MAX_LABEL_COUNTS, SEARCHES_OF_ALL = 12, 40, 4
"""Most samples; most label vectors; searches for each of them."""
N_LEADING, SEARCHES_OF_LEADING = 3, 40
"""Label vectors nearest to a solution, and the number of further searches for these: most searches end in a local
minimum, how many depends on the batch."""
MAX_REMAINDER, MIN_OTHER_REMAINDER, NEGATIVE_SHARE, MAX_NOISE = 10.0, 100.0, 1e-6, 1e-5
"""Largest remainder of a solution, and smallest of the other label vectors' best ones, in units of the gradient's noise
(the true labels leave 1 to 3, a local minimum thousands); size of a negative entry, relative to its row's largest;
largest singular value after the first B, relative to the gradient, unless the gradient was changed."""


class SampleEquations:
    """The equations of samples with given labels, whose unknowns are the free parts of their inputs, ``[B (B - 1)]``.

    `weight` is the head's and `total` B times its mean gradient, ``[n, d + 1]``, with the bias as last column.
    """

    def __init__(self, weight: np.ndarray, labels: np.ndarray, total: np.ndarray):
        self.labels, self.basis = labels, np.linalg.svd(total, full_matrices=False)[2][: len(labels)].T
        last = self.basis[-1]
        self.origin, self.free = last / (last @ last), np.linalg.svd(last[None])[2][1:]
        self.outputs, self.target = weight @ self.basis, total @ self.basis
        self.slopes = self.outputs @ self.free.T

    def project_inputs(self, inputs: np.ndarray) -> np.ndarray:
        """Return the free parts of the inputs in the span that are nearest to `inputs`, ``[B, d + 1]``."""
        coordinates = inputs @ self.basis
        coordinates = coordinates / (coordinates @ self.basis[-1])[:, None]
        return ((coordinates - self.origin) @ self.free.T).ravel()

    def inputs_of(self, free_parts: np.ndarray) -> np.ndarray:
        """Return the inputs ``[B, d + 1]`` with these free parts."""
        return self._coordinates(free_parts) @ self.basis.T

    def residual(self, free_parts: np.ndarray) -> np.ndarray:
        """Return the samples' gradient minus the observed one, in the basis, ``[n B]``."""
        coordinates = self._coordinates(free_parts)
        return (self._errors(self._probabilities(coordinates)).T @ coordinates - self.target).ravel()

    def jacobian(self, free_parts: np.ndarray) -> np.ndarray:
        """Return the derivative of `residual`, ``[n B, B (B - 1)]``."""
        coordinates = self._coordinates(free_parts)
        probabilities = self._probabilities(coordinates)
        error_slopes = probabilities[..., None] * (self.slopes - (probabilities @ self.slopes)[:, None])
        slopes = np.einsum("bnj,bk->nkbj", error_slopes, coordinates)
        slopes += np.einsum("bn,jk->nkbj", self._errors(probabilities), self.free)
        return slopes.reshape(self.target.size, -1)

    def solve(self, inputs: np.ndarray) -> tuple[np.ndarray, float]:
        """Solve by Levenberg and Marquardt's method from `inputs`; return the inputs and the residual's norm."""
        start, tolerances = self.project_inputs(inputs), dict.fromkeys(("xtol", "ftol", "gtol"), 1e-15)
        solution = least_squares(self.residual, start, self.jacobian, method="lm", max_nfev=200, **tolerances)
        return self.inputs_of(solution.x), float(np.linalg.norm(solution.fun))

    def _coordinates(self, free_parts: np.ndarray) -> np.ndarray:
        return self.origin + free_parts.reshape(len(self.labels), -1) @ self.free

    def _probabilities(self, coordinates: np.ndarray) -> np.ndarray:
        return softmax(coordinates @ self.outputs.T, 1)

    def _errors(self, probabilities: np.ndarray) -> np.ndarray:
        return probabilities - np.eye(len(self.outputs))[self.labels]


def iterate_label_vectors(total: np.ndarray, samples: int) -> Iterator[np.ndarray]:
    """Yield all label vectors ``[B]`` in which exactly the classes with a negative entry in their row occur."""
    present = np.flatnonzero(total.min(1) < -NEGATIVE_SHARE * abs(total).max(1))
    for bars in combinations(range(1, samples), len(present) - 1) if len(present) else ():
        yield np.repeat(present, [b - a for a, b in pairwise((0, *bars, samples))])


def recover_labels(
    total: np.ndarray,
    weight: np.ndarray,
    samples: int,
    floor: float,
    rounding: float,
    starts: list[np.ndarray],
    seed: int = 0,
) -> np.ndarray:
    """Recover the labels ``[B]`` of the samples behind a gradient.

    Raises `ValueError` if there are too many samples or label vectors, or not exactly one of these explains the
    gradient.

    Parameters
    ----------
    total, weight
        B times the head's mean gradient, and the head's weight, ``[n, d + 1]``, with the bias as last column, float64.
    samples
        B.
    floor
        Largest singular value of the gradient after the first B.
    rounding
        Rounding error of the client's softmax times a sample's input.
    starts
        Inputs of each class, ``[k, d + 1]``, at which searches start.
    seed
        Random seed by which these are chosen.
    """
    label_vectors = list(iterate_label_vectors(total, samples)) if samples <= MAX_SAMPLES else []
    if not 0 < len(label_vectors) <= MAX_LABEL_COUNTS:
        raise ValueError(
            f"{len(label_vectors)} label counts to try: up to {MAX_LABEL_COUNTS} are, of at most {MAX_SAMPLES} samples"
        )
    if floor > MAX_NOISE * np.linalg.norm(total):
        raise ValueError("the gradient is changed: it explains no label counts to the rounding of a client")
    generator, noise = np.random.default_rng(seed), max(floor, rounding)
    systems = [SampleEquations(weight, labels, total) for labels in label_vectors]
    remainders = np.full(len(systems), np.inf)
    for search in range(SEARCHES_OF_ALL + SEARCHES_OF_LEADING):
        for k in range(len(systems)) if search < SEARCHES_OF_ALL else remainders.argsort()[:N_LEADING]:
            _, remainder = systems[k].solve(np.stack([generator.choice(starts[y]) for y in systems[k].labels]))
            remainders[k] = min(remainders[k], remainder)
        if remainders.min() <= MAX_REMAINDER * noise:
            break
    best = int(remainders.argmin())
    is_close = remainders < MIN_OTHER_REMAINDER * noise
    if remainders[best] > MAX_REMAINDER * noise or np.delete(is_close, best).any():
        raise ValueError(f"{is_close.sum()} of {len(systems)} label counts explain the gradient")
    return label_vectors[best]
