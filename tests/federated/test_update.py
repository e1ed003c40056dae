"""What the server sees: `Update` reads the same gradient whatever was shared, and refuses what makes no sense."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import dense
from torch import nn
from updates import train_by_sgd

from fedleak import Update, WithheldParameter
from fedleak.federated.update import unwrapped
from fedleak.models import build


def update(**changes):
    fields = {"tensors": {"w": torch.tensor([6.0, -3.0]), "b": torch.ones(1)}, "kind": "gradient", "samples": 6}
    return Update(**{**fields, **changes})


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), lr=st.floats(0.01, 1.0))
def test_gradients_and_states_give_the_same_update_with_uneven_batches(seed, sizes, lr):
    model = dense(3, 4, 3, seed=seed)
    batches = [(torch.rand(size, 3).double(), torch.randint(3, (size,))) for size in sizes]
    after, total = train_by_sgd(model, batches, lr=lr)
    told = {"samples": sum(sizes), "steps": len(sizes), "lr": lr}
    before = copy.deepcopy(model.state_dict())
    for update in (Update(total, "gradient", **told), Update.from_states(before, after.state_dict(), **told)):
        for name, p in model.named_parameters():
            torch.testing.assert_close(update.summed(name), total[name], rtol=1e-8, atol=1e-10)
            torch.testing.assert_close(update.gradient(name), total[name] / len(sizes), rtol=1e-8, atol=1e-10)
            torch.testing.assert_close(update.delta(name), after.state_dict()[name] - p, rtol=1e-8, atol=1e-10)
        end = update.model(model).state_dict()
        for name, value in after.state_dict().items():
            torch.testing.assert_close(end[name], value, rtol=1e-8, atol=1e-10)
        if sum(sizes) % len(sizes):
            with pytest.raises(ValueError, match=r"do not divide into \d equal local batches"):
                _ = update.batch_size
        else:
            assert update.batch_size == sum(sizes) // len(sizes)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_rate_may_be_a_tensor_as_an_optimiser_has_it():
    assert update(lr=torch.tensor(0.5)).lr == 0.5


def test_the_clients_model_of_another_model_is_refused():
    for weight in (torch.zeros(3), torch.full((1, 3), float("nan"))):
        with pytest.raises(ValueError, match="'weight'"):
            update(tensors={"weight": weight}, lr=0.1).model(nn.Linear(3, 1, bias=False))
    with pytest.raises(WithheldParameter, match="'bias'"):
        update(tensors={"weight": torch.zeros(1, 3)}, lr=0.1).model(nn.Linear(3, 1))


def test_states_of_a_model_with_batch_norm():
    model = build("resnet20", (1, 8, 8), 3, seed=0)
    after = copy.deepcopy(model)
    after(torch.rand(4, 1, 8, 8))  # moves the running statistics and their counter
    found = Update.from_states(model.state_dict(), after.state_dict(), 4, 1, 0.1)
    assert set(found.tensors) == {name for name, _ in model.named_parameters()}
    assert not any(t.any() for t in found.tensors.values())
    sent = {name: t for name, t in after.state_dict().items() if "running" not in name and "num_batches" not in name}
    assert Update.from_states(model.state_dict(), sent, 4, 1, 0.1).tensors.keys() == found.tensors.keys(), "FedBN"


def test_states_that_do_not_go_together():
    more, other = {"w": torch.zeros(2), "v": torch.zeros(1)}, {"w": torch.zeros(3)}
    for word, after in (("'v'", more), ("'w'", {}), ("'w'", other), ("after", nn.Linear(1, 2))):
        with pytest.raises(ValueError, match=word):
            Update.from_states({"w": torch.zeros(2)}, after, 4, 1, 0.1)


def test_what_is_no_parameter_is_named():
    zero = torch.zeros(2)
    for value in (None, np.zeros(2), zero.int(), zero > 0, zero + 1j, zero.to_sparse(), zero.to("meta")):
        with pytest.raises(ValueError, match="'odd'"):
            update(tensors={"w": torch.zeros(2), "odd": value})


def test_what_is_withheld_is_named_and_the_rest_is_kept():
    with pytest.raises(WithheldParameter, match=r"fc\.weight") as caught:
        update().gradient("fc.weight")
    assert caught.value.name == "fc.weight"
    assert isinstance(caught.value, KeyError)
    old = update(kind="delta", steps=2, lr=0.1)
    less = old.without("b")
    for read in (less.gradient, less.without):
        with pytest.raises(WithheldParameter, match="'b'"):
            read("b")
    for new in (less, old.replace({"w": torch.zeros(2)}), old.to("cpu").without("b")):
        assert set(new.tensors) == {"w"}
        assert (new.kind, new.samples, new.steps, new.lr) == ("delta", 6, 2, 0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "weights"}, "kind"),
        ({"samples": 0}, "samples"),
        ({"samples": 2.5}, "samples"),
        ({"steps": True}, "steps"),
        ({"steps": 7}, "7 steps"),
        ({"samples": 10**9}, "1,000,000,000"),
        ({"lr": float("inf")}, "learning rate"),
        ({"lr": -0.1}, "learning rate is positive"),
        ({"lr": "0.1"}, "learning rate is a number, not '0.1'"),
        ({"lr": torch.ones(1)}, "learning rate is a number"),
        ({"tensors": [1]}, "tensors"),
        ({"tensors": {3: torch.zeros(1)}}, "names"),
        ({"kind": "delta"}, "lr"),
    ],
)
def test_bad_updates(changes, message):
    with pytest.raises(ValueError, match=message):
        update(**changes)


@pytest.mark.parametrize(
    ("names", "sent"),
    [
        (("a", "b.c"), ("module.a", "module._orig_mod.b.c")),
        (("a.c",), ("a._orig_mod.c",)),
        (("module.a",), ("a",)),
        (("fc.lora_B.default.weight",), ("fc.lora_B.weight",)),
        (("fc.lora_magnitude_vector.default.weight",), ("fc.lora_magnitude_vector",)),
        (("modules_to_save.weight",), ("modules_to_save.weight",)),
    ],
)
def test_names_that_wrappers_changed_are_the_models(names, sent):
    model = torch.nn.Module()
    model.state_dict = lambda: dict.fromkeys(names, torch.zeros(1))
    assert unwrapped(dict.fromkeys(sent, 1), model) == dict.fromkeys(names, 1)
    assert unwrapped({**dict.fromkeys(sent, 1), "other": 2}, model) == {**dict.fromkeys(sent, 1), "other": 2}
