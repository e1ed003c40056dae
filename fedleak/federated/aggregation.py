"""Sums of clients' updates: in the clear, or by the secure aggregation of `fedleak.federated.protocol`."""

import math
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedleak.federated.update import Update

if TYPE_CHECKING:
    from fedleak.federated.protocol import Transcript


@dataclass(frozen=True)
class FixedPoint:
    """Encoding of real numbers in [-bound, bound] as signed integers of `bits` bits, stored modulo 2^64.

    Raises `ValueError` for fewer than 2 or more than 53 bits (a double's), or a bound that is not a positive number.
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
        """Distance of neighbouring numbers; a single value's error is at most half of it."""
        return self.bound / (2 ** (self.bits - 1) - 1)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Encode real numbers of any shape as integers, uint64.

        Raises `ValueError` if a value is NaN, infinite or outside the bound.
        """
        if not np.isfinite(values).all():
            raise ValueError("NaN or infinite values cannot be encoded")
        if values.size and (largest := np.abs(values).max()) > self.bound:
            raise ValueError(f"a value of size {largest:.3g} exceeds the encoding's bound of {self.bound:g}: raise it")
        return np.rint(values.astype(np.float64) / self.step).astype(np.int64).view(np.uint64)

    def decode(self, integers: np.ndarray) -> np.ndarray:
        """Decode integers, or sums of them, to real numbers, float64."""
        return integers.view(np.int64) * self.step


def plain_sum(updates: Sequence[Update], encoding: FixedPoint | None = None) -> Update:
    """Sum updates in the clear, which is fast and gives the sum of secure aggregation.

    With an encoding, updates are rounded as in the protocol, and the result is bitwise the same, float64. Without one,
    half precision is summed in single precision. Raises `ValueError` if the updates are not gradients of one step with
    the same parameters.
    """
    if encoding is not None:
        return _decoded(updates, np.sum(_encoded(updates, encoding), axis=0), encoding)
    _check(updates)
    types = {name: torch.promote_types(t.dtype, torch.float32) for name, t in updates[0].tensors.items()}
    tensors = {name: sum(u.tensors[name].to(wide) for u in updates) for name, wide in types.items()}
    return Update(tensors, "gradient", sum(u.samples for u in updates))  # type: ignore[arg-type]


def secure_sum(
    updates: Sequence[Update],
    encoding: FixedPoint,
    *,
    threshold: int | None = None,
    dropped: Collection[int] = (),
    entropy: Callable[[int], bytes] = os.urandom,
) -> "tuple[Update, Transcript]":
    """Sum updates by the protocol; return the survivors' sum (float64, rounded by the encoding) and the transcript.

    Raises `ValueError` if the updates do not fit together, the sum does not fit in 64 bits, or too few clients survive.

    Parameters
    ----------
    updates
        The clients' gradients of one step, of the same parameters; client numbers are 1 … U in this order.
    encoding
        Encoding of real numbers as integers.
    threshold, dropped
        Number of clients that are needed to remove the masks, by default two thirds, rounded up; numbers of the clients
        that drop out after sharing their keys.
    entropy
        Source of the clients' secrets, ``entropy(n)`` being n random bytes; the sum does not depend on it.
    """
    from fedleak.federated.protocol import Party, run_protocol  # its cryptography is no part of the attacks

    vectors = _encoded(updates, encoding)
    if stranger := set(dropped) - set(range(1, len(updates) + 1)):
        raise ValueError(f"clients are numbered 1 to {len(updates)}; there is no {sorted(stranger)} to drop out")
    clients = [Party(u, vector, entropy) for u, vector in enumerate(vectors, 1)]
    done = run_protocol(clients, threshold or max(2, -(-2 * len(clients) // 3)), dropped)
    remaining = [update for u, update in enumerate(updates, 1) if u not in set(dropped)]
    return _decoded(remaining, done.total, encoding), done


def _check(updates: Sequence[Update]) -> None:
    if len(updates) < 2:
        raise ValueError(f"aggregation hides a client among others: at least two, got {len(updates)}")
    if any(update.kind != "gradient" or update.steps != 1 for update in updates):
        raise ValueError("aggregated here are gradients of one step (FedSGD), not deltas or several steps")
    shapes = [{name: t.shape for name, t in update.tensors.items()} for update in updates]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError("the updates are of different parameters or shapes")


def _encoded(updates: Sequence[Update], encoding: FixedPoint) -> list[np.ndarray]:
    _check(updates)
    if len(updates) * 2 ** (encoding.bits - 1) > 2**63:
        raise ValueError(
            f"the sum of {len(updates)} numbers of {encoding.bits} bits does not fit in 64 bits: use fewer bits"
        )
    flat = (torch.cat([u.tensors[n].detach().flatten() for n in updates[0].tensors]) for u in updates)
    return [encoding.encode(vector.cpu().numpy()) for vector in flat]


def _decoded(updates: Sequence[Update], total: np.ndarray, encoding: FixedPoint) -> Update:
    like = updates[0].tensors
    pieces = torch.from_numpy(encoding.decode(total)).split([t.numel() for t in like.values()])
    tensors = {name: piece.view(t.shape).to(t.device) for (name, t), piece in zip(like.items(), pieces, strict=True)}
    return Update(tensors, "gradient", sum(u.samples for u in updates))
