"""Readers of the layouts that torchvision leaves in a folder, and the downloads that make them.

CIFAR's batches are pickles: torchvision opens them only after their MD5 proved to be the published one.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from torchvision import datasets
from torchvision.datasets.utils import check_integrity, download_and_extract_archive

from fedleak.data.catalogue import GENDER, HAIR
from fedleak.data.raw import Files, Raw, centre_square, imagenet_crop
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
    pixels = found.data.transpose(0, 2, 3, 1)
    return Raw(pixels, found.labels, tuple(str(digit) for digit in range(10)), subset=False, source=SOURCE)


def read_celeba(root: Path, split: str, name: str, crop: bool = True) -> Raw | None:
    """Read CelebA, labelled by hair colour or gender; faces 178x178, or whole (218 high) without `crop`."""
    folder = root / datasets.CelebA.base_folder
    if not (folder / "img_align_celeba").is_dir():
        return None
    _check_md5({folder / file: md5 for _, md5, file in datasets.CelebA.file_list if not file.endswith(".zip")})
    found = datasets.CelebA(root, split=split)
    column = {attribute: place for place, attribute in enumerate(found.attr_names)}
    attributes = found.attr.numpy()
    paths = [folder / "img_align_celeba" / file for file in found.filename]
    pixels = Files(paths, centre_square) if crop else Files(paths)
    if name == "celeba-gender":
        return Raw(pixels, attributes[:, column["Male"]].astype(np.int64), GENDER, subset=False, source=SOURCE)
    hair = attributes[:, [column[attribute] for attribute in ("Bald", *(f"{c}_Hair" for c in HAIR[1:]))]]
    labels = hair_labels(hair)
    return Raw(pixels, labels, HAIR, subset=False, source=SOURCE).of_labels(labels, HAIR)


def hair_labels(attributes: np.ndarray) -> np.ndarray:
    """Turn 0/1 hair attributes [N, 5] into labels int64 [N]: -1 unless exactly one attribute is set."""
    return np.where(attributes.sum(axis=1) == 1, attributes.argmax(axis=1), -1).astype(np.int64)


def read_tiny_imagenet(root: Path, split: str) -> Raw | None:
    """Read Tiny ImageNet; its test is the official validation split."""
    folder = root / "tiny-imagenet-200"
    if not folder.is_dir():
        return None
    wnids = sorted(_lines(folder / "wnids.txt"))
    words = dict(line.split("\t", 1) for line in _lines(folder / "words.txt"))
    label = {wnid: place for place, wnid in enumerate(wnids)}
    if split == "train":
        found = [(path, label[w]) for w in wnids for path in sorted((folder / "train" / w).rglob("*.JPEG"))]
    else:
        annotations = folder / "val" / "val_annotations.txt"
        rows = [line.split("\t") for line in _lines(annotations)]
        if any(len(row) < 2 or row[1] not in label for row in rows):
            raise ValueError(f"{annotations} is damaged: it names a class that is not in wnids.txt")
        found = [(folder / "val" / "images" / row[0], label[row[1]]) for row in rows]
    whole = len(found) == (100_000 if split == "train" else 10_000)
    labels = np.array([place for _, place in found], dtype=np.int64)
    names = tuple(words.get(wnid, wnid) for wnid in wnids)
    return Raw(Files([path for path, _ in found]), labels, names, subset=not whole, source=SOURCE)


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
    pixels = Files([Path(path) for path, _ in found.samples], imagenet_crop)
    names = tuple(synonyms[0] for synonyms in found.classes)
    return Raw(pixels, np.asarray(found.targets), names, subset=not whole, source=SOURCE)


def read_layout(root: Path, name: str, split: str, crop: bool = True) -> Raw | None:
    """Read a split ("train" or "test") of a data set as torchvision leaves it; None if it is not there.

    Raises
    ------
    ValueError
        If a file is damaged, or one of several is missing; it names the file.
    """
    for folder in (root, root / name):
        match name:
            case "cifar10":
                raw = read_cifar(folder, split, datasets.CIFAR10)
            case "cifar100":
                raw = read_cifar(folder, split, datasets.CIFAR100)
            case "svhn":
                raw = read_svhn(folder, split)
            case "celeba-hair" | "celeba-gender":
                raw = read_celeba(folder, split, name, crop)
            case "tiny-imagenet":
                raw = read_tiny_imagenet(folder, split)
            case "imagenet":
                raw = read_imagenet(folder, split)
            case _:
                raw = None
        if raw is not None:
            return raw
    return None


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
