"""The finite field of secure aggregation, and fixed-point numbers in it."""

import math
from dataclasses import dataclass

import numpy as np

PRIME = 2**61 - 1
"""Modulus: two elements' sum fits in 64 bits."""


@dataclass(frozen=True)
class FixedPoint:
    """Real numbers in [-bound, bound] as signed integers of `bits` bits, and these as elements of the field.

    Raises
    ------
    ValueError
        For fewer than 2 or more than 53 bits (a double's), or a bound that is not a positive number.
    """

    bits: int = 32
    bound: float = 16.0

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 53:
            raise ValueError(f"bits is between 2 and 53 (the precision of a double), got {self.bits}")
        if not (self.bound > 0 and math.isfinite(self.bound)):
            raise ValueError(f"bound is a positive number, got {self.bound}")

    @property
    def step(self) -> float:
        """The distance of neighbouring numbers: a single value is off by at most half of it."""
        return self.bound / (2 ** (self.bits - 1) - 1)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Return field elements, uint64, of any shape.

        Raises
        ------
        ValueError
            If a value is NaN, infinite or outside the bound: it would be cut off silently.
        """
        if not np.isfinite(values).all():
            raise ValueError("NaN or infinite values cannot be encoded")
        if values.size and (largest := np.abs(values).max()) > self.bound:
            raise ValueError(f"a value of size {largest:.3g} exceeds the encoding's bound of {self.bound:g}: raise it")
        return (np.rint(values.astype(np.float64) / self.step).astype(np.int64) % PRIME).astype(np.uint64)

    def decode(self, field: np.ndarray) -> np.ndarray:
        """Return the real numbers, float64, of field elements or of their sums."""
        signed = field.astype(np.int64)
        return np.where(signed > PRIME // 2, signed - PRIME, signed) * self.step

    def check(self, clients: int) -> None:
        """Refuse sums that the field cannot hold."""
        if clients * 2 ** (self.bits - 1) > PRIME // 2:
            raise ValueError(
                f"the sum of {clients} numbers of {self.bits} bits does not fit in 61 bits: use fewer bits"
            )


def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Add in the field."""
    return (a + b) % np.uint64(PRIME)


def subtract(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Subtract in the field."""
    return (a + (np.uint64(PRIME) - b)) % np.uint64(PRIME)
