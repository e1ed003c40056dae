"""95 % intervals for means of values in a range, such as shares, or without bounds."""

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

MIN_VALUES = 3
"""Fewest independent values whose mean has an interval."""
MIN_EQUAL_VALUES = 10
"""Fewest equal values without bounds whose interval is a point; fewer have none."""
Z = 1.959963984540054
"""Quantile of the standard normal distribution at 0.975."""
SHARE, UNBOUNDED = (0.0, 1.0), (-math.inf, math.inf)
"""Smallest and largest possible value."""


def interval(
    values: Sequence[float] | np.ndarray,
    bounds: tuple[float, float] = SHARE,
    widen: Callable[[float, float, float, int], tuple[float, float]] | None = None,
) -> tuple[float, float]:
    """Return a 95 % interval of the mean of independent values, one per trial.

    It is Student's t, widened by `widen` (default: `widened`) where t alone would be too narrow; NaN for fewer than
    three values. Raises `ValueError` without values, or if one is NaN, infinite or outside the bounds.
    """
    array = np.asarray(values, dtype=float)
    if array.size == 0:
        raise ValueError("no values to make an interval of")
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).sum())
        raise ValueError(f"{bad} of {array.size} values are NaN or infinite: drop them, and say so")
    bottom, top = bounds
    if array.min() < bottom - 1e-9 or array.max() > top + 1e-9:
        raise ValueError(f"such a mean lies in [{bottom:g}, {top:g}], got {array.min():.4g} to {array.max():.4g}")
    if array.size < MIN_VALUES:
        return math.nan, math.nan
    half_width = 0.0 if np.ptp(array) == 0 else student(array.size) * float(array.std(ddof=1)) / math.sqrt(array.size)
    mean_and_ends = float(array.mean()), array.mean() - half_width, array.mean() + half_width, array.size
    return widen(*mean_and_ends) if widen else widened(*mean_and_ends, bounds)


def widened(mean: float, low: float, high: float, n: int, bounds: tuple[float, float]) -> tuple[float, float]:
    """Widen an interval of a mean over n trials to allow for unseen rare values, and clip it to the range.

    Trials that are all equal, or nearly all at an end of the range, do not show rare values. If they are equal, or the
    mean is less than one trial away from an end, a share z² / (n + z²) of the trials may have been at either end: for n
    successes of n that is Wilson's interval. Equal values without bounds have no interval, or a point from ten on.
    """
    equal = high - low <= 1e-12 * max(1.0, abs(mean))
    bottom, top = bounds
    if math.isinf(top):
        return (math.nan, math.nan) if equal and n < MIN_EQUAL_VALUES else (low, high)
    if equal or n * min(mean - bottom, top - mean) / (top - bottom) < 1:
        unseen_share = Z**2 / (n + Z**2)
        low, high = min(low, mean - unseen_share * (mean - bottom)), max(high, mean + unseen_share * (top - mean))
    return max(bottom, float(low)), min(top, float(high))


@cache
def student(n: int) -> float:
    """Return Student's t of a 95 % interval for the mean of n values."""
    from scipy import special  # a third of a second to import

    return float(special.stdtrit(n - 1, 0.975))
