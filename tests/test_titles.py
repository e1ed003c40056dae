"""What tables and figures call data sets, networks and schemes: declared once, where these are."""

import re

import pytest

from fedleak import data, models, paths
from fedleak.experiments.status import Difference
from fedleak.federated.schemes import TITLES

NAMES = {entry.name: data.title(entry.name) for entry in data.catalogue()}
NAMES |= {name: models.title(name) for name in models.names()} | TITLES


def test_everything_has_a_name_in_words():
    assert not [name for name, title in NAMES.items() if title == name or not title[:1].isalpha()]
    assert [data.title(name) for name in ("mnist5k", "celeba-gender")] == ["MNIST", "CelebA"]
    assert [models.title(name) for name in ("vgg11_bn", "resnet18-conv")] == ["VGG-11", "ResNet-18"]
    assert data.title("no such set") == models.title("no such set") == "no such set"


def test_settings_that_differ_are_told_in_words():
    assert str(Difference("net", "lenet", "vgg16")) == "net LeNet, paper VGG-16"
    assert str(Difference("data", "cifar100", "cifar10")) == "data CIFAR-100, paper CIFAR-10"
    assert str(Difference("algorithm", 1, 2)) == "algorithm 1, paper 2"


@pytest.mark.parametrize("folder", ["notebooks", "book/_ext", "fedleak/audit"])
def test_no_list_of_names_stands_elsewhere(folder):
    """Neither "mnist": "MNIST" nor replace("mnist", "MNIST")."""
    pairs = "|".join(f'"{re.escape(name)}"[:,] "{re.escape(title)}"' for name, title in NAMES.items())
    files = [path for kind in ("*.py", "*.ipynb") for path in (paths.root() / folder).rglob(kind)]
    texts = {path.name: path.read_text(encoding="utf-8").replace(r"\"", '"') for path in files}
    assert not {name: found for name, text in texts.items() if (found := re.findall(pairs, text))}
