"""`load`: from the name of a data set to its images, wherever they are; and `check`, what is there."""

import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from fedleak.data import embedded, folder, vision
from fedleak.data.catalogue import SPLITS, Entry, catalogue, checked, entry
from fedleak.data.images import Images, stratified_choice
from fedleak.data.raw import Raw, joined
from fedleak.errors import DataNotFound, MissingExtra

ENVIRONMENT = "FEDLEAK_DATA"
LIMIT_SEED = 0
"""Fixes which images a `limit` keeps."""


def load(
    name: str,
    split: str = "train",
    *,
    size: int | tuple[int, int] | None = None,
    root: str | os.PathLike[str] | None = None,
    download: bool = False,
    limit: int | None = None,
    **options: Any,
) -> Images:
    """Load a data set.

    Parameters
    ----------
    name : str
        One of `catalogue()`; "celeba" is "celeba-hair".
    split : str
        "train", "test", or "all" for both (`synthetic` has no "all").
    size : int or (int, int), optional
        Height and width in pixels to resize to, bilinear with antialiasing; of `photos`, what to cut.
    root : path, optional
        The folder to read from, instead of the one that the environment's `FEDLEAK_DATA` names: first
        torchvision's layout, then the `.npz` archives.
    download : bool
        Download the set into that folder if it is not there.
    limit : int, optional
        At most so many images, chosen with a fixed seed, of each class its share to within one. Only these
        are decoded: on the large sets, give a limit.
    **options
        `crop=False` (CelebA): faces as they are, 218 high and 178 wide, instead of the central 178x178.
        `shape`, `n_classes`, `count`, `seed` (synthetic): see `fedleak.data.embedded.synthetic`.

    Returns
    -------
    Images

    Raises
    ------
    ValueError
        If a name, split or option is unknown, a size or limit is below 1, or a file is damaged.
    DataNotFound
        If the set is not there, or could not be downloaded.
    """
    known = entry(name)
    checked(split, SPLITS[:2] if known.name == "synthetic" else SPLITS, "split")
    if unknown := options.keys() - set(known.options):
        accepted = f"takes {', '.join(known.options)}" if known.options else "takes no options of its own"
        raise ValueError(f"{known.name} {accepted}, not {', '.join(sorted(unknown))}")
    resize = (size, size) if isinstance(size, int) else size
    if resize is not None and min(resize) < 1:
        raise ValueError(f"size must be at least 1 pixel, not {size}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1 image, not {limit}")

    if known.name == "synthetic":
        if resize is not None:
            options["shape"] = (options.get("shape", known.shape)[0], *resize)
        x, y, classes = embedded.synthetic(split, **options)
        made = "synthetic: a smooth pattern a class, plus noise"
        whole = Images(x, y, classes, known.name, split, subset=False, source=made, licence=known.licence)
        return whole.take(torch.from_numpy(_within(y.numpy(), limit)))
    raw = _raw(known, split, resize, folder_of(root), download, options)
    indices = _within(raw.labels, limit)
    if len(indices) == 0:
        raise ValueError(f"{known.name}/{split} ({raw.source}) holds no image")
    return Images(
        x=raw.decoded(indices, resize).float().div_(255),
        y=torch.from_numpy(raw.labels[indices]).long(),
        classes=raw.classes,
        name=known.name,
        split=split,
        subset=raw.subset or len(indices) < len(raw.labels),
        source=raw.source,
        licence=known.licence,
    )


def _within(labels: np.ndarray, limit: int | None) -> np.ndarray:
    count = len(labels) if limit is None else min(limit, len(labels))
    return stratified_choice(labels, count, LIMIT_SEED)


def folder_of(root: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder to look in: the given one, or the one that the environment names, if any."""
    chosen = root if root is not None else os.environ.get(ENVIRONMENT)
    return Path(chosen).expanduser() if chosen else None


def _raw(
    known: Entry, split: str, size: tuple[int, int] | None, root: Path | None, download: bool, options: dict[str, Any]
) -> Raw:
    """Return a split as it is found, after a download where it is not there and that is wanted."""
    if split == "all":
        train, test = (_raw(known, part, size, root, download, options) for part in SPLITS[:2])
        return joined(train, test)
    if known.embedded:
        pool = embedded.digits() if known.name == "mnist5k" else embedded.photograph_patches(size or known.shape[1:])
        return embedded.split_pool(pool, split)
    raw = _find(known, root, split, options)
    if raw is None and download and root is not None:
        vision.download(known.name, root)
        raw = _find(known, root, split, options)
    if raw is None:
        raise DataNotFound(_advice(known, root, split))
    return raw


def _find(known: Entry, root: Path | None, split: str, options: dict[str, Any]) -> Raw | None:
    """Look for a split in a folder: the official files first, then an archive; None if neither is there."""
    if root is None:
        return None
    if known.name == "mnist":
        return folder.read_mnist(root, split)
    for place in (root, root / known.name):
        if known.name in vision.READERS and (raw := vision.READERS[known.name](place, split, **options)):
            return raw
    return folder.read_archive(root, known.name, split, **options)


def _advice(known: Entry, root: Path | None, split: str) -> str:
    if root is None:
        looked = f"no folder to look in: {ENVIRONMENT} is not set, and no root was given"
    elif not root.is_dir():
        looked = f"the folder {root} does not exist"
    else:
        archive = folder.ARCHIVES.get(known.name)
        looked = f"looked in {root} for {vision.SOURCE}" + (f" and for {archive}" if archive else "")
    steps = [f"set {ENVIRONMENT} to (or pass root=) the folder that holds it"]
    if known.name in vision.DOWNLOADS:
        steps.insert(0, f"run `fedleak data download {known.name} --to FOLDER`")
    return (
        f"{known.name}/{split} is not here ({looked}). Do one of: {'; '.join(steps)}; "
        f"or use the embedded stand-in load({known.stand_in!r})."
    )


class Finding(NamedTuple):
    """What `check` found of one data set."""

    name: str
    state: Literal["found", "missing", "corrupt"]
    counts: dict[str, int]
    """Split to the number of its images, of those that are there."""
    subset: bool = False
    detail: str = ""
    """The source, what is wrong, or what to do."""

    @property
    def whole(self) -> bool:
        """Whether both official splits are there, complete."""
        return self.state == "found" and not self.subset and len(self.counts) == 2


def check(root: str | os.PathLike[str] | None = None, sample: int = 64) -> list[Finding]:
    """Read every data set that is there, and say what is found, missing or corrupt.

    Files with a published checksum and archives (by their CRC) are read whole; of the images, up to `sample`
    a split are decoded, evenly spaced.

    Parameters
    ----------
    root : path, optional
        The folder, instead of the one that `FEDLEAK_DATA` names.
    sample : int
        How many images of a split to decode; 0 for none.
    """
    return [examine(known, folder_of(root), sample) for known in catalogue()]


def examine(known: Entry, root: Path | None, sample: int = 64) -> Finding:
    """Read one data set, as `check` reads all."""
    counts: dict[str, int] = {}
    if known.name == "synthetic":
        return Finding(known.name, "found", counts, detail="generated when asked for")
    subset, source = False, ""
    for split in SPLITS[:2]:
        try:
            raw = _raw(known, split, None, root, False, {})
            size = len(raw.labels)
            for index in np.linspace(0, size - 1, min(sample, size)).astype(int):
                raw.pixels[int(index)]
        except DataNotFound:
            continue
        except MissingExtra as reason:
            return Finding(known.name, "missing", counts, detail=str(reason))
        except ValueError as reason:
            return Finding(known.name, "corrupt", counts, subset, str(reason))
        counts[split], subset, source = size, subset or raw.subset, raw.source
    if not counts:
        return Finding(known.name, "missing", counts, detail=f"stand-in: {known.stand_in}")
    return Finding(known.name, "found", counts, subset, source)
