"""Labelled images, texts or rows, and their class-stratified division."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Images:
    """Labelled images, texts as tokens, or rows of one data set; raises `ValueError` for other shapes or types."""

    x: Tensor
    """Pixels in [0, 1], float32 [N, C, H, W], which the model normalises; non-negative tokens, int64 [N, L]; or finite
    rows of a table, float32 [N, D]."""
    y: Tensor
    """Labels in [0, n_classes), int64 [N]."""
    classes: tuple[str, ...] = ()
    """Names of the classes, in the order of the labels; by default numbers up to the largest label."""
    name: str = "given"
    """Name of the data set, as for `fedleak.data.load`."""
    split: str = "given"
    subset: bool = False
    """Whether this is only a part of the official set."""
    source: str = "given by the user"
    """Origin of the pixels, in one line."""
    licence: str = "the user's"
    """The data set's licence or terms, in one line."""

    def __post_init__(self) -> None:
        if (self.x.ndim, self.x.dtype) not in ((4, torch.float32), (2, torch.float32), (2, torch.int64)):
            raise ValueError(
                f"{self.name}: x must be pixels, float32 [N, C, H, W], tokens, int64 [N, L], or rows, float32 [N, D], "
                f"not {self.x.dtype} {list(self.x.shape)}"
            )
        if self.y.ndim != 1 or self.y.dtype != torch.int64:
            raise ValueError(f"{self.name}: y must be int64 [N], not {self.y.dtype} {list(self.y.shape)}")
        if len(self.x) != len(self.y):
            raise ValueError(f"{self.name}: {len(self.x)} images but {len(self.y)} labels")
        if len(self.y) == 0:
            if not self.classes:
                raise ValueError(f"{self.name}: neither samples nor class names; expected one at least")
            return
        if not self.classes:
            object.__setattr__(self, "classes", tuple(f"class {c}" for c in range(int(self.y.max()) + 1)))
        if not self.x.is_floating_point():
            refuse_negative(self.x, self.name)
        elif self.x.ndim == 2:
            if not torch.isfinite(self.x).all():
                raise ValueError(f"{self.name}: rows must be finite")
        # NaN fails both comparisons, and is rejected, too.
        elif self.x.numel() and not (self.x.min() >= 0 and self.x.max() <= 1):
            raise ValueError(
                f"{self.name}: pixels must be in [0, 1], found [{self.x.min().item():g}, {self.x.max().item():g}]"
            )
        if self.y.min() < 0 or self.y.max() >= self.n_classes:
            raise ValueError(
                f"{self.name}: labels must be in [0, {self.n_classes}), "
                f"found [{self.y.min().item()}, {self.y.max().item()}]"
            )

    @property
    def n_classes(self) -> int:
        """The number of classes, those without an image included."""
        return len(self.classes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of one image; the length of a text; the columns of a row."""
        return tuple(self.x.shape[1:])

    @cached_property
    def digest(self) -> str:
        """The first 12 hexadecimal digits of a SHA-256 over pixels, labels and class names."""
        sha = hashlib.sha256(repr((tuple(self.x.shape), self.classes)).encode())
        for tensor in (self.x, self.y):
            sha.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).data)
        return sha.hexdigest()[:12]

    @cached_property
    def class_counts(self) -> Tensor:
        """The number of images of each class, int64 [n_classes]."""
        return torch.bincount(self.y, minlength=self.n_classes)

    @cached_property
    def class_order(self) -> Tensor:
        """The indices of all images sorted by class, int64 [N]; the sort is stable."""
        return torch.argsort(self.y, stable=True)

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        size = "x".join(map(str, self.shape))
        classes = f"{self.n_classes} classes" + (", subset" if self.subset else "")
        return f"Images({self.name}/{self.split}, {len(self)} of {size}, {classes}, {self.digest})"

    def of_class(self, label: int) -> Tensor:
        """Return the indices of the images with a label, int64, ascending; a `ValueError` outside [0, n_classes)."""
        if not 0 <= label < self.n_classes:
            raise ValueError(f"{self.name} has the labels 0 to {self.n_classes - 1}, not {label}")
        return (self.y == label).nonzero().flatten()

    def take(self, indices: Tensor | Sequence[int]) -> Self:
        """Return the images at `indices` [M], in that order, or where a mask [N] is true.

        It is a subset unless it has all images. Raises `ValueError` for other than whole numbers or a mask.
        """
        indices = torch.as_tensor(indices, device=self.y.device)
        if indices.dtype == torch.bool:
            if indices.shape != self.y.shape:
                raise ValueError(f"a mask of {len(self)} images has the shape [{len(self)}], not {list(indices.shape)}")
            indices = indices.nonzero().flatten()
        elif indices.is_floating_point() and indices.numel():
            raise ValueError(f"indices are whole numbers or a mask, not {indices.dtype}")
        indices = indices.long()
        left_out = len(indices.unique()) < len(self)
        return replace(self, x=self.x[indices], y=self.y[indices], subset=self.subset or left_out)

    def split_in_two(self, seed: int, fraction: float = 0.5) -> tuple[Self, Self]:
        """Divide the images at random into two disjoint sets, stratified by class, as for victims and attacker.

        Arguments and errors are those of `split_indices`.
        """
        first, second = self.split_indices(seed, fraction)
        return self.take(first), self.take(second)

    def split_indices(self, seed: int, fraction: float = 0.5) -> tuple[Tensor, Tensor]:
        """Return the indices of two disjoint sets that are drawn at random, stratified by class; both ascend.

        `fraction` is the first set's share, of each class to within one image. Raises `ValueError` if it is outside
        (0, 1) or leaves a set empty.
        """
        if not 0 < fraction < 1:
            raise ValueError(f"fraction must be between 0 and 1, not {fraction}")
        count = round(len(self) * fraction)
        if not 0 < count < len(self):
            raise ValueError(f"cannot split {len(self)} images in two with fraction {fraction}")
        first = stratified_choice(self.y.cpu().numpy(), count, seed)
        second = np.setdiff1d(np.arange(len(self)), first)
        return torch.from_numpy(first), torch.from_numpy(second)

    def to(self, device: str | torch.device) -> Self:
        """Return the same images on a device."""
        return replace(self, x=self.x.to(device), y=self.y.to(device))


def refuse_negative(tokens: Tensor, name: str) -> None:
    """Raise `ValueError` for negative tokens, int64 [N, L]."""
    if tokens.numel() and tokens.min() < 0:
        raise ValueError(f"{name}: tokens must not be negative, found {int(tokens.min())}: pad with a token of its own")


def stratified_choice(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Choose `count` random items, of each class its share to within one item; return indices into `labels` [N].

    The items are sorted by class, with classes and items in random order, and `count` of them are chosen at even
    distances. The indices are ascending. Raises `ValueError` for more than N items.
    """
    total = len(labels)
    if not 0 <= count <= total:
        raise ValueError(f"cannot choose {count} of {total} items")
    if total == 0:
        return np.empty(0, dtype=np.int64)
    rng = np.random.default_rng(seed)
    classes, dense = np.unique(labels, return_inverse=True)
    class_position = rng.permutation(len(classes))[dense]
    lined_up = np.lexsort((rng.random(total), class_position))
    # Integer arithmetic, for exactly `count` picks: the steps of floor((i * count + phase) / total).
    steps = (np.arange(total + 1) * count + rng.integers(total)) // total
    return np.sort(lined_up[np.diff(steps) == 1])
