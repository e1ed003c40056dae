"""Updates that hold a frozen last layer as zeros, as differences of whole states do: no attack reads the zeros."""

import pytest
import torch
from networks import LoRA
from torch import nn
from updates import train_by_sgd

from fedleak.attacks.labels import adapter
from fedleak.attacks.registry import WITH_AUXILIARY, get
from fedleak.data import Images
from fedleak.errors import WithheldParameter
from fedleak.federated import Update
from fedleak.federated.update import without_frozen

Y = torch.tensor([0] * 5 + [2, 3, 3])


def trained(seed, *, frozen):
    """Return a model before a step, and the difference of its whole states."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    model[2].requires_grad_(not frozen)
    after, _ = train_by_sgd(model, [(torch.rand(8, 20), Y)], lr=0.1)
    return model, Update.from_states(model.state_dict(), after.state_dict(), 8, 1, 0.1)


@pytest.mark.parametrize("name", ["LLG", "iLRG", "RLG"])
def test_an_attack_on_the_last_layer_refuses_a_frozen_one(name):
    model, update = trained(0, frozen=True)
    assert not update.tensors["2.weight"].any()
    with pytest.raises(WithheldParameter, match="withholds"):
        get(name)(update, model, adversary=WITH_AUXILIARY)


def test_only_parameters_that_alone_did_not_move_are_left_out():
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    zero = {"weight": torch.zeros(2, 2), "bias": torch.zeros(2)}
    assert without_frozen(zero, model).keys() == {"weight", "bias"}
    assert without_frozen({**zero, "bias": torch.ones(2)}, model).keys() == {"bias"}
    assert without_frozen({**zero, "weight": torch.ones(2, 2)}, model).keys() == {"weight"}


@pytest.mark.parametrize("kind", ["bias", "adapter"])
def test_the_rows_direction_tells_one_sample_of_two_classes(kind):
    torch.manual_seed(0)
    head = nn.Linear(8, 2, bias=kind == "bias")
    model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), head).requires_grad_(False)
    if kind == "bias":
        head.bias.requires_grad_(True)
    else:
        model = nn.Sequential(model[0], model[1], LoRA(head))
    aux = Images(torch.rand(40, 12), torch.arange(40) % 2)
    for x, y in zip(torch.rand(20, 1, 12), torch.arange(20) % 2, strict=True):
        loss = nn.functional.cross_entropy(model(x), y[None])
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        tensors = dict(zip(trained, torch.autograd.grad(loss, [*trained.values()]), strict=True))
        counts = adapter.prepare(model, aux).recover(Update(tensors, "gradient", 1)).counts
        assert counts.argmax() == y
