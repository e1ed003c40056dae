"""The networks by name: the sizes that the papers print, their initialisation, bad requests."""

import pytest
import torch
from torch import nn

from fedleak.attacks import words
from fedleak.federated import fedsgd
from fedleak.models import ACTIVATIONS, build, count_parameters, head, input_shape, known_tokens

ANY_SIZE = ["cnn", "lenet", "resnet20", "resnet20-relu", "fcn3"]


def convolutions(model, size=3):
    return [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (size, size)]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *zip(ANY_SIZE, [(1, 28, 28), (3, 32, 32), (1, 28, 28), (3, 32, 32), (3, 32, 32)], strict=True),
        ("cnn", (1, 33, 33)),
        ("resnet18-imagenet", (1, 32, 32)),
    ],
)
def test_shapes_chain(name, shape):
    model = build(name, shape, 7, seed=0).eval()
    assert model(torch.rand(2, *shape)).shape == (2, 7)
    assert input_shape(model) == shape
    assert head(model).layer.out_features == 7


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        # 12 * 25 + 12, then twice 12 * 12 * 25 + 12, then 588 * 10 + 10
        ("cnn", (1, 28, 28), 10, 312 + 2 * 3612 + 5890),
        # 6 * 25 + 6, 16 * 6 * 9 + 16, 576 * 120 + 120, 120 * 84 + 84, 84 * 10 + 10
        ("lenet", (1, 32, 32), 10, 156 + 880 + 69_240 + 10_164 + 850),
        ("vgg11_bn", (3, 32, 32), 10, 28_149_514),  # behind LIA-SA's Table II
        ("vgg11", (1, 32, 32), 10, 9_220_480 - 2 * 64 * 9 + 513 * 4096 + 4097 * 4096 + 4097 * 10),  # of one channel
        ("resnet20-4", (3, 32, 32), 10, 4_327_754),
        # He et al. (2016, Table 6) print 0.46 M with shortcuts that have none; here two are convolutions and norms
        ("resnet32", (3, 32, 32), 10, 464_154 + (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64)),
    ],
)
def test_parameter_counts(name, shape, classes, parameters):
    with torch.device("meta"):  # no memory
        assert count_parameters(build(name, shape, classes, seed=0)) == parameters


def test_the_text_network_takes_bytes_and_shows_which():
    model = build("textcnn", (32,), 10, seed=0)
    sizes = (256 * 32, 64 * 32 * 3 + 64, 64 * 64 + 64, 64 * 10 + 10)
    assert (known_tokens(model), count_parameters(model)) == (256, sum(sizes))
    x = torch.randint(97, 123, (16, 32), generator=torch.Generator().manual_seed(0))
    assert torch.equal(words.recover(fedsgd(model, x, torch.arange(16) % 10), model), x.unique())


@pytest.mark.parametrize("name", ["cnn", "resnet20"])
def test_build_is_seeded_and_leaves_the_global_random_state_alone(name):
    state = torch.random.get_rng_state()
    one, two, other = (build(name, (1, 28, 28), 10, seed=s) for s in (4, 4, 5))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    weight = head(one).weight
    assert not torch.equal(one.get_parameter(weight), other.get_parameter(weight))


def test_initialisations():
    uniform, default = (build("cnn", (1, 28, 28), 10, seed=0, init=i) for i in (None, "default"))
    assert all(p.abs().max() <= 0.5 for p in uniform.parameters())
    # 5880 draws from U(-0.5, 0.5): standard deviation 0.2887.
    assert head(uniform).layer.weight.std().item() == pytest.approx(0.2887, rel=0.03)
    assert head(default).layer.weight.abs().max() <= 588**-0.5  # PyTorch's bound
    assert build("lenet", (1, 28, 28), 10, seed=0, init="uniform")[0].weight.abs().max() > 0.45


@pytest.mark.parametrize(("name", "activation"), [("lenet", "relu"), ("lenet", "tanh"), ("resnet20-relu", "tanh")])
def test_every_relu_is_replaced_and_the_weights_stay(name, activation):
    plain, other = (build(name, (3, 32, 32), 10, seed=3, activation=a) for a in (None, activation))
    assert all(a.equal(b) for a, b in zip(plain.parameters(), other.parameters(), strict=True))
    assert any(isinstance(m, ACTIVATIONS[activation]) for m in other.modules())
    assert activation == "relu" or not any(isinstance(m, nn.ReLU) for m in other.modules())


@pytest.mark.parametrize(
    ("name", "classes", "options", "message"),
    [
        ("vgg", 10, {}, "vgg"),
        ("cnn", 1, {}, "got 1"),
        ("vgg16", 10, {}, "28 x 28"),
    ],
)
def test_bad_models(name, classes, options, message):
    with pytest.raises(ValueError, match=message):
        build(name, (1, 28, 28), classes, seed=0, **options)
