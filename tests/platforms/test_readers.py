"""Readers of uploads without the platforms: every field that they use, and inputs that they refuse."""

from collections import namedtuple
from types import SimpleNamespace as Fields

import numpy as np
import pytest
import torch

from fedleak.platforms import appfl, declearn, openfl, pfl

STATE = {
    "fc.weight": torch.ones(3, 2),
    "fc.bias": torch.zeros(3),
    "bn.running_mean": torch.zeros(3),
    "bn.num_batches_tracked": torch.tensor(0),
}
CHANGE = {"fc.weight": torch.full((3, 2), -0.5), "fc.bias": torch.full((3,), 0.25)}
AFTER = {name: tensor + CHANGE.get(name, 1) for name, tensor in STATE.items()}
Key = namedtuple("Key", "tensor_name origin round_number report tags")


class Statistics(dict):
    """The two fields of pfl's statistics that matter."""

    def __init__(self, values, weight):
        super().__init__(values)
        self.weight = weight


def scaled(factor, prefix=""):
    return {prefix + name: tensor * factor for name, tensor in CHANGE.items()}


def reply(weight, factor, prefix=""):
    return Fields(updates=Fields(updates=Fields(coefs=scaled(factor, prefix)), weights=weight), n_steps=4)


def keyed(state, *tags):
    return {Key(name, "a", 0, False, tags): np.asarray(tensor) for name, tensor in state.items()}


def sent_gradient():
    return {name: -CHANGE[name] if name in CHANGE else AFTER[name] for name in STATE}


def plain(upload, **options):
    return appfl.update(upload, STATE, samples=8, lr=0.1, **options)


READ = {
    "declearn by steps": lambda: declearn.update(reply(4, -4.0, prefix="module."), samples=8, lr=0.1),
    "declearn plain mean": lambda: declearn.update(reply(1, -1.0), samples=8, lr=0.1),
    "appfl": lambda: plain((AFTER, {"current_local_steps": 4}), send_gradient=False),
    "appfl with Opacus": lambda: plain(
        ({f"_module.{name}": tensor for name, tensor in AFTER.items()}, {"current_local_steps": 4}), send_gradient=False
    ),
    "appfl without results": lambda: plain(AFTER, steps=4, send_gradient=False),
    "appfl send_gradient": lambda: plain(sent_gradient(), steps=4, send_gradient=True),
    "pfl by user": lambda: pfl.update(Statistics(CHANGE, 1), samples=8, steps=4, lr=0.1),
    "pfl by samples": lambda: pfl.update(Statistics(scaled(8), 8.0), samples=8, steps=4, lr=0.1),
    "openfl differences": lambda: openfl.update(keyed(CHANGE, "trained", "delta"), samples=8, steps=4, lr=0.1),
    "openfl weights": lambda: openfl.update(keyed(AFTER, "trained"), samples=8, steps=4, lr=0.1, before=STATE),
    "openfl weights after a mean in double": lambda: openfl.update(
        keyed(AFTER, "trained"), samples=8, steps=4, lr=0.1, before={n: t.double() for n, t in STATE.items()}
    ),
}


@pytest.mark.parametrize("form", READ)
def test_every_form_gives_the_change_of_the_parameters(form):
    update = READ[form]()
    assert (update.kind, update.samples, update.steps, update.lr) == ("delta", 8, 4, 0.1)
    assert update.tensors.keys() == CHANGE.keys()
    for name, change in CHANGE.items():
        torch.testing.assert_close(update.tensors[name], change)


REFUSED = {
    "declearn, encrypted": (lambda: declearn.update(Fields(encrypted=[1], n_steps=1), samples=8, lr=0.1), "secure"),
    "declearn, updates alone": (lambda: declearn.update(reply(4, -4.0).updates, samples=8, lr=0.1), "no TrainReply"),
    "declearn, weight 0": (lambda: declearn.update(reply(0, -4.0), samples=8, lr=0.1), "positive number"),
    "declearn, NaN weight": (lambda: declearn.update(reply(float("nan"), 1.0), samples=8, lr=0.1), "positive number"),
    "appfl, masked": (lambda: plain({"type": "masked_update_flat"}, steps=4, send_gradient=True), "masked"),
    "appfl, no steps": (lambda: plain(AFTER, send_gradient=False), "pass steps"),
    "appfl, a list": (lambda: plain([1], steps=4, send_gradient=False), "not a list"),
    "appfl, gradient of another model": (
        lambda: plain({"fc.weight": torch.ones(4, 4)}, steps=4, send_gradient=True),
        "another model",
    ),
    "appfl, state of another model": (
        lambda: plain({"fc.weight": torch.ones(3, 2)}, steps=4, send_gradient=False),
        "only one of the two states",
    ),
    "pfl, a dict": (lambda: pfl.update(CHANGE, samples=8, steps=4, lr=0.1), "MappedVectorStatistics"),
    "pfl, no parameter": (lambda: pfl.update(Statistics({}, 1), samples=8, steps=4, lr=0.1), "no parameter"),
    "openfl, names": (lambda: openfl.update(CHANGE, samples=8, steps=4, lr=0.1), "TensorKey"),
    "openfl, no before": (lambda: openfl.update(keyed(AFTER, "trained"), samples=8, steps=4, lr=0.1), "pass before"),
    "openfl, compressed": (
        lambda: openfl.update(keyed(CHANGE, "trained", "delta", "compressed"), samples=8, steps=4, lr=0.1),
        "decompress",
    ),
    "openfl, metrics alone": (lambda: openfl.update(keyed(CHANGE, "metric"), samples=8, steps=4, lr=0.1), "one task"),
    "openfl, both": (
        lambda: openfl.update(
            keyed(CHANGE, "trained") | keyed(CHANGE, "trained", "delta"), samples=8, steps=4, lr=0.1, before=STATE
        ),
        "one task",
    ),
    "openfl, another shape": (
        lambda: openfl.update(keyed({"fc.bias": torch.ones(4)}, "trained"), samples=8, steps=4, lr=0.1, before=STATE),
        "the same model",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused(case):
    read, why = REFUSED[case]
    with pytest.raises(ValueError, match=why):
        read()


def test_lists_of_numbers_are_no_arrays():
    with pytest.raises(ValueError, match="not an array or a tensor"):
        pfl.update(Statistics({"weight": [1.0, 2.0]}, 1), samples=8, steps=4, lr=0.1)
