"""Samples to audit on: the user's, of any shape and range, or synthetic ones."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedleak.data import Images
from fedleak.data.embedded import synthetic
from fedleak.data.images import refuse_negative

SYNTHETIC, PER_CLASS, FEWEST_PER_CLASS = 2000, 40, 2
"""Synthetic samples, or this many per class if that is more; the fewest per class, one for clients and adversary each,
if memory does not suffice."""
FAVOURED_BYTES, MAX_BYTES = 2**30, 2**32
"""Memory that synthetic samples take at most if there are more than the fewest, and at most."""


@dataclass(frozen=True, eq=False, repr=False)
class Samples(Images):
    """Labelled samples ``[N, ...]`` of any shape and range, or tokens ``[N, L]``: `Images` without rules for pixels."""

    def __post_init__(self) -> None:
        if self.x.dim() < 2 or len(self.x) != len(self.y) or self.y.dim() != 1 or len(self.y) == 0:
            raise ValueError(f"data are x [N, ...] and y [N], got {list(self.x.shape)} and {list(self.y.shape)}")
        tokens = self.x.dtype == torch.int64 and self.x.dim() == 2
        if not (tokens or self.x.is_floating_point()) or self.y.is_floating_point():
            raise ValueError(
                "data are x of floats, or of tokens (int64 [N, L]), and y of whole numbers, "
                f"got {self.x.dtype} {list(self.x.shape)} and {self.y.dtype}"
            )
        if tokens:
            refuse_negative(self.x, "data")
        if not torch.isfinite(self.x).all():
            raise ValueError("the data's x hold NaN or infinite entries")
        if self.y.min() < 0 or self.y.max() >= self.n_classes:
            raise ValueError(
                f"the data's labels are {int(self.y.min())} to {int(self.y.max())}, but the model has the classes "
                f"0 to {self.n_classes - 1}"
            )


def samples(
    data: Images | tuple[Tensor, Tensor] | None, shape: tuple[int, ...], n_classes: int, seed: int, words: int = 0
) -> Samples:
    """Return the data as `Samples` of the model's classes, on the CPU; synthetic ones where there are none.

    Synthetic samples of a model that knows `words` tokens are random texts.
    """
    names = tuple(f"class {c}" for c in range(n_classes))
    about: tuple[Any, ...] = ()
    if isinstance(data, Images):
        x, y, names = data.x, data.y, (data.classes + names[data.n_classes :])[:n_classes]
        about = (data.name, data.split, data.subset, data.source, data.licence)
    elif data is not None:
        x, y = data
    else:
        about = ("synthetic", "train", False, "made by fedleak", "none")
        count = synthetic_count(shape, n_classes, 8 if words else 4)
        if words:
            x = torch.randint(words, (count, *shape), generator=torch.Generator().manual_seed(seed))
            y = torch.arange(count) % n_classes
        else:
            picture = (*[1] * (3 - len(shape)), *shape) if len(shape) <= 3 else (1, 1, math.prod(shape))
            x, y, names = synthetic("train", picture, n_classes, count, seed)  # type: ignore[arg-type]
            x = x.view(count, *shape)
    labelled = Samples(
        x.detach().cpu(), y.detach().cpu() if y.is_floating_point() else y.detach().cpu().long(), names, *about
    )
    if labelled.shape != shape:
        raise ValueError(f"the data are of shape {labelled.shape}, the model's inputs of shape {shape}")
    return labelled


def synthetic_count(shape: tuple[int, ...], n_classes: int, bytes_per_entry: int) -> int:
    """Return the number of synthetic samples; raise `ValueError` if the fewest take more memory than `MAX_BYTES`."""
    size, fewest = math.prod(shape) * bytes_per_entry, FEWEST_PER_CLASS * n_classes
    if fewest * size > MAX_BYTES:
        raise ValueError(
            f"synthetic samples of {n_classes:,} classes and of shape {tuple(shape)} would take "
            f"{fewest * size / 2**30:,.1f} GiB, more than {MAX_BYTES / 2**30:g}: pass data, or smaller inputs by shape"
        )
    return min(max(SYNTHETIC, PER_CLASS * n_classes), max(FAVOURED_BYTES // size, fewest))


def divide(pool: Samples, per_class: int, seed: int) -> tuple[Samples, Samples]:
    """Divide into the clients' half and the adversary's, with at most `per_class` samples per class."""
    if len(pool) < 2:
        raise ValueError("one sample cannot be divided between clients and adversary: give more data")
    clients, other = pool.split_in_two(seed)
    order = torch.randperm(len(other), generator=torch.Generator().manual_seed(seed))
    chosen = [order[other.y[order] == c][:per_class] for c in range(other.n_classes)]
    return clients, other.take(torch.cat(chosen))
