"""Undecoded images: labels in memory, pixels decoded only when they are asked for."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset
from torchvision.transforms import v2

CHUNK = 256
"""Images decoded and resized at a time, which bounds what is held at full size."""


@dataclass(frozen=True)
class Raw:
    """Labelled images before decoding, as one reader found them.

    `pixels` gives uint8 [H, W, C] images of one size, by index: an array, `Encoded`, or a part of one. `source` says
    in one line where they came from; `subset` whether they are less than the official split.
    """

    pixels: Any
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
                chunk = v2.functional.resize(chunk, list(size), antialias=True)
            chunks.append(chunk.contiguous())
        return torch.cat(chunks)

    def rows(self, indices: np.ndarray, note: str = "") -> "Raw":
        """Return the images at `indices`, with `note` added to their source."""
        picked: Any = Subset(self.pixels, indices)  # type: ignore[arg-type]
        return replace(self, pixels=picked, labels=self.labels[indices], source=self.source + note)


def joined(first: Raw, second: Raw) -> Raw:
    """Return the images of two splits as one."""
    return replace(
        first,
        pixels=ConcatDataset([first.pixels, second.pixels]),
        labels=np.concatenate([first.labels, second.labels]),
        subset=first.subset or second.subset,
        source=first.source if first.source == second.source else f"{first.source}; {second.source}",
    )


@dataclass(frozen=True)
class Encoded:
    """Image files, or their bytes in an archive, each decoded by Pillow to RGB and brought to one size by `prepare`."""

    files: Sequence[Any]
    prepare: Callable[[Image.Image], Image.Image] | None = None
    archive: Path | None = None

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int, /) -> np.ndarray:
        file = self.files[index]
        try:
            with Image.open(io.BytesIO(file.tobytes()) if self.archive else file) as image:
                decoded = image.convert("RGB")
        except OSError as reason:
            raise ValueError(f"{self.archive or file} is damaged or missing: image {index}: {reason}") from reason
        return np.asarray(self.prepare(decoded) if self.prepare else decoded)


def centre_square(image: Image.Image) -> Image.Image:
    """Cut the largest centred square out of an image."""
    return v2.functional.center_crop(image, [min(image.size)])


imagenet_crop = v2.Compose([v2.Resize(256, interpolation=v2.InterpolationMode.BICUBIC), v2.CenterCrop(224)])
"""Brings an ImageNet photograph to 224x224 as its test protocol does."""
