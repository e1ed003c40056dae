"""The chain of layers is found in the model itself, however it is written."""

import pytest
import torch
from networks import Residual
from torch import nn

from fedleak.models import build, chain


@pytest.mark.parametrize(
    ("name", "shape", "chained"),
    [
        ("mlp6", (1, 28, 28), ["1", "3", "5", "7", "9", "11", "13"]),
        ("lenet", (1, 28, 28), ["7", "9", "11"]),
        ("resnet18-conv", (3, 32, 32), ["avgpool.0", "fc"]),
        ("resnet20", (3, 32, 32), ["bridge", "fc"]),
    ],
)
def test_the_papers_networks(name, shape, chained):
    layers = chain(build(name, shape, 10, seed=0))
    assert [link.name for link in layers.links] == chained
    assert [link.relu for link in layers.links[:-1]] == [name != "resnet20"] * (len(chained) - 1)
    assert not layers.links[-1].relu
    if name == "mlp6":
        assert [link.layer.out_features for link in layers.links] == [2048, 1024, 512, 256, 128, 64, 10]
    if name == "resnet18-conv":
        assert layers.links[0].layer.weight.shape == (512, 512, 4, 4)


class Functional(nn.Module):
    """Functions instead of modules, layers named and declared in another order than they are used."""

    def __init__(self):
        super().__init__()
        self.z = nn.Linear(6, 3)
        self.a = nn.Linear(8, 6, bias=False)
        self.m = nn.Linear(10, 8)
        self.input_shape = (10,)

    def forward(self, x):
        h = torch.relu(self.m(x)).view(-1, 8)
        return self.z(nn.functional.relu(self.a(h)))


def test_functions_and_any_order():
    model = Functional()
    layers = chain(model)
    assert [link.name for link in layers.links] == ["m", "a", "z"]
    assert layers.end == "below 'm' come the images"
    assert all(p.grad is None for p in model.parameters())


def test_a_shortcut_ends_the_chain():
    layers = chain(Residual(), (20,))
    assert [link.name for link in layers.links] == ["c"]
    assert "(Add)" in layers.end


def test_dropout_ends_the_chain_in_training_mode_only():
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 3))
    assert [link.name for link in chain(model).links] == ["3"]
    assert [link.name for link in chain(model.eval()).links] == ["0", "3"]
