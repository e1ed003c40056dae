"""95 % intervals for means of values in a range, such as shares, or of numbers without bounds."""

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from scipy import stats

LEAST = 3
"""Independent values that a mean needs to have an interval."""
POINT = 10
"""Equal values of a number without bounds that are a point; fewer have no interval."""
Z = float(stats.norm.ppf(0.975))
SHARE, UNBOUNDED = (0.0, 1.0), (-math.inf, math.inf)
"""The least and the largest value that is possible."""


def interval(
    values: Sequence[float] | np.ndarray,
    bounds: tuple[float, float] = SHARE,
    widen: Callable[[float, float, float, int], tuple[float, float]] | None = None,
) -> tuple[float, float]:
    """Return a 95 % interval of the mean of independent values, one a trial.

    Student's t, widened where that alone would claim too much, by default by `widened`; NaN for fewer than three
    values. Raises `ValueError` if there are none, or one is NaN, infinite or outside the bounds.
    """
    v = np.asarray(values, dtype=float)
    if v.size == 0:
        raise ValueError("no values to make an interval of")
    if not np.isfinite(v).all():
        bad = int((~np.isfinite(v)).sum())
        raise ValueError(f"{bad} of {v.size} values are NaN or infinite: drop them, and say so")
    bottom, top = bounds
    if v.min() < bottom - 1e-9 or v.max() > top + 1e-9:
        raise ValueError(f"such a mean lies in [{bottom:g}, {top:g}], got {v.min():.4g} to {v.max():.4g}")
    if v.size < LEAST:
        return math.nan, math.nan
    half = 0.0 if np.ptp(v) == 0 else student(v.size) * float(v.std(ddof=1)) / math.sqrt(v.size)
    ends = float(v.mean()), v.mean() - half, v.mean() + half, v.size
    return widen(*ends) if widen else widened(*ends, bounds)


def widened(mean: float, low: float, high: float, n: int, bounds: tuple[float, float]) -> tuple[float, float]:
    """Widen an interval of a mean over n trials by what its trials cannot show, and cut it at the ends of its range.

    Trials that are all equal, or nearly all at an end of their range, say nothing of what happens seldom. So, if they
    are equal or the mean is less than one whole trial away from an end, a share z² / (n + z²) of the trials may have
    gone to either end unseen: for n successes of n that is Wilson's interval. Without bounds equal values have no
    interval, or from ten on are a point.
    """
    equal = high - low <= 1e-12 * max(1.0, abs(mean))
    bottom, top = bounds
    if math.isinf(top):
        return (math.nan, math.nan) if equal and n < POINT else (low, high)
    if equal or n * min(mean - bottom, top - mean) / (top - bottom) < 1:
        unseen = Z**2 / (n + Z**2)
        low, high = min(low, mean - unseen * (mean - bottom)), max(high, mean + unseen * (top - mean))
    return max(bottom, float(low)), min(top, float(high))


@cache
def student(n: int) -> float:
    """Return Student's t for the mean of n values."""
    return float(stats.t.ppf(0.975, n - 1))
