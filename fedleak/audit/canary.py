"""A lower bound of ε by a canary: how well many releases of two neighbouring inputs can be distinguished."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from torch import Tensor

from fedleak.privacy.claim import NEIGHBOURS, Privacy, gaussian_epsilon

MOST, LEAST, ENTRIES = 4000, 200, 200_000_000
"""Largest and smallest number of releases per input; between them, the number that draws this many entries."""


class Bound(NamedTuple):
    """The result of a canary."""

    epsilon: float
    """A lower bound of ε, whatever the mechanism is."""
    gaussian: float
    """The same of a mechanism that adds normal noise and nothing else random."""
    n: int
    """Scored releases of each of the two inputs."""


class PrivacyResult(NamedTuple):
    """A claim of differential privacy, and what a canary shows of it."""

    privacy: Privacy
    epsilon: float | None = None
    """A lower bound of ε with 95 % confidence for any mechanism; None for a recorded run."""
    gaussian: float | None = None
    """The bound if normal noise is the only randomness."""
    n: int = 0
    """Scored releases of each of two neighbours."""
    updates: int = 0
    """Number of updates of a recorded run that are made in this way."""

    def text(self) -> str:
        """Return the result as a sentence."""
        claim, by = self.privacy, f" by {self.privacy.by}" * bool(self.privacy.by)
        claimed = "no finite ε" if math.isinf(claim.claimed) else f"ε = {claim.claimed:.3g} at δ = {claim.delta:g}"
        claim_text = f"{claimed}{by} for each client and round ({NEIGHBOURS[claim.neighbours]})"
        if self.updates:
            return f"{claim_text}, of {self.updates} updates; a run has one release of each input, too few for a canary"
        if self.epsilon is None:
            return claim_text
        normal = "" if self.gaussian is None else f", and {self.gaussian:.3g} as the noise is normal"
        return (
            f"{claim_text}; a canary shows at least {self.epsilon:.3g}{normal} (95 %, {self.n} releases of each input)"
        )

    def wrong(self) -> list[str]:
        """Return the errors of the claim; empty if there are none."""
        least = max(self.epsilon or 0.0, self.gaussian or 0.0)
        above = [f"a canary shows that ε is at least {least:.3g}, more than is claimed"]
        return [*self.privacy.wrong(), *(above if least > self.privacy.claimed else [])]


def measure(
    privacy: Privacy,
    means: Sequence[Mapping[str, Tensor]],
    releases: Sequence[Iterator[Mapping[str, Tensor]]],
    is_normal: bool,
) -> PrivacyResult:
    """Return a claim with the bound that a canary shows.

    Parameters
    ----------
    privacy
        The claim.
    means, releases
        Of each of two neighbouring inputs, the release without noise, and releases without end. What is looked at is
        the inner product of a release with the difference of the means.
    is_normal
        Whether noise is the only randomness, so that it is normal where the claim is about such noise.
    """
    direction = {name: (means[1][name] - means[0][name]).double() for name in means[0]}
    n = max(LEAST, min(MOST, ENTRIES // sum(t.numel() for t in direction.values())))
    scores = [
        [sum(float((direction[k] * t).sum()) for k, t in tensors.items()) for tensors in islice(drawn, n)]
        for drawn in releases
    ]
    bound = lower_bound(scores[0], scores[1], privacy.delta)
    is_normal = is_normal and (bool(privacy.history) or privacy.aggregated or not privacy.clipped)
    return PrivacyResult(privacy, bound.epsilon, bound.gaussian if is_normal else None, bound.n)


def lower_bound(without: Sequence[float], having: Sequence[float], delta: float, confidence: float = 0.95) -> Bound:
    """Return a lower bound of ε, with this confidence, from how well releases can be distinguished.

    A threshold is chosen on the first half of each, and how often it errs is counted on the second. Clopper and
    Pearson's limits of both rates of errors hold together, and an (ε, δ)-private mechanism allows no smaller ones
    (Jagielski et al. 2020; Nasr et al. 2021). Under normal noise the rates bound the distance of the means,
    which gives a much tighter ε (Nasr et al. 2023).

    Parameters
    ----------
    without, having
        A number of each release ``[N]``, of the one input and of its neighbour, on which it tends to be larger.
    delta
        At which ε is bounded, in [0, 1).
    confidence
        Confidence of the bound.
    """
    first, second = ([np.sort(np.asarray(values)[half::2]) for values in (without, having)] for half in (0, 1))
    thresholds = np.unique(np.concatenate(first))
    picked = [thresholds[np.argmax(value)] for value in _bounds(first, thresholds, delta, confidence)]
    plain, mu = (_bounds(second, np.array([t]), delta, confidence)[k][0] for k, t in enumerate(picked))
    return Bound(max(float(plain), 0.0), gaussian_epsilon(float(mu), delta), len(second[0]))


def _bounds(
    scores: list[np.ndarray], thresholds: np.ndarray, delta: float, confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return what each threshold shows: of ε, and of the distance of two normal distributions in deviations."""
    from scipy import stats  # which takes a second to import

    (without, having), most = scores, []
    for wrong, of in (
        (len(without) - np.searchsorted(without, thresholds), len(without)),  # at or above it, without the canary
        (np.searchsorted(having, thresholds), len(having)),
    ):
        limit = stats.beta.ppf(1 - (1 - confidence) / 2, wrong + 1, np.maximum(of - wrong, 1))
        most.append(np.where(wrong == of, 1.0, limit))
    false, missed = most
    with np.errstate(divide="ignore"):
        ratio = np.maximum((1 - delta - missed) / false, (1 - delta - false) / missed)
        epsilon = np.log(np.maximum(ratio, 1e-300))
    return epsilon, stats.norm.ppf(1 - false) - stats.norm.ppf(missed)
