"""Undecoded images: labels in memory, pixels decoded only when they are asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2 import functional

CHUNK = 256
"""Images decoded and resized at a time, which bounds what is held at full size."""


class Pixels(Protocol):
    """What a reader hands over: uint8 [H, W, C] images of one size, by index; an array [N, H, W, C] will do."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> np.ndarray: ...


@dataclass(frozen=True)
class Raw:
    """Labelled images before decoding, as one reader found them.

    `source` says in one line where they came from; `subset` whether they are less than the official split.
    """

    pixels: Pixels
    labels: np.ndarray
    classes: tuple[str, ...]
    subset: bool
    source: str

    def decoded(self, indices: np.ndarray, size: tuple[int, int] | None) -> Tensor:
        """Return the images at `indices` [M] as uint8 [M, C, H, W], resized if `size` is given.

        Resizing is bilinear with antialiasing. Decoding goes chunk by chunk.
        """
        chunks = []
        for start in range(0, len(indices), CHUNK):
            images = np.stack([self.pixels[int(index)] for index in indices[start : start + CHUNK]])
            chunk = torch.from_numpy(images).permute(0, 3, 1, 2)
            if size is not None and tuple(chunk.shape[-2:]) != size:
                chunk = functional.resize(chunk, list(size), antialias=True)
            chunks.append(chunk.contiguous())
        return torch.cat(chunks)

    def of_labels(self, labels: np.ndarray, classes: tuple[str, ...]) -> "Raw":
        """Return the same images with other labels; those with a label below 0 are left out."""
        kept = np.flatnonzero(labels >= 0)
        return replace(self, pixels=Picked(self.pixels, kept), labels=labels[kept], classes=classes)

    def rows(self, indices: np.ndarray, note: str = "") -> "Raw":
        """Return the images at `indices`, with `note` added to their source."""
        picked = Picked(self.pixels, indices)
        return replace(self, pixels=picked, labels=self.labels[indices], source=self.source + note)


def joined(first: Raw, second: Raw) -> Raw:
    """Return the images of two splits as one."""
    return replace(
        first,
        pixels=Chained(first.pixels, second.pixels),
        labels=np.concatenate([first.labels, second.labels]),
        subset=first.subset or second.subset,
        source=first.source if first.source == second.source else f"{first.source}; {second.source}",
    )


@dataclass(frozen=True)
class Picked:
    """Some of other pixels, by index."""

    pixels: Pixels
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int, /) -> np.ndarray:
        return self.pixels[int(self.indices[index])]


@dataclass(frozen=True)
class Chained:
    """The pixels of two splits, one after the other."""

    first: Pixels
    second: Pixels

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def __getitem__(self, index: int, /) -> np.ndarray:
        return self.first[index] if index < len(self.first) else self.second[index - len(self.first)]


@dataclass(frozen=True)
class Files:
    """Image files of a folder, each decoded by Pillow to RGB and brought to one size by `prepare`."""

    paths: Sequence[Path]
    prepare: Callable[[Image.Image], Image.Image] = lambda image: image

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int, /) -> np.ndarray:
        path = self.paths[index]
        try:
            with Image.open(path) as image:
                return np.asarray(self.prepare(image.convert("RGB")))
        except OSError as reason:
            raise ValueError(f"{path} is missing or damaged: {reason}") from reason


def centre_square(image: Image.Image) -> Image.Image:
    """Cut the largest centred square out of an image."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side))


def imagenet_crop(image: Image.Image) -> Image.Image:
    """Bring an ImageNet photograph to 224x224 as its test protocol does: shorter side 256, centre crop."""
    scale = 256 / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
    left, top = (image.width - 224) // 2, (image.height - 224) // 2
    return image.crop((left, top, left + 224, top + 224))
