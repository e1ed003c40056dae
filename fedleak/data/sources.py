"""Load data sets by name (`load`), check which are available (`check`), and download them."""

import operator
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from fedleak.data import embedded, readers
from fedleak.data.catalogue import SPLITS, Entry, catalogue, checked, entry
from fedleak.data.images import Images, stratified_choice
from fedleak.data.readers import Raw, joined
from fedleak.errors import DataNotFound, MissingExtra

ENVIRONMENT = "FEDLEAK_DATA"
EMBEDDED: dict[str, Callable[[tuple[int, ...]], Raw]] = {
    "mnist5k": lambda size: embedded.digits(),
    "photos": embedded.photograph_patches,
    "cldr": lambda size: embedded.names(*entry("cldr").shape),
    "wine": lambda size: embedded.rows("wine"),
    "breast-cancer": lambda size: embedded.rows("breast-cancer"),
}
"""Functions of the patches' height and width that return an embedded data set."""
LIMIT_SEED = 0
"""Random seed of the images that a `limit` selects."""


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

    Raises `ValueError` if a name, split or option is unknown, a size or limit is below 1, or a file is damaged;
    `DataNotFound` if the set is not there, or could not be downloaded.

    Parameters
    ----------
    name, split
        One of `catalogue()` ("celeba" is "celeba-hair"); "train", "test", or "all" (`synthetic` has no "all").
    size
        Height and width in pixels to resize to, bilinear with antialiasing; of `photos`, what to cut.
    root
        The folder to read from, and to download to, instead of the one that the environment's `FEDLEAK_DATA` names:
        first torchvision's layout, then the `.npz` archives.
    limit
        Largest number of images, chosen with a fixed seed in proportion to the classes. Only these
        are decoded: give a limit on the large sets.
    **options
        `crop=False` (CelebA): faces as they are, 218 high and 178 wide, instead of the central 178x178.
        `shape`, `n_classes`, `count`, `seed` (synthetic): see `fedleak.data.embedded.synthetic`.
    """
    dataset = entry(name)
    checked(split, SPLITS[:2] if dataset.name == "synthetic" else SPLITS, "split")
    if unknown := options.keys() - set(dataset.options):
        accepted = f"takes {', '.join(dataset.options)}" if dataset.options else "takes no options of its own"
        raise ValueError(f"{dataset.name} {accepted}, not {', '.join(sorted(unknown))}")
    resize = None
    if size is not None:
        sides = tuple(size) if isinstance(size, Sequence) else (size, size)
        if len(sides) != 2 or any(operator.index(side) < 1 for side in sides):
            raise ValueError(f"size must be at least 1 pixel, or a height and a width, not {size}")
        resize = operator.index(sides[0]), operator.index(sides[1])
    if resize is not None and len(dataset.shape) < 3:
        raise ValueError(f"{dataset.name} has no images: size is for those")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1 image, not {limit}")

    if dataset.name == "synthetic":
        if resize is not None:
            options["shape"] = (options.get("shape", dataset.shape)[0], *resize)
        x, y, classes = embedded.synthetic(split, **options)
        indices = _within(y.numpy(), limit)
        x, labels, source, subset = x[indices], y.numpy(), "synthetic: a smooth pattern a class, plus noise", False
    else:
        raw = _raw(dataset, split, resize, folder_of(root), download, options)
        classes, labels, source, subset = raw.classes, raw.labels, raw.source, raw.subset
        indices = _within(labels, limit)
        if len(indices) == 0:
            raise ValueError(f"{dataset.name}/{split} ({source}) holds no image")
        x = raw.decoded(indices, resize)
        x = x.float().div_(255) if x.dtype == torch.uint8 else x
    y, subset = torch.from_numpy(labels[indices]).long(), subset or len(indices) < len(labels)
    return Images(x, y, classes, dataset.name, split, subset, source, dataset.licence)


def _within(labels: np.ndarray, limit: int | None) -> np.ndarray:
    return stratified_choice(labels, len(labels) if limit is None else min(limit, len(labels)), LIMIT_SEED)


def folder_of(root: str | os.PathLike[str] | None) -> Path | None:
    """Return `root`, or the folder that the environment names, or None."""
    chosen = root if root is not None else os.environ.get(ENVIRONMENT)
    return Path(chosen).expanduser() if chosen else None


def _raw(
    dataset: Entry, split: str, size: tuple[int, int] | None, root: Path | None, download: bool, options: dict[str, Any]
) -> Raw:
    """Read a split; with `download` it is downloaded if it is missing."""
    if split == "all":
        return joined(*(_raw(dataset, part, size, root, download, options) for part in SPLITS[:2]))
    if dataset.embedded:
        return EMBEDDED[dataset.name](size or dataset.shape[1:]).part(split)
    looked = f"no folder to look in: {ENVIRONMENT} is not set, and no root was given"
    if root is not None:
        if raw := readers.read(root, dataset.name, split, **options):
            return raw
        if download:
            fetch(dataset.name, root)
            return _raw(dataset, split, size, root, False, options)
        location = f"looked in {root} for {readers.SOURCE} and for {readers.ARCHIVES.get(dataset.name, 'idx files')}"
        looked = location if root.is_dir() else f"the folder {root} does not exist"
    fetched = f"run `fedleak data download {dataset.name} --to FOLDER`; " if dataset.name in DOWNLOADS else ""
    raise DataNotFound(
        f"{dataset.name}/{split} is not here ({looked}). Do one of: {fetched}set {ENVIRONMENT} to (or pass root=) the "
        f"folder that holds it; or use the embedded stand-in load({dataset.stand_in!r})."
    )


TINY_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
TINY_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"


def _by_torchvision(kind: str, *options: dict[str, str]) -> Callable[[Path], None]:
    """Return a download of one of torchvision's data sets, once for each of the options."""

    def download(folder: Path) -> None:
        from torchvision import datasets  # takes seconds to import

        for option in options or ({},):
            getattr(datasets, kind)(folder, download=True, **option)

    return download


def _tiny_imagenet(folder: Path) -> None:
    from torchvision.datasets.utils import download_and_extract_archive

    download_and_extract_archive(TINY_URL, folder, md5=TINY_MD5)


DOWNLOADS: dict[str, Callable[[Path], object]] = {
    "mnist": _by_torchvision("MNIST"),
    "svhn": _by_torchvision("SVHN", {"split": "train"}, {"split": "test"}),
    "cifar10": _by_torchvision("CIFAR10"),
    "cifar100": _by_torchvision("CIFAR100"),
    "celeba-hair": _by_torchvision("CelebA"),
    "celeba-gender": _by_torchvision("CelebA"),
    "tiny-imagenet": _tiny_imagenet,
}
"""torchvision's downloads, which verify checksums."""


def fetch(name: str, root: Path) -> None:
    """Download a data set in torchvision's layout, with progress and checksums; raise `DataNotFound` if it fails.

    A hidden folder in `root` receives the download, and its files are moved once complete, so that an interrupted
    download leaves no partial data set. A damaged or partial copy with the same name becomes ``NAME.replaced-*``.
    """
    if name not in DOWNLOADS:
        advice = ": get it from image-net.org and unpack it with torchvision" if name == "imagenet" else ""
        raise DataNotFound(f"{name} cannot be downloaded by this program{advice}")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".downloading-", dir=root) as staging:
            DOWNLOADS[name](Path(staging))
            for item in Path(staging).iterdir():
                place = root / item.name
                if place.exists():
                    shutil.move(place, tempfile.mkdtemp(prefix=f"{item.name}.replaced-", dir=root))
                shutil.move(item, place)
    except Exception as reason:  # torchvision, gdown and the network raise many kinds
        raise DataNotFound(f"downloading {name} failed: {type(reason).__name__}: {reason}") from reason


class Finding(NamedTuple):
    """The result of `check` for one data set."""

    name: str
    state: Literal["found", "missing", "corrupt"]
    counts: dict[str, int]
    """Number of images by available split."""
    subset: bool = False
    detail: str = ""
    """The source, the fault, or the remedy."""

    @property
    def whole(self) -> bool:
        """Whether both official splits are complete."""
        return self.state == "found" and not self.subset and len(self.counts) == 2


def check(root: str | os.PathLike[str] | None = None, sample: int = 64) -> list[Finding]:
    """Check each data set in the folder, by default that of `FEDLEAK_DATA`: found, missing or corrupt.

    Files with a published checksum and archives (by their CRC) are read completely; up to `sample` images per
    split are decoded, evenly spaced. Raises `ValueError` if `root` is no folder.
    """
    if root is not None and not Path(root).expanduser().is_dir():
        raise ValueError(f"there is no folder {root}")
    return [examine(dataset, folder_of(root), sample) for dataset in catalogue()]


def examine(dataset: Entry, root: Path | None, sample: int = 64) -> Finding:
    """Check one data set, as `check` does for all."""
    counts: dict[str, int] = {}
    if dataset.name == "synthetic":
        return Finding(dataset.name, "found", counts, detail="generated when asked for")
    subset, detail = False, f"stand-in: {dataset.stand_in}"
    for split in SPLITS[:2]:
        try:
            raw = _raw(dataset, split, None, root, False, {})
            for index in np.linspace(0, len(raw.labels) - 1, min(sample, len(raw.labels))).astype(int):
                raw.pixels[int(index)]
        except DataNotFound:
            continue
        except (MissingExtra, ValueError) as reason:
            state: Literal["missing", "corrupt"] = "missing" if isinstance(reason, MissingExtra) else "corrupt"
            return Finding(dataset.name, state, counts, subset, str(reason))
        counts[split], subset, detail = len(raw.labels), subset or raw.subset, raw.source
    return Finding(dataset.name, "found" if counts else "missing", counts, subset, detail)
