"""VGG-16 without batch norm, and other activations in the place of ReLU."""

import pytest
import torch
from torch import nn

from fedleak.models import ACTIVATIONS, build, count_parameters, head


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("name", ["lenet", "resnet18"])
def test_every_relu_is_replaced_and_the_weights_stay(name, activation):
    plain, other = (build(name, (3, 32, 32), 10, seed=3, activation=a) for a in (None, activation))
    assert all(a.equal(b) for a, b in zip(plain.parameters(), other.parameters(), strict=True))
    assert any(isinstance(m, ACTIVATIONS[activation]) for m in other.modules())
    assert activation == "relu" or not any(isinstance(m, nn.ReLU) for m in other.modules())


def test_vgg16_and_a_quarter_of_it():
    whole, quarter = (build(name, (3, 32, 32), 10, seed=0) for name in ("vgg16", "vgg16-quarter"))
    assert [m.out_channels for m in quarter.modules() if isinstance(m, nn.Conv2d)][-1] == 128
    assert head(whole).layer.in_features == 4096
    assert count_parameters(whole) / count_parameters(quarter) == pytest.approx(16, rel=0.05)
    assert quarter(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def test_bad_requests():
    with pytest.raises(ValueError, match="unknown activation 'swish'"):
        build("lenet", (1, 28, 28), 10, seed=0, activation="swish")
    with pytest.raises(ValueError, match="has no ReLU"):
        build("cnn", (1, 28, 28), 10, seed=0, activation="tanh")
    with pytest.raises(ValueError, match="vgg16 takes images"):
        build("vgg16", (1, 28, 28), 10, seed=0)
