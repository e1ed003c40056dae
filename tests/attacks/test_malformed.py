"""Updates that a label attack cannot read, or reads without equal batches: counts, or a clear error."""

import math

import pytest
import torch

from fedleak import WithheldParameter
from fedleak.attacks.labels.fishing import fishing_model
from fedleak.attacks.registry import Adversary, Need, all_attacks, get
from fedleak.data import Images
from fedleak.federated import Update, fedavg, fedsgd
from fedleak.metrics import instance_accuracy
from fedleak.models import build, head

SHAPE, CLASSES = (1, 4, 4), 3
MODEL = build("fcn3", SHAPE, CLASSES, seed=0)
X = torch.rand(12, *SHAPE, generator=torch.Generator().manual_seed(0))
AUX = Images(X, torch.arange(12) % CLASSES)
FISHING = [fishing_model(MODEL, "vector", client, 2, seed=0) for client in range(2)]
EVERYTHING = Adversary("everything", frozenset(Need), server="malicious")
ATTACKS = [attack for attack in all_attacks() if attack.goal == "labels"]
READERS = ("LLG", "iLRG", "RLU", "LIA-SA", "head splitting")
"""One that reads row sums, one that reads rows, one that solves, one of a malicious server, an exact one."""
BROKEN = {
    "another shape": lambda t: torch.cat([t, t]),
    "one nan": lambda t: t.flatten().index_fill(0, torch.tensor([0]), math.nan).view(t.shape),
    "infinite": lambda t: t / 0,
}


def run(attack, update):
    if attack.name == "LIA-SA":
        return attack(update, FISHING, adversary=EVERYTHING, batch_size=3, input_shape=SHAPE, force=True)
    options = {"aux": AUX} if Need.AUXILIARY_DATA in attack.needs else {}
    if attack.name in ("LLG*", "LLG+"):
        options["runs"] = 1
    if attack.trained or attack.cost != "seconds":
        options["iterations"] = 1
    return attack(update, MODEL, adversary=EVERYTHING, **options)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_a_last_layer_that_cannot_be_read_ends_in_a_clear_error(name, change):
    update, last = fedsgd(MODEL, X[:6], AUX.y[:6]), head(MODEL)
    broken = {part: change(update.tensors[part]) for part in (last.weight, last.bias)}
    for wrong in (update.replace({**update.tensors, **broken}), update.without(*broken)):
        with pytest.raises((ValueError, WithheldParameter)):
            run(get(name), wrong)


EQUAL = {"RLU, whole head", "LIA-SA", "learned", "after SPEAR", "head splitting", "peeling", "RLG", "iDLG", "GI"}
"""Attacks that need equal local batches, one step, or a few samples."""


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_batches_of_different_sizes_are_taken_or_refused(attack):
    sizes, before, total = (10, 10, 3), MODEL, {}
    x, y = torch.rand(23, *SHAPE, generator=torch.Generator().manual_seed(1)), torch.tensor([0] * 16 + [2] * 7)
    y = y[torch.randperm(23, generator=torch.Generator().manual_seed(2))]
    for images, labels in zip(x.split(sizes), y.split(sizes), strict=True):
        step = fedavg(before, images[None], labels[None], 0.1, "delta")
        total = {name: step.gradient(name) + total.get(name, 0) for name in step.tensors}
        before = step.model(before)
    update = Update(total, "gradient", 23, 3, lr=0.1)
    if attack.name in EQUAL:
        with pytest.raises(ValueError, match=r"equal local batches|one (local )?step|sample|rank|at most 3"):
            run(attack, update)
    else:
        counts = run(attack, update)
        assert attack.name == "iLRG" or counts.sum() == 23
        assert attack.name == "random guess" or instance_accuracy(counts, torch.tensor([16, 0, 7])) >= 0.6
