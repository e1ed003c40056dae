"""Samples to audit on: the user's, of any shape and range, or synthetic ones."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.data import Images
from fedleak.data.embedded import synthetic
from fedleak.data.images import refuse_negative

SYNTHETIC = 2000
"""Synthetic samples, or 40 a class if that is more."""


@dataclass(frozen=True, eq=False, repr=False)
class Samples(Images):
    """Labelled samples ``[N, ...]`` of any shape and range, or tokens ``[N, L]``: `Images` without rules for pixels."""

    def __post_init__(self) -> None:
        if self.x.dim() < 2 or len(self.x) != len(self.y) or self.y.dim() != 1 or len(self.y) == 0:
            raise ValueError(f"data are x [N, ...] and y [N], got {list(self.x.shape)} and {list(self.y.shape)}")
        tokens = self.x.dtype == torch.int64 and self.x.dim() == 2
        if not (tokens or self.x.is_floating_point()) or self.y.is_floating_point() or self.y.dtype == torch.bool:
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

    Raises
    ------
    ValueError
        If the data are no such pair, of another shape than the model's inputs, or labels are out of range.
    """
    if data is None:
        count = max(SYNTHETIC, 40 * n_classes)
        about = ("synthetic", "train", False, "made by fedleak", "none")
        if words:
            texts = torch.randint(words, (count, *shape), generator=torch.Generator().manual_seed(seed))
            return Samples(texts, torch.arange(count) % n_classes, _numbered(0, n_classes), *about)
        picture = (
            shape if len(shape) == 3 else (1, *shape) if len(shape) == 2 else (1, 1, int(torch.Size(shape).numel()))
        )
        x, y, names = synthetic("train", picture, n_classes, count, seed)
        return Samples(x.view(count, *shape), y, names, *about)
    if isinstance(data, Images):
        names = (*data.classes, *_numbered(data.n_classes, n_classes))[:n_classes]
        found = (data.x, data.y, names, data.name, data.split, data.subset, data.source, data.licence)
    else:
        if not (isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(t, Tensor) for t in data)):
            raise ValueError(f"data are Images or a pair of tensors (x, y), not {type(data).__name__}")
        names = _numbered(0, n_classes)
        found = (data[0], data[1], names, "given", "given", False, "given by the user", "the user's")
    x, y, *rest = found
    given = Samples(x.detach().cpu(), y.detach().cpu().long() if not y.is_floating_point() else y, *rest)  # type: ignore[arg-type]
    if given.x.shape[1:] != torch.Size(shape):
        raise ValueError(f"the data are of shape {tuple(given.x.shape[1:])}, the model's inputs of shape {shape}")
    return given


def _numbered(first: int, end: int) -> tuple[str, ...]:
    return tuple(f"class {c}" for c in range(first, end))


def divide(pool: Samples, each: int, seed: int) -> tuple[Samples, Samples]:
    """Divide into the clients' half and the adversary's, of which at most `each` a class are kept.

    Raises
    ------
    ValueError
        If there are fewer than two samples.
    """
    if len(pool) < 2:
        raise ValueError("one sample cannot be divided between clients and adversary: give more data")
    clients, other = pool.split_in_two(seed)
    order = torch.randperm(len(other), generator=torch.Generator().manual_seed(seed))
    kept = [order[other.y[order] == c][:each] for c in range(other.n_classes)]
    aux = other.take(torch.cat(kept))
    assert isinstance(clients, Samples)
    assert isinstance(aux, Samples)
    return clients, aux
