"""The page's functions that make an update of an upload, without the platforms."""

from collections import namedtuple
from types import SimpleNamespace as Fields

import numpy as np
import pytest
import torch

from fedleak.federated import Update
from fedleak.federated.update import is_statistic
from fedleak_book import paths

STATE = {"fc.weight": torch.ones(3, 2), "fc.bias": torch.zeros(3), "bn.running_mean": torch.zeros(3)}
STATE["bn.num_batches_tracked"] = torch.tensor(0)
CHANGE = {"fc.weight": torch.full((3, 2), -0.5), "fc.bias": torch.full((3,), 0.25)}
AFTER = {name: tensor + CHANGE.get(name, 1) for name, tensor in STATE.items()}
Key = namedtuple("Key", "tensor_name origin round_number report tags")
page = (paths.root() / "book" / "clients.md").read_text(encoding="utf-8")
scope = {"torch": torch, "Update": Update, "is_statistic": is_statistic}
exec("def parameters" + page.partition("def parameters")[2].partition("```")[0], scope)
read = Fields(**scope)


class Statistics(dict):
    weight = 8.0


def scaled(factor):
    return {name: tensor * factor for name, tensor in CHANGE.items()}


def keyed(state, *tags):
    return {Key(name, "a", 0, False, tags): np.asarray(tensor) for name, tensor in state.items()}


REPLY = Fields(updates=Fields(updates=Fields(coefs=scaled(-4.0)), weights=4), n_steps=4)
SENT_GRADIENT = {name: -CHANGE[name] if name in CHANGE else AFTER[name] for name in STATE}
PREFIXED = {f"_module.{name}": tensor for name, tensor in AFTER.items()}
STEPS = {"current_local_steps": 4}
READ = {
    "declearn": lambda: read.read_declearn(REPLY, 8, 0.1),
    "appfl": lambda: read.read_appfl((AFTER, STEPS), STATE, 8, 0.1, False),
    "appfl, Opacus": lambda: read.read_appfl((PREFIXED, STEPS), STATE, 8, 0.1, False),
    "appfl, send_gradient": lambda: read.read_appfl((SENT_GRADIENT, STEPS), STATE, 8, 0.1, True),
    "pfl": lambda: read.read_pfl(Statistics(scaled(8)), 8, 4, 0.1),
    "openfl, differences": lambda: read.read_openfl(keyed(CHANGE, "trained", "delta"), STATE, 8, 4, 0.1),
    "openfl, weights": lambda: read.read_openfl(
        keyed(AFTER, "trained") | keyed({"loss": torch.ones(1)}, "metric"), STATE, 8, 4, 0.1
    ),
}


@pytest.mark.parametrize("form", READ)
def test_every_form_gives_the_change_of_the_parameters(form):
    update = READ[form]()
    assert (update.kind, update.samples, update.steps, update.lr) == ("delta", 8, 4, 0.1)
    assert update.tensors.keys() == CHANGE.keys()
    for name, change in CHANGE.items():
        torch.testing.assert_close(update.tensors[name], change)


def test_what_is_masked_or_encrypted_ends_in_an_error():
    for is_gradient in (True, False):
        with pytest.raises((ValueError, AttributeError, TypeError, RuntimeError)):
            read.read_appfl(({"type": "masked_update_flat"}, STEPS), STATE, 8, 0.1, is_gradient)
    with pytest.raises(AttributeError):
        read.read_declearn(Fields(encrypted=[1], n_steps=1), 8, 0.1)
