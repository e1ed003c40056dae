"""Whatever somebody passes as an update: a label attack gives counts, a ValueError or a WithheldParameter."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedleak import Update, WithheldParameter
from fedleak.attacks.labels.fishing import fishing_model
from fedleak.attacks.registry import Adversary, Need, all_attacks, get
from fedleak.data import Images
from fedleak.federated import fedavg
from fedleak.metrics import instance_accuracy
from fedleak.models import build

SHAPE, CLASSES = (1, 4, 4), 3
MODEL = build("fcn3", SHAPE, CLASSES, seed=0)
X = torch.rand(12, *SHAPE, generator=torch.Generator().manual_seed(0))
AUX = Images(X, torch.arange(12) % CLASSES)
GOOD = {steps: fedavg(MODEL, X[:6].view(steps, 6 // steps, *SHAPE), AUX.y[:6].view(steps, -1), 0.1) for steps in (1, 3)}
FISHING = [fishing_model(MODEL, "vector", client, 2, seed=0) for client in range(2)]
NAMES = list(GOOD[1].tensors)
EVERYTHING = Adversary("everything", frozenset(Need), server="malicious")
ATTACKS = [attack for attack in all_attacks() if attack.goal == "labels"]
FAMILIES = [get(name) for name in ("LLG", "iLRG", "RLU", "LIA-SA", "head splitting", "prior guess")]
"""One that reads row sums, one that reads rows, one that solves, one of a malicious server, an exact one, a guess."""

ANYTHING = st.sampled_from([None, "weights", 3, [1.0], (), {}, np.ones(3), object()])
NUMBERS = st.sampled_from([0, -1, -(10**30), 10**30, 2.5, math.nan, math.inf, "6", None, True, [1], 1j, torch.ones(2)])
BROKEN = {
    "bool": lambda t: t > 0,
    "complex": lambda t: t + 1j,
    "sparse": lambda t: t.to_sparse(),
    "numpy": lambda t: t.numpy(),
    "meta": lambda t: t.to("meta"),
    "quantised": lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8),
    "scalar": lambda t: t.sum(),
    "flat": lambda t: t.flatten()[:-1],
    "doubled": lambda t: torch.cat([t, t]),
    "empty": lambda t: t[:0],
    "infinite": lambda t: t / 0,
    "one nan": lambda t: t.flatten().index_fill(0, torch.tensor([0]), math.nan).view(t.shape),
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


def malformed(draw):
    """Draw an update's fields, at least one of them wrong: a tensor, what is there instead, or a number."""
    steps = draw(st.sampled_from([1, 3]))
    fields = {"tensors": dict(GOOD[steps].tensors), "kind": "gradient", "samples": 6, "steps": steps, "lr": 0.1}
    way = draw(st.sampled_from(["tensor", "missing", "anything", "number", "mapping", "name"]))
    if way == "tensor":
        change = BROKEN[draw(st.sampled_from(sorted(BROKEN)))]
        which = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
        fields["tensors"] |= {name: change(fields["tensors"][name]) for name in which}
    elif way == "missing":
        for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True)):
            del fields["tensors"][name]
    elif way == "anything":
        fields["tensors"][draw(st.sampled_from(NAMES))] = draw(ANYTHING)
    elif way == "number":
        fields[draw(st.sampled_from(["samples", "steps", "lr"]))] = draw(NUMBERS)
    elif way == "mapping":
        fields["tensors"] = draw(ANYTHING)
    else:
        fields["tensors"][draw(st.sampled_from([None, 3, ("a", "b")]))] = torch.zeros(1)
    fields["kind"] = draw(st.sampled_from(["gradient", "delta", "gradient", "delta", "weights", None, 1]))
    return fields


@settings(max_examples=80, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_malformed_update_ends_in_a_clear_error(data):
    """Most are refused by the update itself; what it cannot know is up to the attacks' one door."""
    try:
        update = Update(**malformed(data.draw))
    except ValueError:
        return
    for attack in FAMILIES:
        try:
            counts = run(attack, update)
        except (ValueError, WithheldParameter):
            continue
        # What an attack does not read may be wrong in a way that the update cannot know, a shape or a NaN.
        assert counts.dtype == torch.long
        assert counts.min() >= 0


EQUAL = {"RLU, whole head", "LIA-SA", "learned", "after SPEAR", "head splitting", "peeling", "RLG", "iDLG", "GI"}
"""Attacks that need equal local batches, one step, or a few samples."""


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_batches_of_different_sizes_are_taken_or_refused(attack):
    sizes, before, total = (10, 10, 3), MODEL, {}
    x, y = torch.rand(23, *SHAPE, generator=torch.Generator().manual_seed(1)), torch.tensor([0] * 16 + [2] * 7)
    y = y[torch.randperm(23, generator=torch.Generator().manual_seed(2))]
    for images, labels in zip(x.split(sizes), y.split(sizes), strict=True):
        step = fedavg(before, images[None], labels[None], 0.1, "delta")
        total = {name: step.gradient(name) + total.get(name, 0) for name in NAMES}
        before = step.model(before)
    update = Update(total, "gradient", 23, 3, lr=0.1)
    if attack.name in EQUAL:
        with pytest.raises(ValueError, match=r"equal local batches|one (local )?step|sample|rank|at most 3"):
            run(attack, update)
    else:
        counts = run(attack, update)
        assert attack.name == "iLRG" or counts.sum() == 23
        assert attack.name == "random guess" or instance_accuracy(counts, torch.tensor([16, 0, 7])) >= 0.6
