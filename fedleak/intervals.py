"""Intervals of means, by what is averaged: that is declared with an experiment, and never guessed from its values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np
from scipy import stats

LEAST = 3
"""Independent values that a mean needs to have an interval."""
POINT = 10
"""Equal values of a number without bounds that are a point; fewer have no interval."""
Z = float(stats.norm.ppf(0.975))


@dataclass(frozen=True)
class Kind:
    """What a column of values is, one value a trial.

    Parameters
    ----------
    name
        ``"rate"``: a share of labels that are right or wrong one by one. ``"mean"``: any other value in [0, 1], such as
        a trial that succeeds or fails as a whole. ``"difference"`` of two of these, in [-1, 1]. ``"number"``: without
        bounds.
    labels
        How many labels a trial has at least: numbers, names of the settings that say so, or a table by setting and
        value; their product.
    reference
        Of a difference: the cells that the others are compared with, whose own difference is 0 by construction.
    """

    name: Literal["rate", "mean", "difference", "number"]
    labels: Sequence[Any] = ()
    reference: Mapping[str, Any] = field(default_factory=dict)

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest value that is possible."""
        bounds = {"difference": (-1.0, 1.0), "number": (-math.inf, math.inf)}
        return bounds.get(self.name, (0.0, 1.0))

    @property
    def written(self) -> dict[str, Any]:
        """What a record's provenance says of it: arguments of this class."""
        return {k: v for k, v in vars(self).items() if v}

    def settled(self, cell: Mapping[str, Any]) -> "Kind | None":
        """Return the kind in one cell, with its number of labels; None for the reference of a difference."""
        if self.reference and all(cell.get(k) == v for k, v in self.reference.items()):
            return None
        return Kind(self.name, [math.prod(_number(one, cell) for one in self.labels)])


NUMBER, MEAN, DIFFERENCE = Kind("number"), Kind("mean"), Kind("difference")


def rate(*labels: Any) -> Kind:
    """Return the kind of a share of labels, of which a trial has as many as these numbers and settings say."""
    return Kind("rate", labels)


def difference(*labels: Any, **reference: Any) -> Kind:
    """Return the kind of a paired difference of such shares to the cells with these settings."""
    return Kind("difference", labels, reference)


def _number(one: Any, cell: Mapping[str, Any]) -> float:
    """Return how many labels a number, a setting's name, or a table by setting and value stands for in a cell."""
    if isinstance(one, Mapping):
        ((setting, by_value),) = one.items()
        return float(by_value[cell[setting]])
    return float(cell[one] if isinstance(one, str) else one)


def interval(values: Sequence[float] | np.ndarray, kind: Kind = MEAN) -> tuple[float, float]:
    """Return a 95 % interval of the mean of independent values, one a trial.

    Student's t, widened by `widened` where that alone would claim too much; NaN for fewer than three values.
    """
    v = np.asarray(values, dtype=float)
    if v.size == 0:
        raise ValueError("no values to make an interval of")
    if not np.isfinite(v).all():
        bad = int((~np.isfinite(v)).sum())
        raise ValueError(f"{bad} of {v.size} values are NaN or infinite: drop them, and say so")
    bottom, top = kind.range
    if v.min() < bottom - 1e-9 or v.max() > top + 1e-9:
        raise ValueError(f"a {kind.name} lies in [{bottom:g}, {top:g}], got {v.min():.4g} to {v.max():.4g}")
    if v.size < LEAST:
        return math.nan, math.nan
    half = 0.0 if np.ptp(v) == 0 else _student(v.size) * float(v.std(ddof=1)) / math.sqrt(v.size)
    return widened(float(v.mean()), v.mean() - half, v.mean() + half, v.size, kind)


def widened(mean: float, low: float, high: float, n: int, kind: Kind) -> tuple[float, float]:
    """Widen an interval of a mean over n trials by what its trials cannot show, and cut it at the ends of its range.

    Trials that are all equal, or nearly all at an end of their range, say nothing of what happens seldom. So:

    - of a rate, the interval is never narrower than Wilson's for all of its labels, as if each were drawn by itself;
    - of another bounded value whose trials are equal, or whose mean is less than one whole trial away from an end, a
      share z² / (n + z²) of the trials may have gone to either end unseen. For n successes of n that is Wilson's
      interval. (Of a difference of rates, n counts labels.)
    - of a number, equal values have no interval, or from ten on are a point.
    """
    equal = high - low <= 1e-12 * max(1.0, abs(mean))
    bottom, top = kind.range
    counted = n * math.prod(kind.labels)
    if kind.name == "number":
        return (math.nan, math.nan) if equal and n < POINT else (low, high)
    if kind.name == "rate":  # Wilson's centre and half-width
        centre = (mean + Z**2 / (2 * counted)) / (1 + Z**2 / counted)
        spread = max(0.0, mean * (1 - mean)) / counted + Z**2 / (4 * counted**2)
        half = Z / (1 + Z**2 / counted) * math.sqrt(spread)
        low, high = min(low, centre - half), max(high, centre + half)
    elif equal or counted * min(mean - bottom, top - mean) / (top - bottom) < 1:
        unseen = Z**2 / (counted + Z**2)
        low, high = min(low, mean - unseen * (mean - bottom)), max(high, mean + unseen * (top - mean))
    return max(bottom, float(low)), min(top, float(high))


@cache
def _student(n: int) -> float:
    """Return Student's t for the mean of n values."""
    return float(stats.t.ppf(0.975, n - 1))


def stretch(n: int) -> float:
    """Return by how much the percentiles of a bootstrap over n values are too near: what Student's t adds to them."""
    return _student(n) / Z * math.sqrt(n / (n - 1))
