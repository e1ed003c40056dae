"""What a set-up refuses, and in which words."""

import warnings

import pytest
import torch
from networks import Text, Two, mlp
from torch import nn

from fedleak.attacks.registry import MALICIOUS_AGGREGATOR, WITH_AUXILIARY
from fedleak.audit import Setup, audit
from fedleak.audit.case import prepare
from fedleak.audit.setup import MOST_SEED
from fedleak.data import load
from fedleak.federated.defences import PureNoise
from fedleak.federated.restricted import Withhold
from fedleak.privacy.claim import DPSGD

NOISE = PureNoise(sigma=0.01, seed=0)
WRONG = [
    *(("batch_size", 0), ("trials", 2.5), ("remedy_trials", -1), ("lr", "0.1"), ("lr", True), ("claimed", 3.0)),
    *(("seed", 1.5), ("seed", -5), ("seed", 2**62), ("claimed", ("a", "b")), ("shape", 20), ("shape", "20")),
    *(("model", "resnet18"), ("algorithm", "fedsam"), ("algorithm", ["fedsgd"]), ("composition", "skewed")),
    *(("adversary", "mallory"), ("adversary", 1), ("dp_sgd", 1.0), ("defences", NOISE), ("defences", None)),
    *(("defences", [PureNoise]), ("defences", [None]), ("name", 3), ("momentum", 0.9), ("regularisation", 0.1)),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_set_up_refuses_a_value_and_names_it(name, value):
    with pytest.raises(ValueError, match=name):
        Setup(**{"model": mlp(), name: value})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 3}, "choose algorithm='fedavg'"),
        ({"algorithm": "fedavg", "momentum": 0.9}, "momentum is in"),
        ({"defences": ["noise"]}, "defences is a list of instances, say .PureNoise"),
        ({"adversary": MALICIOUS_AGGREGATOR}, "say of how many clients"),
        ({"claimed": (-1.0, 1e-5)}, "claimed is a pair"),
        ({"algorithm": "fedavg", "dp_sgd": DPSGD(noise_multiplier=1.0, max_grad_norm=1.0)}, "algorithm='fedsgd'"),
    ],
)
def test_a_set_up_refuses_what_does_not_go_together(changes, message):
    with pytest.raises(ValueError, match=message):
        Setup(**{"model": mlp(), **changes})


def test_the_largest_seed_can_be_used():
    setup = Setup(
        model=mlp(), shape=(3, 8, 8), batch_size=4, trials=1, remedy_trials=1, seed=MOST_SEED, defences=[NOISE]
    )
    assert audit(setup, fast=True).measured


def test_the_strongest_adversary_is_the_default():
    assert Setup(model=mlp()).attacker is WITH_AUXILIARY
    many = Setup(model=mlp(), clients=5).attacker
    assert (many.sees, many.server) == ("aggregate", "malicious")
    assert Setup(model=mlp(), clients=5, adversary="auxiliary knowledge").attacker.sees == "aggregate"


def old_weight_norm():
    with warnings.catch_warnings(action="ignore"):
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(20, 32)), nn.ReLU(), nn.Linear(32, 6))


POOLED = nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)


@pytest.mark.parametrize(
    ("make", "shape", "message"),
    [
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten()), (3, 8, 8), "has no fully connected layer"),
        (Text, None, r"inputs are integer tokens, .* \(an audit: data, or shape=\(L,\)\)"),
        (mlp, (3, 9, 9), r"does not take 2 inputs of torch.float32 \(3, 9, 9\) in training mode"),
        (lambda: mlp().requires_grad_(False), (3, 8, 8), "no parameter that is trained"),
        (lambda: 3, (3, 8, 8), "gives a int, not an nn.Module"),
        (old_weight_norm, (20,), r"cannot be copied .* use torch\.nn\.utils\.parametrizations\.weight_norm"),
        (lambda: nn.Sequential(*POOLED), None, "pass shape"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(make, shape, message):
    with pytest.raises(ValueError, match=message):
        prepare(Setup(model=make, shape=shape))


def test_a_wrong_name_of_the_head_is_refused_and_the_right_one_read():
    model = Two()
    model.head_name = "other"
    with pytest.raises(ValueError, match=r"set model\.head_name"):
        prepare(Setup(model=model, shape=(20,)))
    model.head_name = "head"
    assert prepare(Setup(model=model, shape=(20,))).classifier.n_classes == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x, y + 1), "labels are 1 to 5, but the model has the classes 0 to 4"),
        (lambda x, y: (x, -y), "labels are -4 to 0"),
        (lambda x, y: (x[:10], y), "data are x"),
        (lambda x, y: (x, y.double()), "y of whole numbers"),
        (lambda x, y: ((255 * x).byte(), y), "x of floats"),
        (lambda x, y: (x * torch.nan, y), "NaN"),
        (lambda x, y: (x[..., :4], y), r"the data are of shape \(3, 8, 4\)"),
        (lambda x, y: x, "a pair of tensors"),
        (lambda x, y: (x[:1], y[:1]), "one sample"),
        (lambda x, y: (x[y > 0], y[y > 0]), "holds no sample of 'class 0'"),
    ],
)
def test_data_that_do_not_fit_are_refused(coloured, change, message):
    with pytest.raises(ValueError, match=message):
        prepare(Setup(model=mlp(), shape=(3, 8, 8), data=change(*coloured)))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.full((40, 8), -1), "tokens must not be negative, found -1: pad with a token of its own"),
        (torch.arange(320).view(40, 8) % 51, r"does not take 2 inputs of torch.int64 \(8,\).*out of range"),
        (torch.zeros(40, 8, dtype=torch.uint8), "x of floats, or of tokens"),
    ],
)
def test_texts_that_do_not_fit_are_refused(x, message):
    with pytest.raises(ValueError, match=message):
        prepare(Setup(model=Text(), data=(x, torch.arange(40) % 6)))


def test_shape_and_classes_follow_from_the_data(coloured):
    case = prepare(Setup(model=mlp(), data=coloured, auxiliary=7))
    assert (case.classifier.shape, case.classifier.n_classes, len(case.clients)) == ((3, 8, 8), 5, 200)
    assert case.aux.class_counts.tolist() == [7] * 5
    x, y = coloured
    case = prepare(Setup(model=mlp(), data=(20 * x - 10, y), auxiliary=1000))  # inputs of any range
    mine, theirs = ({tuple(row) for row in part.x.flatten(1).tolist()} for part in (case.clients, case.aux))
    assert (len(mine) + len(theirs), mine & theirs) == (400, set()), "clients and adversary share no sample"
    images = load("synthetic", shape=(3, 8, 8), n_classes=4, count=80)
    named = prepare(Setup(model=mlp(), data=images, composition="data"))
    assert named.aux.classes == ("pattern 0", "pattern 1", "pattern 2", "pattern 3", "class 4")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"defences": [Withhold(["fc.weight"])]}, r"the parameter .fc.weight.; what is left is: 1.bias, 1.weight"),
        ({"algorithm": "fedavg", "steps": 20, "lr": 1e30}, "learning rate too high"),
        ({"algorithm": "fedavg", "steps": 2, "clients": 3}, "one local step"),
    ],
)
def test_what_goes_wrong_with_a_client_is_told(changes, message):
    with pytest.raises(ValueError, match=message):
        audit(Setup(model=mlp(), shape=(3, 8, 8), trials=1, **changes))
