"""A small client round for every platform: one network, eight digits per step, and label attacks on the upload."""

import warnings
from types import SimpleNamespace

import torch
from torch import nn

from fedleak.attacks.registry import get
from fedleak.data import load
from fedleak.federated import Update
from fedleak.federated.update import is_statistic
from fedleak_book import paths

RATE = 0.1
LABELS = (3, 3, 3, 3, 7, 7, 1, 0)
ROUNDS = [(seed, steps) for steps in (1, 4) for seed in range(4)]
"""Seed of network and images, and number of local steps of eight images."""
LEAST = {1: {"LLG": 6, "iLRG": 8}, 4: {"LLG": 20, "iLRG": 22}}
"""Least number of labels right, of eight per step, by steps and attack: written before the first run of these tests."""


def readers():
    """Return the page's functions that make an update of an upload."""
    page = (paths.root() / "book" / "clients.md").read_text(encoding="utf-8")
    scope = {"torch": torch, "Update": Update, "is_statistic": is_statistic}
    exec("def parameters" + page.partition("def parameters")[2].partition("```")[0], scope)
    return SimpleNamespace(**scope)


def network(seed):
    torch.manual_seed(seed)
    first = nn.Conv2d(1, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.BatchNorm2d(16), nn.ReLU()
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(16 * 36, 64), nn.ReLU(), nn.Linear(64, 10))


def digits(seed, steps):
    """Return images of the labels, eight per step, in an order that batches of eight go through."""
    images, generator = load("mnist5k"), torch.Generator().manual_seed(seed)
    chosen = []
    for label in LABELS * steps:
        candidates = torch.where(images.y == label)[0]
        chosen.append(candidates[torch.randint(len(candidates), (1,), generator=generator)].item())
    return images.x[chosen], images.y[chosen]


def frozen(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def check_labels(update, seed):
    for attack, least in LEAST[update.steps].items():
        with warnings.catch_warnings(action="ignore"):
            counts = get(attack)(update, network(seed), adversary="white-box model")
        truth = torch.tensor(LABELS).bincount(minlength=10) * (update.samples // len(LABELS))
        assert int(torch.minimum(counts, truth).sum()) >= least, attack
