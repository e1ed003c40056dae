"""Readers of plain files in a folder: MNIST's idx files and the packed `.npz` archives. No pickles."""

import gzip
import hashlib
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from fedleak.data.catalogue import DIGITS, GENDER, HAIR
from fedleak.data.embedded import split_pool
from fedleak.data.raw import Encoded, Raw, centre_square

MNIST_FOLDERS = ("MNIST/raw", "mnist", "mnist/raw")
MNIST_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
"""Of the uncompressed files: the same whoever compressed them."""

ARCHIVES = {
    "svhn": "svhn.npz",
    "cifar10": "cifar10.npz",
    "cifar100": "cifar100.npz",
    "cifar10-jpeg": "cifar10_jpeg.npz",
    "celeba-hair": "celeba.npz",
    "celeba-gender": "celeba.npz",
    "tiny-imagenet": "tiny_imagenet.npz",
    "imagenet": "imagenet_sample224.npz",
}


def read_mnist(root: Path, split: str) -> Raw | None:
    """Read a split of MNIST from its idx files, compressed or not; None if they are not there.

    It is marked a subset if they are not the canonical files (by their MD5). A damaged file is a `ValueError`.
    """
    prefix = "train" if split == "train" else "t10k"
    stems = (f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte")
    for folder in MNIST_FOLDERS:
        places = [(root / folder / stem, root / folder / f"{stem}.gz") for stem in stems]
        found = [path for place in places if (path := next(filter(Path.is_file, place), None))]
        if len(found) == 2:
            break
    else:
        return None
    (pixels, pixels_canonical), (labels, labels_canonical) = _read_idx(found[0], 3), _read_idx(found[1], 1)
    if len(pixels) != len(labels):
        raise ValueError(f"{found[0]} holds {len(pixels)} images, but {found[1].name} {len(labels)} labels")
    if len(labels) and labels.max() > 9:
        raise ValueError(f"{found[1]} is damaged: it holds a label {labels.max()}, above 9")
    canonical = pixels_canonical and labels_canonical
    source = "MNIST's idx files" + ("" if canonical else ", not the canonical ones")
    return Raw(pixels[..., None], labels.astype(np.int64), DIGITS, subset=not canonical, source=source)


def _read_idx(path: Path, rank: int) -> tuple[np.ndarray, bool]:
    """Read an idx file of bytes; also say whether it is the canonical one."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as reason:
        raise ValueError(f"{path} is damaged: {reason}") from reason
    header = 4 + 4 * rank
    # Two zero bytes, 8 for unsigned bytes, the rank; then the length of each axis, big-endian.
    if len(content) < header or content[:4] != bytes([0, 0, 8, rank]):
        raise ValueError(f"{path} is damaged: not an idx file of bytes with {rank} axes")
    shape = np.frombuffer(content, dtype=">u4", count=rank, offset=4).astype(int)
    if len(content) != header + shape.prod():
        raise ValueError(f"{path} is damaged: {len(content)} bytes instead of the {header + shape.prod()} it announces")
    canonical = hashlib.md5(content).hexdigest() == MNIST_MD5[path.name.removesuffix(".gz")]
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape), canonical


def read_archive(root: Path, name: str, split: str, crop: bool = True) -> Raw | None:
    """Read a split ("train" or "test") of a data set from its `.npz` archive; None if there is no archive.

    It is marked a subset. An archive without official splits is split here, and its source says so. If it is damaged
    or lacks a field, a `ValueError` names it.
    """
    path = root / ARCHIVES[name]
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as archive:
            fields = {key: archive[key] for key in archive.files}
        raw = _from_fields(fields, path, name, split, crop)
        if len(raw.labels) and not 0 <= raw.labels.min() <= raw.labels.max() < len(raw.classes):
            raise ValueError(f"a label is not one of its {len(raw.classes)} classes")
        return raw
    except (OSError, EOFError, LookupError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as reason:
        raise ValueError(f"{path} is damaged or not the expected archive: {reason}") from reason


def _from_fields(fields: dict[str, np.ndarray], path: Path, name: str, split: str, crop: bool) -> Raw:
    key, classes = {"celeba-hair": ("hair", HAIR), "celeba-gender": ("male", GENDER)}.get(name, ("labels", None))
    classes = classes or tuple(json.loads(str(fields["classes"])))
    if "train_images" in fields:
        part = split if "test_images" in fields else "train"
        labels = fields[f"{part}_labels"]
        pixels: Any = fields[f"{part}_images"]
        if pixels.dtype != np.uint8 or pixels.ndim != 4:
            raise ValueError(f"{part} images {pixels.dtype} {pixels.shape}")
    else:
        offsets, labels = fields["offsets"], fields[key]
        if (np.diff(offsets) < 0).any() or offsets[-1] != len(fields["blob"]):
            raise ValueError("its offsets do not fit its images")
        square = centre_square if name.startswith("celeba") and crop else None
        pixels = Encoded(np.split(fields["blob"], offsets[1:-1]), square, archive=path)
    if len(labels) != len(pixels):
        raise ValueError(f"{len(labels)} labels for {len(pixels)} images")
    raw = Raw(pixels, labels.astype(np.int64), classes, subset=True, source=f"{path.name}, a subset")
    if "test_images" in fields:
        return raw
    if "split" in fields:
        return raw.rows(np.flatnonzero(fields["split"] == (0 if split == "train" else 1)))
    return split_pool(raw.rows(np.flatnonzero(raw.labels >= 0)) if key == "hair" else raw, split)
