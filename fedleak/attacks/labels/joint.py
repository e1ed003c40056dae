"""All samples of a head's gradient at once: what their equations determine with fewer samples than classes.

``B G = sum_i e_i a_i^T`` is (n - 1) B equations of the B (B - 1) numbers that are free in the inputs a_i, which lie in
the span of G's rows and end in 1; the errors e_i = softmax(W a_i) - onehot(y_i) depend on them and on the labels. Up to
B = n - 1 they are enough. The labels are tried: a row with a negative entry names a class if inputs are not negative,
as after a ReLU, so that only the ways to share out the samples among these classes are left. The derivation is ours.
"""

from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
from scipy.optimize import least_squares
from scipy.special import softmax

MOST, TRIED, SEARCHES = 12, 40, 4
"""Samples at most; label counts at most; searches with each of them."""
LEADING, FURTHER = 3, 40
"""Label counts that are searched further, those nearest to a solution, and how often: most searches end in a local
minimum, and how many do depends on the batch."""
FITS, APART, NEGATIVE, COARSEST = 10.0, 100.0, 1e-6, 1e-5
"""Largest remainder of a solution, and smallest of every other counts' best solution, in units of the gradient's noise
(true counts leave 1 to 3, a local minimum thousands); how far below 0 an entry is negative, relative to its row's
largest; the largest singular value that should be 0, relative to the gradient: beyond it the gradient was changed."""


class Equations:
    """The equations of samples of given labels, in the free parts ``[B (B - 1)]`` of their inputs.

    `weight` is the head's and `total` B times its mean gradient, ``[n, d + 1]``, the bias last.
    """

    def __init__(self, weight: np.ndarray, labels: np.ndarray, total: np.ndarray):
        self.labels, self.basis = labels, np.linalg.svd(total, full_matrices=False)[2][: len(labels)].T
        last = self.basis[-1]
        self.origin, self.free = last / (last @ last), np.linalg.svd(last[None])[2][1:]
        self.outputs, self.target = weight @ self.basis, total @ self.basis
        self.slopes = self.outputs @ self.free.T

    def parts(self, inputs: np.ndarray) -> np.ndarray:
        """Return the free parts of the inputs in the span that are nearest to these, ``[B, d + 1]``."""
        inside = inputs @ self.basis
        inside = inside / (inside @ self.basis[-1])[:, None]
        return ((inside - self.origin) @ self.free.T).ravel()

    def inputs(self, parts: np.ndarray) -> np.ndarray:
        """Return the inputs ``[B, d + 1]``."""
        return self._inside(parts) @ self.basis.T

    def residual(self, parts: np.ndarray) -> np.ndarray:
        """Return the gradient that the samples make less the one that is seen, ``[n B]``."""
        inside = self._inside(parts)
        return (self._errors(self._shares(inside)).T @ inside - self.target).ravel()

    def jacobian(self, parts: np.ndarray) -> np.ndarray:
        """Return the derivative of `residual`, ``[n B, B (B - 1)]``."""
        inside = self._inside(parts)
        shares = self._shares(inside)
        turned = shares[..., None] * (self.slopes - (shares @ self.slopes)[:, None])
        slope = np.einsum("bnj,bk->nkbj", turned, inside) + np.einsum("bn,jk->nkbj", self._errors(shares), self.free)
        return slope.reshape(self.target.size, -1)

    def solve(self, inputs: np.ndarray) -> tuple[np.ndarray, float]:
        """Solve by Levenberg and Marquardt's method from inputs; return those found, and what they leave."""
        tight = dict.fromkeys(("xtol", "ftol", "gtol"), 1e-15)
        solution = least_squares(self.residual, self.parts(inputs), self.jacobian, method="lm", max_nfev=200, **tight)
        return self.inputs(solution.x), float(np.linalg.norm(solution.fun))

    def _inside(self, parts: np.ndarray) -> np.ndarray:
        return self.origin + parts.reshape(len(self.labels), -1) @ self.free

    def _shares(self, inside: np.ndarray) -> np.ndarray:
        return softmax(inside @ self.outputs.T, 1)

    def _errors(self, shares: np.ndarray) -> np.ndarray:
        return shares - np.eye(len(self.outputs))[self.labels]


def candidates(total: np.ndarray, samples: int) -> Iterator[np.ndarray]:
    """Yield label vectors to try: classes whose row has a negative entry, each at least once."""
    present = np.flatnonzero(total.min(1) < -NEGATIVE * abs(total).max(1))
    for bars in combinations(range(1, samples), len(present) - 1) if len(present) else ():
        yield np.repeat(present, [b - a for a, b in pairwise((0, *bars, samples))])


def labels_of(
    total: np.ndarray,
    weight: np.ndarray,
    samples: int,
    floor: float,
    rounding: float,
    starts: list[np.ndarray],
    seed: int = 0,
) -> np.ndarray:
    """Return the labels ``[B]`` of the samples that B times a gradient is made of.

    Raises `ValueError` if there are too many samples or label counts to try, or not just one of these explains the
    gradient.

    Parameters
    ----------
    total, weight
        B times the mean gradient of the head, and the head, ``[n, d + 1]``, the bias last, in double precision.
    samples
        B.
    floor
        The largest singular value of the gradient that should be 0.
    rounding
        Rounding error of the client's softmax times a sample's input.
    starts
        Inputs ``[k, d + 1]`` of each class, from which is searched.
    seed
        Random seed of their choice.
    """
    draws, tried = np.random.default_rng(seed), list(candidates(total, samples)) if samples <= MOST else []
    if not 0 < len(tried) <= TRIED:
        raise ValueError(f"{len(tried)} label counts to try: up to {TRIED} are, of at most {MOST} samples")
    if floor > COARSEST * np.linalg.norm(total):
        raise ValueError("the gradient is changed: it explains no label counts to the rounding of a client")
    noise = max(floor, rounding)
    systems, least = [Equations(weight, labels, total) for labels in tried], np.full(len(tried), np.inf)
    for number in range(SEARCHES + FURTHER):
        for k in range(len(systems)) if number < SEARCHES else least.argsort()[:LEADING]:
            _, remainder = systems[k].solve(np.stack([draws.choice(starts[y]) for y in systems[k].labels]))
            least[k] = min(least[k], remainder)
        if least.min() <= FITS * noise:
            break
    best = int(least.argmin())
    if least[best] > FITS * noise or (np.delete(least, best) < APART * noise).any():
        raise ValueError(f"{(least < APART * noise).sum()} of {len(tried)} label counts explain the gradient")
    return tried[best]
