"""Updates that hold a frozen last layer as zeros, as differences of whole states do: no attack reads the zeros."""

import pytest
import torch
from torch import nn

from fedleak.attacks.registry import WITH_AUXILIARY, Need, all_attacks, get
from fedleak.data import Images
from fedleak.errors import WithheldParameter
from fedleak.federated import Update
from fedleak.federated.update import without_frozen

Y = torch.tensor([0] * 5 + [2, 3, 3])
OWN_LIMITS = ("iDLG", "head splitting")
"""Attacks that refuse eight samples of four classes anyway."""
READING = [
    attack.name
    for attack in all_attacks()
    if attack.goal == "labels"
    and attack.checks
    and Need.HEAD_GRADIENT in attack.needs
    and attack.name not in OWN_LIMITS
]


def trained(seed, *, frozen):
    """Return a model before a step, and the difference of its whole states."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    model[2].requires_grad_(not frozen)
    x, before = torch.rand(8, 20), {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    nn.functional.cross_entropy(model(x), Y).backward()
    optimiser.step()
    update = Update.from_states(before, model.state_dict(), 8, 1, 0.1)
    model.load_state_dict(before)
    return model, update


@pytest.mark.parametrize("name", READING)
def test_an_attack_on_the_last_layer_refuses_a_frozen_one(name):
    model, update = trained(0, frozen=True)
    assert not update.tensors["2.weight"].any()
    aux = {"aux": Images(torch.rand(40, 20), torch.arange(40) % 4)} if Need.AUXILIARY_DATA in get(name).needs else {}
    with pytest.raises((WithheldParameter, ValueError), match="withholds"):
        get(name)(update, model, adversary=WITH_AUXILIARY, **aux)


@pytest.mark.parametrize("seed", range(3))
def test_a_trained_last_layer_of_a_frozen_copy_is_read(seed):
    """Somebody may freeze the model for the attack: what moved counts."""
    model, update = trained(seed, frozen=False)
    expected = get("iLRG")(update, model, adversary=WITH_AUXILIARY)
    counts = get("iLRG")(update, model.requires_grad_(False), adversary=WITH_AUXILIARY)
    assert counts.tolist() == expected.tolist()


def test_only_parameters_that_did_not_move_while_others_did_are_left_out():
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    zero = {"weight": torch.zeros(2, 2), "bias": torch.zeros(2)}
    assert without_frozen(zero, model).keys() == {"weight", "bias"}
    assert without_frozen({**zero, "bias": torch.ones(2)}, model).keys() == {"bias"}
    assert without_frozen({**zero, "weight": torch.ones(2, 2)}, model).keys() == {"weight"}
