"""AGIC on the inversion engine: layer weights, one batch for many steps, several epochs, matching."""

import dataclasses
import math

import pytest
import torch
from test_inversion import CLASSES, SHAPE, batch, tiny
from torch import nn

from fedleak.attacks.images import agic, engine, invg
from fedleak.federated import fedavg, fedsgd
from fedleak.models import build


def test_layer_weights_by_hand():
    model = build("resnet20-1", SHAPE, CLASSES, seed=0).eval()
    update = fedsgd(model, torch.rand(1, *SHAPE), torch.tensor([1]))
    weights = agic.layer_weights(21.0, relu=False)(update, model)
    assert set(weights) == {name for name, _ in model.named_parameters()}
    # 21 convolutions from 1 to 21: the first is 1, the second 2; a norm has its convolution's; the head has the mean.
    assert weights["stem.0.weight"] == weights["stem.1.bias"] == 1
    assert weights["blocks.0.conv1.weight"] == weights["blocks.0.bn1.weight"] == pytest.approx(2)
    assert weights["blocks.8.conv2.weight"] == pytest.approx(21)
    assert weights["fc.weight"] == weights["fc.bias"] == pytest.approx(11)
    assert agic.layer_weights(21.0, relu=False, norms="one")(update, model)["blocks.0.bn1.weight"] == 1
    # A quarter of a convolution's gradient zero: 4/3 of the weight.
    quarter = dict(update.tensors)
    quarter["stem.0.weight"] = torch.ones(16, 3, 3, 3)
    quarter["stem.0.weight"][:4] = 0
    assert agic.layer_weights(21.0)(update.replace(quarter), model)["stem.0.weight"] == pytest.approx(4 / 3)


def test_a_norm_before_the_first_convolution_has_its_weight():
    layers = nn.BatchNorm2d(3), nn.Conv2d(3, 2, 3), nn.Conv2d(2, 2, 3), nn.Flatten(), nn.Linear(32, CLASSES)
    model = nn.Sequential(*layers)
    update = fedsgd(model, torch.rand(2, *SHAPE), torch.tensor([1, 2]))
    weights = agic.layer_weights(3.0, relu=False)(update, model)
    assert list(weights.values()) == [1, 1, 1, 1, 3, 3, 2, 2]


@pytest.mark.parametrize("shape", ["linear", "log", "exp"])
def test_layer_functions_pass_through_both_points_and_bend(shape):
    up = agic.layer_function(shape, 21, 2.0)
    assert up[0] == pytest.approx(1)
    assert up[-1] == pytest.approx(2)
    assert up == sorted(up)
    middle = {"linear": 1 / 2, "log": math.log(2, 3), "exp": 1 / (math.e + 1)}[shape]
    assert agic.layer_function(shape, 3, 2.0) == pytest.approx([1, 1 + middle, 2])
    assert agic.layer_function("none", 3, 9.0) == [1, 1, 1]


def test_the_one_batch_error_vanishes_with_the_learning_rate():
    model, (x, y) = tiny(), batch(4, 1)
    errors = [agic.one_batch_error(fedavg(model, x, y, lr, "delta"), model, x, y) for lr in (1e-6, 1e-5)]
    assert errors[1] == pytest.approx(10 * errors[0], rel=0.05)
    assert agic.one_batch_error(fedavg(model, x[:1], y[:1], 0.5, "delta"), model, x[:1], y[:1]) < 1e-9


def test_agic_warns_above_its_range_and_infers_labels():
    model, (x, y) = tiny(), batch(4, 1)
    assert invg.inferred(fedsgd(model, x[:, 0], y[:, 0]), model).tolist() == [0, 1, 2, 3]
    with pytest.warns(UserWarning, match=r"4 local steps with learning rate 5: .* off by \d+ % of the gradient"):
        images = agic.reconstruct(fedavg(model, x, y, 5.0, "delta"), model, iterations=1)
    assert images.shape == (4, *SHAPE)


def test_two_epochs_share_their_dummies():
    model, other, (x, y) = tiny(), tiny(1), batch(1, 3)
    rounds = [[fedsgd(model, x[0, :2], y[0, :2])], [fedsgd(other, x[0, [2, 0]], y[0, [2, 0]])]]
    labels = [y[:, :2], y[:, [2, 0]]]
    shared = agic.invert_many(rounds, [model, other], labels, index=[[0, 1], [2, 0]], iterations=3)
    assert shared.images.shape == (1, 3, *SHAPE)
    single = agic.invert_many(rounds[:1], [model], labels[:1], iterations=3)
    assert not torch.equal(shared.images[:, 0], single.images[:, 0])
    views = [
        engine.View(u, m, y_, i, epoch_weight=g)
        for u, m, y_, i, g in zip(rounds, [model, other], labels, [[0, 1], [2, 0]], agic.GAMMAS, strict=True)
    ]
    exact = engine.Problem(views, agic.AGIC, SHAPE)
    value, _ = exact.evaluate([x.clone()])
    assert value.item() == pytest.approx(0, abs=1e-9)


def test_later_epochs_count_a_tenth(monkeypatch):
    model, (x, y) = tiny(), batch(1, 2)
    rounds = [[fedsgd(model, x[0], y[0])], [fedsgd(model, x[0] / 2, y[0])], [fedsgd(model, x[0] / 3, y[0])]]
    views, options = [], []
    noted = lambda new_views, *descent, **_: (views.extend(new_views), options.extend(descent))
    monkeypatch.setattr(agic, "invert", noted)
    agic.invert_many(rounds, [model] * 3, [y] * 3)
    dummy = [torch.rand(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(1))]
    together, *by_epoch = (
        engine.Problem(v, *options, SHAPE).evaluate([d.clone() for d in dummy])[0].item()
        for v in (views, *([dataclasses.replace(v, epoch_weight=1.0)] for v in views))
    )
    assert together == pytest.approx(by_epoch[0] + 0.1 * by_epoch[1] + 0.1 * by_epoch[2])


def test_greedy_matching_by_hand():
    errors = torch.tensor([[0.5, 0.1, 0.9], [0.2, 0.15, 0.8], [0.3, 0.7, 0.6]])
    assert agic.greedy_pairs(errors).tolist() == [1, 0, 2]  # 0.1, then 0.2, then what is left
    allowed = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 0]]).bool()
    assert agic.greedy_pairs(errors, allowed).tolist() == [0, 1, 2]
    lists = torch.tensor([[0, 1], [2, 3]]), torch.tensor([[1, 4], [5, 6]])
    assert agic.share_a_label(*lists).tolist() == [[True, False], [False, False]]
    x = torch.rand(2, 3, 4, 4)
    checker = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).repeat(2, 2)
    assert agic.similarity(x, x + 0.1 * checker, 2).diagonal().max() < 1e-6  # pooling takes away such noise
    assert agic.similarity(x, x + 0.1 * checker, 1).diagonal().min() == pytest.approx(0.01, rel=1e-3)
