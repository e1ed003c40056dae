"""The kind of a column of numbers, which an experiment declares; it is never guessed from the values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fedleak import intervals
from fedleak.intervals import SHARE, UNBOUNDED, Z


@dataclass(frozen=True)
class Kind:
    """The kind of a column of values, one value per trial.

    Parameters
    ----------
    name
        ``"rate"``: a share of labels that are right or wrong one by one. ``"mean"``: any other value in [0, 1], such as
        a trial that succeeds or fails as a whole. ``"difference"`` of two of these, in [-1, 1]. ``"number"``: without
        bounds.
    labels
        How many labels a trial has at least: numbers, names of the settings that say so, or a table by setting and
        value; their product. They say how labels of a trial hang together, and no interval depends on them.
    reference
        Of a difference: the cells that the others are compared with, whose own difference is 0 by construction.
    """

    name: Literal["rate", "mean", "difference", "number"]
    labels: Sequence[Any] = ()
    reference: Mapping[str, Any] = field(default_factory=dict)

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest value that is possible."""
        return {"difference": (-1.0, 1.0), "number": UNBOUNDED}.get(self.name, SHARE)

    @property
    def written(self) -> dict[str, Any]:
        """Arguments of this class, as a record's provenance has them."""
        return {k: v for k, v in vars(self).items() if v}

    def is_reference(self, cell: Mapping[str, Any]) -> bool:
        """Return whether a cell is one that the others of a difference are compared with."""
        return bool(self.reference) and all(cell.get(k) == v for k, v in self.reference.items())

    def widened(self, mean: float, low: float, high: float, n: int) -> tuple[float, float]:
        """Widen an interval of a mean over n trials as `fedleak.intervals.widened` does: trials count, labels do not.

        The labels of a trial share its network, so that thousands of right ones show as many networks as there are.
        A rate keeps its interval near an end of the range where more than one trial is away from it.
        """
        if self.name == "rate" and high > low and _away(mean, low, high, n) > 1 + 1e-9:
            return max(0.0, float(low)), min(1.0, float(high))
        return intervals.widened(mean, low, high, n, self.range)


def _away(mean: float, low: float, high: float, n: int) -> float:
    """Return how many equal trials, away from the nearer end of [0, 1] with all others at it, have mean and interval.

    That is n d² / (d² + s²), for the mean's distance d from the end and the trials' standard deviation s.
    """
    spread = (high - low) / 2 / intervals.student(n) * math.sqrt(n)
    distance = min(mean, 1 - mean)
    return n * distance**2 / max(distance**2 + spread**2, 1e-300)


NUMBER, MEAN, RATE, DIFFERENCE = Kind("number"), Kind("mean"), Kind("rate"), Kind("difference")


def rate(*labels: Any) -> Kind:
    """Return the kind of a share of labels, of which a trial has as many as these numbers and settings say."""
    return Kind("rate", labels)


def difference(*labels: Any, **reference: Any) -> Kind:
    """Return the kind of a paired difference of such shares to the cells with these settings."""
    return Kind("difference", labels, reference)


def interval(values: Sequence[float] | np.ndarray, kind: Kind = MEAN) -> tuple[float, float]:
    """Return a 95 % interval of the mean of independent values of a kind, one value per trial.

    NaN for fewer than three; errors as for `fedleak.intervals.interval`.
    """
    return intervals.interval(values, kind.range, kind.widened)


def stretch(n: int) -> float:
    """Return the factor by which Student's t widens the percentiles of a bootstrap over n values."""
    return intervals.student(n) / Z * math.sqrt(n / (n - 1))
