"""Intervals of means."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

LEAST = 3
"""Independent values that a mean needs to have an interval."""
POINT = 10
"""Equal values of so many are a point; below that, their interval is Wilson's for a rate, and else unknown."""


def interval(values: Sequence[float] | np.ndarray, *, rate: bool = True) -> tuple[float, float]:
    """Return a 95 % interval of the mean of independent values.

    Student's t: the percentiles of a bootstrap would hold the mean of three normal values 75 times in a hundred, of
    eight 89 times. Where all values are equal it would claim certainty: ten or more of them are a point; of fewer, a
    `rate` in [0, 1] has Wilson's interval, and anything else has none (NaN). Neither have two values or fewer.
    """
    v = np.asarray(values, dtype=float)
    if v.size == 0:
        raise ValueError("no values to make an interval of")
    if not np.isfinite(v).all():
        bad = int((~np.isfinite(v)).sum())
        raise ValueError(f"{bad} of {v.size} values are NaN or infinite: drop them, and say so")
    if rate and (v.min() < 0 or v.max() > 1 + 1e-12):
        raise ValueError(f"a rate lies in [0, 1], got {v.min():.4g} to {v.max():.4g}")
    if v.size < LEAST:
        return math.nan, math.nan
    if np.ptp(v) == 0:
        if v.size >= POINT:
            return float(v[0]), float(v[0])
        if not rate:
            return math.nan, math.nan
        z, n, p = stats.norm.ppf(0.975), v.size, v.mean()
        centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
        return max(0.0, centre - half), min(1.0, centre + half)
    half = stats.t.ppf(0.975, v.size - 1) * stats.sem(v)
    low, high = float(v.mean() - half), float(v.mean() + half)
    return (max(0.0, low), min(1.0, high)) if rate else (low, high)


def stretch(n: int) -> float:
    """Return by how much the percentiles of a bootstrap over n values are too near: what Student's t adds to them."""
    return float(stats.t.ppf(0.975, n - 1) / stats.norm.ppf(0.975) * math.sqrt(n / (n - 1)))
