"""Readers of the data sets in a folder: torchvision's layouts, MNIST's idx files, and packed `.npz` archives.

A reader gives a split as `Raw`: labels in memory, images decoded only when they are asked for. Nothing is unpickled but
CIFAR's batches, which torchvision opens only after their MD5 proved to be the published one.
"""

import gzip
import hashlib
import io
import json
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import ConcatDataset, Subset

from fedleak.data.images import stratified_choice

SOURCE = "torchvision's layout"
DIGITS = tuple(map(str, range(10)))
HAIR: tuple[str, ...] = ("Bald", "Black", "Blond", "Brown", "Gray")
GENDER: tuple[str, ...] = ("Female", "Male")
CHUNK = 256
"""Images decoded and resized at a time, which bounds what is kept at full size."""


@dataclass(frozen=True)
class Raw:
    """Labelled samples before decoding.

    `pixels` gives uint8 [H, W, C] images of one size, by index: an array, `Encoded`, or a part of one; or tokens, int64
    [L], or rows, float32 [D], which are taken as they are. `source` says
    in one line where they came from; `subset` whether they are less than the official split.
    """

    pixels: Any
    labels: np.ndarray
    classes: tuple[str, ...]
    source: str
    subset: bool = False

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.pixels):
            raise ValueError(f"{len(self.pixels)} images, but {len(self.labels)} labels")
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < len(self.classes):
            raise ValueError(f"labels {self.labels.min()} to {self.labels.max()} of {len(self.classes)} classes")

    def decoded(self, indices: np.ndarray, size: Sequence[int] | None = None) -> Tensor:
        """Return the images at `indices` [M] as uint8 [M, C, H, W]; at another size, bilinear with antialiasing.

        Tokens are int64 [M, L], rows float32 [M, D].
        """
        chunks = []
        for some in torch.from_numpy(indices).split(CHUNK):
            chunk = torch.from_numpy(np.stack([self.pixels[index] for index in some.tolist()]))
            chunk = chunk.permute(0, 3, 1, 2) if chunk.dtype == torch.uint8 else chunk
            chunks.append((_resized(chunk, tuple(size)) if size else chunk).contiguous())
        return torch.cat(chunks)

    def rows(self, indices: np.ndarray, note: str = "") -> "Raw":
        """Return the images at `indices`, with `note` added to their source."""
        picked: Any = Subset(self.pixels, indices)  # type: ignore[arg-type]
        return replace(self, pixels=picked, labels=self.labels[indices], source=self.source + note)

    def part(self, split: str) -> "Raw":
        """Return the seeded, class-stratified 80 % for training or 20 % for testing of a pool without splits."""
        size = len(self.labels)
        train = stratified_choice(self.labels, size - round(size * 0.2), seed=0)
        indices = train if split == "train" else np.setdiff1d(np.arange(size), train)
        return self.rows(indices, "; our own seeded, class-stratified 80/20 split")


def _resized(images: Tensor, size: tuple[int, ...]) -> Tensor:
    """Return images ``[N, C, H, W]`` in another size, with torchvision's pixels; its import takes seconds."""
    if images.shape[2:] == size:
        return images
    resize = partial(interpolate, size=size, mode="bilinear", antialias=True)
    machine, capability = platform.machine(), torch.backends.cpu.get_cpu_capability()
    if images.is_floating_point() or capability in ("AVX2", "AVX512") or machine in ("arm64", "aarch64"):
        return resize(images)
    return resize(images.float()).round().to(images.dtype)


def joined(first: Raw, second: Raw) -> Raw:
    """Return the images of two splits as one."""
    return replace(
        first,
        pixels=ConcatDataset([first.pixels, second.pixels]),
        labels=np.concatenate([first.labels, second.labels]),
        subset=first.subset or second.subset,
        source="; ".join(dict.fromkeys([first.source, second.source])),
    )


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in the error that a reader stumbles over: a `ValueError`, whatever kind it was."""
    try:
        yield
    except Exception as reason:  # torchvision, numpy, zipfile, Pillow and torch.load raise many
        raise ValueError(f"{path} is damaged or not the expected file: {reason}") from reason


Prepare = Callable[[Image.Image], Image.Image]


@dataclass(frozen=True)
class Encoded:
    """Image files, or their bytes in an archive, each decoded by Pillow to RGB and brought to one size by `prepare`."""

    files: Sequence[Any]
    prepare: Prepare | None = None
    archive: Path | None = None

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int, /) -> np.ndarray:
        file = self.files[index]
        with naming(self.archive or file), Image.open(io.BytesIO(file) if self.archive else file) as image:
            decoded = image.convert("RGB")
        return np.asarray(self.prepare(decoded) if self.prepare else decoded)


def face(image: Image.Image) -> Image.Image:
    """Cut the largest centred square out of a face of CelebA, 218 high and 178 wide."""
    from torchvision.transforms.v2 import CenterCrop

    return CenterCrop(178)(image)


def photograph(image: Image.Image) -> Image.Image:
    """Bring an ImageNet photograph to 224x224 as its test protocol does."""
    from torchvision.transforms.v2 import CenterCrop, Compose, InterpolationMode, Resize

    return Compose([Resize(256, interpolation=InterpolationMode.BICUBIC), CenterCrop(224)])(image)


# MNIST's idx files, as torchvision downloads them or beside each other, compressed or not

MNIST_FOLDERS = ("MNIST/raw", "mnist", "mnist/raw")
MNIST_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
"""MD5 of the uncompressed files, which does not depend on their compression."""


def _mnist(root: Path, split: str) -> Raw | None:
    """Read MNIST; a subset if these are not the canonical files (by their MD5)."""
    part = "train" if split == "train" else "t10k"
    places = [
        [root / folder / f"{part}-{kind}-ubyte{suffix}" for folder in MNIST_FOLDERS for suffix in ("", ".gz")]
        for kind in ("images-idx3", "labels-idx1")
    ]
    pixels, labels = (next(filter(Path.is_file, candidates), None) for candidates in places)
    if not (pixels and labels):
        return None
    (images, whole), (numbers, canonical) = _idx(pixels, 28, 28), _idx(labels)
    source = "MNIST's idx files" + ("" if whole and canonical else ", not the canonical ones")
    with naming(labels):
        return Raw(images[..., None], numbers.astype(np.int64), DIGITS, source, subset=not (whole and canonical))


def _idx(path: Path, *shape: int) -> tuple[np.ndarray, bool]:
    with naming(path):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        kind, count, *size = np.frombuffer(content, dtype=">u4", count=2 + len(shape)).tolist()
        if kind != 2049 + len(shape) or size != [*shape]:  # 8 for bytes, the rank; then the length of each axis
            raise ValueError(f"not an idx file of bytes [N, {', '.join(map(str, shape))}]")
        values = np.frombuffer(content, dtype=np.uint8, offset=8 + 4 * len(shape)).reshape(count, *shape)
    return values, hashlib.md5(content).hexdigest() == MNIST_MD5[path.name.removesuffix(".gz")]


# torchvision's other layouts: a reader is called where its mark is there


def _cifar(kind: str, root: Path, split: str) -> Raw:
    from torchvision import datasets

    dataset = getattr(datasets, kind)(root, train=split == "train")
    return Raw(dataset.data, np.asarray(dataset.targets), tuple(dataset.classes), SOURCE)


def _svhn(root: Path, split: str) -> Raw:
    from torchvision import datasets

    dataset = datasets.SVHN(root, split=split)
    return Raw(dataset.data.transpose(0, 2, 3, 1), dataset.labels, DIGITS, SOURCE)


def _celeba(root: Path, split: str, hair: bool, crop: bool = True) -> Raw:
    """Read CelebA, labelled by hair colour or gender; faces 178x178, or whole (218 high) without `crop`.

    By hair colour: the faces that have exactly one of the five.
    """
    from torchvision import datasets

    dataset = datasets.CelebA(root, split=split)
    wanted = ["Bald", *(f"{colour}_Hair" for colour in HAIR[1:])] if hair else ["Male"]
    attributes = dataset.attr[:, [dataset.attr_names.index(name) for name in wanted]].numpy().astype(np.int64)
    files = [root / dataset.base_folder / "img_align_celeba" / file for file in dataset.filename]
    labels = attributes.argmax(axis=1) if hair else attributes[:, 0]
    raw = Raw(Encoded(files, face if crop else None), labels, HAIR if hair else GENDER, SOURCE)
    return raw.rows(np.flatnonzero(attributes.sum(axis=1) == 1)) if hair else raw


def _tiny_imagenet(root: Path, split: str) -> Raw:
    """Read Tiny ImageNet; its test is the official validation split."""
    folder = root / "tiny-imagenet-200"
    labels = {wnid: label for label, wnid in enumerate(sorted((folder / "wnids.txt").read_text().split()))}
    words = dict(line.split("\t", 1) for line in (folder / "words.txt").read_text(encoding="utf-8").splitlines())
    if split == "train":
        from torchvision import datasets

        samples = datasets.ImageFolder.make_dataset(folder / "train", labels, (".jpeg",), allow_empty=True)
    else:
        with naming(annotations := folder / "val" / "val_annotations.txt"):
            lines = map(str.split, annotations.read_text().splitlines())
            samples = [(str(folder / "val" / "images" / file), labels[wnid]) for file, wnid, *_ in lines]
    names = tuple(words.get(wnid, wnid) for wnid in labels)
    return _files(samples, names, None, 100_000 if split == "train" else 10_000)


def _imagenet(root: Path, split: str) -> Raw | None:
    """Read ImageNet-1k; its test is the official validation split."""
    part = "train" if split == "train" else "val"
    if not (root / part).is_dir():  # torchvision would start to unpack archives of 150 GB
        return None
    from torchvision import datasets

    dataset = datasets.ImageNet(root, split=part)
    names = tuple(names[0] for names in dataset.classes)
    return _files(dataset.samples, names, photograph, 1_281_167 if split == "train" else 50_000)


def _files(samples: list[tuple[str, int]], names: tuple[str, ...], prepare: Prepare | None, official: int) -> Raw:
    labels = np.array([label for _, label in samples], dtype=np.int64)
    return Raw(Encoded([path for path, _ in samples], prepare), labels, names, SOURCE, subset=len(samples) != official)


LAYOUTS: dict[str, tuple[str, Callable[..., Raw | None]]] = {
    "svhn": ("{split}_32x32.mat", _svhn),
    "cifar10": ("cifar-10-batches-py", partial(_cifar, "CIFAR10")),
    "cifar100": ("cifar-100-python", partial(_cifar, "CIFAR100")),
    "celeba-hair": ("celeba/img_align_celeba", partial(_celeba, hair=True)),
    "celeba-gender": ("celeba/img_align_celeba", partial(_celeba, hair=False)),
    "tiny-imagenet": ("tiny-imagenet-200", _tiny_imagenet),
    "imagenet": ("meta.bin", _imagenet),
}
"""What is there where torchvision's layout is, and ``reader(root, split)``."""
ARCHIVES = {name: f"{name.replace('-', '_')}.npz" for name in ("svhn", "cifar10", "cifar100", "cifar10-jpeg")} | {
    "celeba-hair": "celeba.npz",
    "celeba-gender": "celeba.npz",
    "tiny-imagenet": "tiny_imagenet.npz",
    "imagenet": "imagenet_sample224.npz",
}


def read(root: Path, name: str, split: str, **options: Any) -> Raw | None:
    """Read "train" or "test" of a data set: the official files first, then an archive; None if neither is there.

    A file that is damaged is a `ValueError` that names it.
    """
    if name == "mnist":
        return _mnist(root, split)
    mark, reader = LAYOUTS.get(name, ("", None))
    for place in (root, root / name):
        if reader and (sign := place / mark.format(split=split)).exists():
            with naming(sign):
                if raw := reader(place, split, **options):
                    return raw
    path = root / ARCHIVES[name]
    if not path.is_file():
        return None
    with naming(path):
        return _archive(path, name, split, **options)


def _archive(path: Path, name: str, split: str, crop: bool = True) -> Raw:
    """Read a subset from an `.npz`; one without official splits is split here, and its source says so."""
    with np.load(path, allow_pickle=False) as archive:
        fields = {key: archive[key] for key in archive.files}
    key, classes = {"celeba-hair": ("hair", HAIR), "celeba-gender": ("male", GENDER)}.get(name, ("labels", ()))
    classes = classes or tuple(json.loads(str(fields["classes"])))
    if "train_images" in fields:
        part = split if "test_images" in fields else "train"
        pixels, labels = fields[f"{part}_images"], fields[f"{part}_labels"]
        if pixels.dtype != np.uint8 or pixels.ndim != 4:
            raise ValueError(f"{part} images {pixels.dtype} {pixels.shape}")
    else:
        offsets, labels = fields["offsets"], fields[key]
        if (np.diff(offsets) < 0).any() or offsets[-1] != len(fields["blob"]):
            raise ValueError("its offsets do not fit its images")
        square = face if name.startswith("celeba") and crop else None
        pixels = Encoded(np.split(fields["blob"], offsets[1:-1]), square, archive=path)
    if key == "hair":  # -1: none of the five colours, or several
        pixels, labels = Subset(pixels, np.flatnonzero(labels >= 0).tolist()), labels[labels >= 0]
    raw = Raw(pixels, labels.astype(np.int64), classes, f"{path.name}, a subset", subset=True)
    if "test_images" in fields:
        return raw
    return raw.rows(np.flatnonzero(fields["split"] == int(split != "train"))) if "split" in fields else raw.part(split)
