"""A small client round for every platform: one network, eight digits per step, and label attacks on the upload."""

import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from network import network

from fedleak.attacks.registry import get
from fedleak.data import load

ROOT = Path(__file__).parents[2]
RATE = 0.1
LABELS = (3, 3, 3, 3, 7, 7, 1, 0)
ROUNDS = [(seed, steps) for steps in (1, 4) for seed in range(4)]
"""Seed of network and images, and number of local steps of eight images."""
LEAST = {1: {"LLG": 6, "iLRG": 8}, 4: {"LLG": 20, "iLRG": 22}}
"""Least number of labels right, of eight per step, by steps and attack: written before the first run of these tests."""


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


def labels_right(update, seed):
    """Return the number of labels right by attack, and the total that iLRG names."""
    right = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for attack in ("LLG", "iLRG"):
            counts = get(attack)(update, network(seed), adversary="white-box model")
            truth = torch.tensor(LABELS).bincount(minlength=10) * (update.samples // len(LABELS))
            right[attack] = int(torch.minimum(counts, truth).sum())
    return right


def check_labels(update, seed):
    right = labels_right(update, seed)
    for attack, least in LEAST[update.steps].items():
        assert right[attack] >= least, right


def turned(update):
    return update.replace({name: -tensor for name, tensor in update.tensors.items()})


def run_client(platform, folder, *arguments):
    """Run `client_PLATFORM.py` for all `ROUNDS` in the platform's own interpreter, and return the arrays it writes.

    Their names begin with seed and steps, `0.4.NAME`. `make test-platforms` makes the interpreter, whose version is not
    this one's, in `.venv-platforms`.
    """
    python = ROOT / ".venv-platforms" / platform / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{platform} has no interpreter: make test-platforms")
    source, target = folder / "in.npz", folder / "out.npz"
    given = {f"{seed}.{steps}": digits(seed, steps) for seed, steps in ROUNDS}
    images = {f"{run}.x": x.numpy() for run, (x, _) in given.items()}
    np.savez(source, **images, **{f"{run}.y": y.numpy() for run, (_, y) in given.items()}, rate=RATE)
    script = Path(__file__).with_name(f"client_{platform}.py")
    done = subprocess.run([python, script, source, target, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with np.load(target) as arrays:
        return dict(arrays)


def part(arrays, prefix):
    """Return the arrays whose names begin with a prefix, without it, as tensors."""
    return {n.removeprefix(prefix): torch.from_numpy(array) for n, array in arrays.items() if n.startswith(prefix)}
