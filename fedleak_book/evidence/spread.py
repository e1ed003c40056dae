"""Whether the networks behind a mean are of two kinds, so that hardly any of them gives what the mean says."""

from collections.abc import Sequence

import numpy as np

FEWEST, MOST = 10, 200
"""Numbers of networks whose distribution is looked at."""
EXPLAINED, LEAST_SHARE = 0.85, 0.2
"""Two kinds explain this share of the variance (of uniform values 0.75), and each has this share of the networks."""

Groups = tuple[float, float, float, float, int, int]


def two_kinds(values: Sequence[float] | np.ndarray) -> Groups | tuple[()]:
    """Return the ends of the lower and of the upper kind, and how many networks are of each; () where they are of one.

    The split is Otsu's: it leaves the least variance within. Networks that succeed or fail as a whole are of one kind,
    because what is printed of them is never a network's own value.
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    n = len(ordered)
    if not FEWEST <= n <= MOST or not np.isfinite(ordered).all() or set(ordered) <= {0.0, 1.0}:
        return ()
    sizes = np.arange(1, n)
    below = np.cumsum(ordered)[:-1] / sizes
    above = (ordered.sum() - np.cumsum(ordered)[:-1]) / (n - sizes)
    between = sizes * (n - sizes) / n * (above - below) ** 2
    best = int(between.argmax())
    total = ((ordered - ordered.mean()) ** 2).sum()
    if between[best] < EXPLAINED * total or min(best + 1, n - best - 1) < LEAST_SHARE * n or total < 1e-12:
        return ()
    low, high = ordered[: best + 1], ordered[best + 1 :]
    return float(low[0]), float(low[-1]), float(high[0]), float(high[-1]), len(low), len(high)


def text(groups: Groups) -> str:
    """Say how many networks are of which kind."""
    least, low, high, most, few, many = groups
    return f"two kinds of networks: {few} at {least:.3g} to {low:.3g}, {many} at {high:.3g} to {most:.3g}"
