"""Restricted sharing: what is withheld is not there, and comes back only where the protocol says so."""

import pytest
import torch

from fedleak import WithheldParameter
from fedleak.federated import fedsgd
from fedleak.federated.defences import protect, protections
from fedleak.federated.restricted import FedVF, Withhold, last_layers, partially_encrypted
from fedleak.models import build


def model_and_update(seed=0):
    model = build("lenet", (1, 28, 28), 10, seed=0)
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(4, 1, 28, 28, generator=generator)
    return model, fedsgd(model, x, torch.randint(10, (4,), generator=generator))


def test_last_layers_are_counted_from_the_outputs():
    model, _ = model_and_update()
    assert last_layers(model) == ("11.weight", "11.bias")
    assert last_layers(model, 2) == ("9.weight", "9.bias", "11.weight", "11.bias")
    with pytest.raises(ValueError, match="layers"):
        last_layers(model, 4)


@pytest.mark.parametrize("registered", [False, True])
def test_what_is_withheld_is_absent(registered):
    model, update = model_and_update()
    defence = (
        protections()["last layer encrypted"].make(0.0, model, 1, 0) if registered else Withhold(last_layers(model))
    )
    shared = protect(update, defence)
    assert update.tensors.keys() - shared.tensors.keys() == {"11.weight", "11.bias"}
    with pytest.raises(WithheldParameter, match=r"withholds '11.weight'"):
        shared.gradient("11.weight")
    with pytest.raises(WithheldParameter):
        protect(shared, defence)


def test_fedvf_sends_the_accumulated_classifier_every_third_round():
    model, update = model_and_update()
    names = last_layers(model)
    defence = FedVF(names, every=3, clients=2)
    sent = [protect(update, defence, client=1) for _ in range(6)]
    assert [names[0] in s.tensors for s in sent] == [False, False, True] * 2
    for s in (sent[2], sent[5]):
        torch.testing.assert_close(s.tensors[names[0]], 3 * update.tensors[names[0]])
    assert all(torch.equal(s.tensors["7.weight"], update.tensors["7.weight"]) for s in sent)
    assert names[0] in protect(update, FedVF(names, every=1, clients=1)).tensors, "every round is the least"
    with pytest.raises(ValueError, match="at least 1"):
        FedVF(names, every=0)


def test_partial_encryption_shows_the_sum_of_what_it_hides():
    model, _ = model_and_update()
    updates = [model_and_update(seed)[1] for seed in range(3)]
    names = last_layers(model)
    clear, aggregate = partially_encrypted(updates, names)
    assert aggregate.tensors.keys() == set(names)
    for update, seen in zip(updates, clear, strict=True):
        assert seen.tensors.keys() == update.tensors.keys() - set(names)
    total = sum(u.tensors["11.weight"] for u in updates)
    torch.testing.assert_close(aggregate.tensors["11.weight"].float(), total, atol=1e-6, rtol=0)
