"""Readers of the layouts that torchvision leaves in a folder, and the downloads that make them.

CIFAR's batches are pickles: torchvision opens them only after their MD5 proved to be the published one.
"""

import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from torchvision import datasets
from torchvision.datasets.utils import check_integrity, download_and_extract_archive

from fedleak.data.catalogue import DIGITS, GENDER, HAIR
from fedleak.data.raw import Encoded, Raw, centre_square, imagenet_crop
from fedleak.errors import DataNotFound

SOURCE = "torchvision's layout"
TINY_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
TINY_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"


def read_cifar(root: Path, split: str, kind: type[datasets.CIFAR10]) -> Raw | None:
    """Read CIFAR-10 or CIFAR-100."""
    folder = root / kind.base_folder
    if not folder.is_dir():
        return None
    published = [*kind.train_list, *kind.test_list, [kind.meta["filename"], kind.meta["md5"]]]
    _check_md5({folder / file: md5 for file, md5 in published})
    found = kind(root, train=split == "train")
    return Raw(found.data, np.asarray(found.targets), tuple(found.classes), subset=False, source=SOURCE)


def read_svhn(root: Path, split: str) -> Raw | None:
    """Read SVHN; the digit 0 has the label 0."""
    _, file, md5 = datasets.SVHN.split_list[split]
    if not (root / file).is_file():
        return None
    _check_md5({root / file: md5})
    found = datasets.SVHN(root, split=split)
    return Raw(found.data.transpose(0, 2, 3, 1), found.labels, DIGITS, subset=False, source=SOURCE)


def read_celeba(root: Path, split: str, hair: bool, crop: bool = True) -> Raw | None:
    """Read CelebA, labelled by hair colour or gender; faces 178x178, or whole (218 high) without `crop`.

    By hair colour: the faces that have exactly one of the five.
    """
    folder = root / datasets.CelebA.base_folder
    if not (folder / "img_align_celeba").is_dir():
        return None
    _check_md5({folder / file: md5 for _, md5, file in datasets.CelebA.file_list if not file.endswith(".zip")})
    found = datasets.CelebA(root, split=split)
    wanted = ["Bald", *(f"{colour}_Hair" for colour in HAIR[1:])] if hair else ["Male"]
    attributes = found.attr.numpy()[:, [found.attr_names.index(name) for name in wanted]].astype(np.int64)
    files = [folder / "img_align_celeba" / file for file in found.filename]
    labels = attributes.argmax(axis=1) if hair else attributes[:, 0]
    raw = Raw(Encoded(files, centre_square if crop else None), labels, HAIR if hair else GENDER, False, SOURCE)
    return raw.rows(np.flatnonzero(attributes.sum(axis=1) == 1)) if hair else raw


def read_tiny_imagenet(root: Path, split: str) -> Raw | None:
    """Read Tiny ImageNet; its test is the official validation split."""
    folder = root / "tiny-imagenet-200"
    if not folder.is_dir():
        return None
    wnids = sorted(_lines(folder / "wnids.txt"))
    words = dict(line.split("\t", 1) for line in _lines(folder / "words.txt"))
    if split == "train":
        found = [(path, w) for w in wnids for path in sorted((folder / "train" / w).rglob("*.JPEG"))]
    else:
        annotations = folder / "val" / "val_annotations.txt"
        rows = [(*line.split("\t"), "")[:2] for line in _lines(annotations)]
        if not {wnid for _, wnid in rows} <= set(wnids):
            raise ValueError(f"{annotations} is damaged: it names a class that is not in wnids.txt")
        found = [(folder / "val" / "images" / file, wnid) for file, wnid in rows]
    whole = len(found) == (100_000 if split == "train" else 10_000)
    labels = np.searchsorted(wnids, [wnid for _, wnid in found]) if found else np.empty(0, dtype=np.int64)
    names = tuple(words.get(wnid, wnid) for wnid in wnids)
    return Raw(Encoded([path for path, _ in found]), labels, names, subset=not whole, source=SOURCE)


def read_imagenet(root: Path, split: str) -> Raw | None:
    """Read ImageNet-1k; its test is the official validation split."""
    part = "train" if split == "train" else "val"
    # Only an unpacked set: torchvision would otherwise start to unpack archives of 150 GB.
    folder = next((f for f in (root / "imagenet", root) if (f / "meta.bin").is_file() and (f / part).is_dir()), None)
    if folder is None:
        return None
    try:
        found = datasets.ImageNet(folder, split=part)
    except Exception as reason:  # whatever torch.load says of a damaged meta.bin
        raise ValueError(f"{folder / 'meta.bin'} or the folders beside it are damaged: {reason}") from reason
    whole = len(found.samples) == (1_281_167 if split == "train" else 50_000)
    pixels = Encoded([path for path, _ in found.samples], imagenet_crop)
    names = tuple(synonyms[0] for synonyms in found.classes)
    return Raw(pixels, np.asarray(found.targets), names, subset=not whole, source=SOURCE)


READERS: dict[str, Callable[..., Raw | None]] = {
    "svhn": read_svhn,
    "cifar10": partial(read_cifar, kind=datasets.CIFAR10),
    "cifar100": partial(read_cifar, kind=datasets.CIFAR100),
    "celeba-hair": partial(read_celeba, hair=True),
    "celeba-gender": partial(read_celeba, hair=False),
    "tiny-imagenet": read_tiny_imagenet,
    "imagenet": read_imagenet,
}
"""``reader(root, split)`` gives a split, None if it is not there; a `ValueError` names the file that is damaged."""
DOWNLOADS: dict[str, Callable[[Path], object]] = {
    "mnist": lambda folder: datasets.MNIST(folder, download=True),
    "svhn": lambda folder: [datasets.SVHN(folder, split=split, download=True) for split in ("train", "test")],
    "cifar10": lambda folder: datasets.CIFAR10(folder, download=True),
    "cifar100": lambda folder: datasets.CIFAR100(folder, download=True),
    "celeba-hair": lambda folder: datasets.CelebA(folder, download=True),
    "celeba-gender": lambda folder: datasets.CelebA(folder, download=True),
    "tiny-imagenet": lambda folder: download_and_extract_archive(TINY_URL, folder, md5=TINY_MD5),
}


def download(name: str, root: Path) -> None:
    """Download a data set in torchvision's layout, with progress and checksums.

    It is made in a hidden folder beside its place and moved there when whole: a download that breaks off
    leaves nothing that could be taken for the data set. What has its name already (a damaged or partial copy,
    else there would be nothing to download) is kept beside it, as NAME.replaced-*.

    Raises
    ------
    DataNotFound
        If it cannot be downloaded; with the reason.
    """
    if name not in DOWNLOADS:
        raise DataNotFound(
            f"{name} cannot be downloaded by this program"
            + (": get it from image-net.org and unpack it with torchvision" if name == "imagenet" else "")
        )
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


def _check_md5(published: dict[Path, str]) -> None:
    for path, md5 in published.items():
        if not check_integrity(path, md5):
            raise ValueError(f"{path} is missing or damaged: its MD5 is not the published one")


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line]
    except OSError as reason:
        raise ValueError(f"{path} is missing or damaged: {reason}") from reason
