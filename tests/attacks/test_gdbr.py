"""GDBR: exact where its assumptions hold, honest where they do not, and clear about bad input."""

import dataclasses
import math
from types import SimpleNamespace

import pytest
import torch
from networks import dense
from torch import nn

from fedleak import WithheldParameter, metrics
from fedleak.attacks.labels import gdbr
from fedleak.attacks.registry import RESTRICTED, get
from fedleak.data import load
from fedleak.federated import fedsgd
from fedleak.models import build, chain, positive_


def positive(*widths, seed=0):
    return positive_(dense(*widths, seed=seed), torch.Generator().manual_seed(seed))


def same_images(model, y, seed=0):
    """A batch of one image under many labels: Assumptions 1 and 2 hold exactly."""
    first = chain(model).links[0].layer
    x = torch.rand(1, first.in_features, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return x, fedsgd(model, x.expand(len(y), -1), y)


def facts_of(update, model, aux=None, **options):
    """What GDBR finds and how."""
    result = gdbr.prepare(model, aux, **options).recover(update)
    return SimpleNamespace(counts=result.counts, **result.facts)


@pytest.mark.parametrize(("projection", "layer"), [("paper", "0"), ("one vector", "2"), ("whitened", "4")])
def test_exact_where_the_assumptions_hold(projection, layer):
    model = positive(40, 30, 20, 12, 5)
    y = torch.tensor([0, 0, 0, 2, 4, 4])
    x, update = same_images(model, y)
    facts = facts_of(update, model, x, layer=layer, projection=projection)
    assert facts.counts.tolist() == [3, 0, 1, 0, 2]
    torch.testing.assert_close(facts.estimates, facts.counts.double(), atol=1e-6, rtol=0)
    assert facts.layer == layer
    assert facts.deficient == ()


@pytest.mark.parametrize("layer", ["0", "2", "4"])
def test_dead_units_are_left_out_and_the_rest_is_exact(layer):
    model = dense(40, 60, 50, 40, 5, bias=False)
    x, update = same_images(model, torch.tensor([1, 1, 3]))
    facts = facts_of(update, model, x, layer=layer, projection="one vector")
    assert facts.zero_features > 5
    torch.testing.assert_close(facts.estimates, torch.tensor([0.0, 2, 0, 1, 0]).double(), atol=1e-6, rtol=0)


def test_biases_are_accounted_for():
    model = dense(40, 30, 12, 5)
    with torch.no_grad():
        for link in chain(model).links:
            link.layer.weight.uniform_(0.01, 0.2, generator=torch.Generator().manual_seed(0))
            link.layer.bias.fill_(-0.05)
    x, update = same_images(model, torch.tensor([1, 1, 3]))
    assert gdbr.recover(update, model, x).tolist() == [0, 2, 0, 1, 0]


def test_one_convolution_with_one_output_a_channel():
    model = nn.Sequential(nn.Conv2d(2, 12, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4)).double()
    model.input_shape = (2, 3, 3)
    positive_(model, torch.Generator().manual_seed(0))
    del model.input_shape  # the images tell it
    x = torch.rand(1, 2, 3, 3, dtype=torch.float64)
    update = fedsgd(model, x.expand(5, -1, -1, -1), torch.tensor([0, 0, 1, 3, 3])).without("3.weight")
    for projection in ("paper", "one vector", "whitened"):
        assert gdbr.recover(update, model, x, projection=projection).tolist() == [2, 1, 0, 2]


def test_a_projection_divides_by_the_share_of_active_images():
    bridge, generator = gdbr.Bridge(positive(4, 3, 2), "0"), torch.Generator().manual_seed(1)
    observed = bridge.observe(torch.rand(8, 4, dtype=torch.float64, generator=generator))
    observed = dataclasses.replace(observed, rates=(torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64),))
    gradient = torch.rand(3, 4, dtype=torch.float64, generator=generator)
    for projection in ("one vector", "whitened"):
        by_hand = gradient @ observed.vector(projection) * torch.tensor([1, 2, 1])  # of a dead unit nothing is known
        torch.testing.assert_close(bridge.first_step(gradient, observed, projection), by_hand)


def test_one_vector_scales_every_sample_alone():
    """The theorem of the notebook: all units active, then the logits' gradient is sum_n s_n (p_n - y_n) / B."""
    model = positive(30, 25, 20, 6)
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(8, 30, dtype=torch.float64, generator=generator)
    aux = torch.rand(50, 30, dtype=torch.float64, generator=generator)
    y = torch.randint(6, (8,), generator=generator)
    bridge = gdbr.Bridge(model, "0")
    features = bridge.observe(aux)
    for projection in ("one vector", "whitened"):
        v = features.vector(projection)
        scale = x @ v
        delta = model(x).softmax(1).detach() - nn.functional.one_hot(y, 6)
        update = fedsgd(model, x, y)
        first = bridge.first_step(update.gradient("0.weight"), features, projection)
        gradient = bridge.cross(features).matrix @ first
        torch.testing.assert_close(gradient, (scale[:, None] * delta).mean(0), atol=1e-8, rtol=1e-6)
        assert (aux @ v).mean().item() == pytest.approx(1)
    spread = {p: (aux @ features.vector(p)).std() for p in ("one vector", "whitened")}
    assert spread["whitened"] < spread["one vector"]


def test_lenet_with_the_last_layer_withheld():
    pool = load("synthetic", shape=(1, 28, 28), n_classes=10, count=600)
    model = build("lenet", (1, 28, 28), 10, seed=0, init="positive")
    y = torch.tensor([0] * 20 + [1] * 10 + [7] * 34)
    index = torch.stack([pool.of_class(int(c))[i % 30] for i, c in enumerate(y)])
    update = fedsgd(model, pool.x[index], y).without("11.weight")
    truth = metrics.counts(y, 10)
    aux = pool.take(torch.arange(300, 600))
    for projection in ("paper", "one vector", "whitened"):
        counts = gdbr.recover(update, model, aux, projection=projection)
        assert metrics.instance_accuracy(counts, truth) >= 0.92
    bridge = gdbr.Bridge(model)
    assert torch.equal(bridge.observe(aux).inputs, bridge.observe(aux.x).inputs)
    assert get("GDBR")(update, model, adversary=RESTRICTED, aux=aux).sum() == 64


def test_the_highest_shared_layer_is_used():
    model = positive(20, 15, 10, 5)
    _, update = same_images(model, torch.tensor([1]))
    assert facts_of(update, model).layer == "2"
    assert facts_of(update.without("2.weight"), model).layer == "0"
    for less, layer in ((update.without("2.weight", "0.weight"), None), (update.without("2.weight"), "2")):
        with pytest.raises(WithheldParameter, match=r"2\.weight"):
            gdbr.recover(less, model, layer=layer)


def test_a_widening_layer_is_crossed_by_its_pseudo_inverse():
    model = positive(20, 8, 12, 5)
    x, update = same_images(model, torch.tensor([1, 1]))
    facts = facts_of(update, model, x, layer="0")
    assert facts.deficient == ("2",)
    assert facts.counts.sum() == 2
    with pytest.raises(ValueError, match="'2'"):
        gdbr.recover(update, model, x, layer="0", pseudo_inverse=False)
    assert facts_of(update, model, x, pseudo_inverse=False).deficient == ()


def test_singular_weights():
    model = positive(20, 10, 5)
    x, update = same_images(model, torch.tensor([1, 1]))
    with torch.no_grad():
        chain(model).links[1].layer.weight[3] = chain(model).links[1].layer.weight[0]
    assert facts_of(update, model, x).deficient == ("2",)
    with torch.no_grad():
        chain(model).links[1].layer.weight.zero_()
    with pytest.raises(ValueError, match="'2'"):
        gdbr.recover(update, model, x)
    with torch.no_grad():
        chain(model).links[1].layer.weight.fill_(math.nan)
    with pytest.raises(ValueError, match="NaN"):
        gdbr.recover(update, model, x)


def test_some_zero_features_take_the_mean_of_the_others():
    model = dense(20, 10, 5, bias=False)
    x, update = same_images(model, torch.tensor([1, 1]))
    bridge = gdbr.Bridge(model)
    features = bridge.observe(x)
    assert (features.outputs == 0).any()
    gradient = update.gradient("0.weight")
    outputs = features.outputs.clone()
    outputs[outputs == 0] = outputs[outputs != 0].mean()
    expected = (gradient * chain(model).links[0].layer.weight).sum(1) / outputs
    torch.testing.assert_close(bridge.first_step(gradient, features), expected.detach())


@pytest.mark.parametrize(
    ("model", "shape", "layer", "message"),
    [
        (build("cnn", (1, 28, 28), 10, seed=0), None, None, r"'7' .*Sigmoid"),
        (nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten()), (1, 2, 2), None, "'0' is a convolution"),
        (build("lenet", (1, 28, 28), 10, seed=0), None, "3", "'3'.*MaxPool"),
    ],
)
def test_models_without_a_chain_say_which_layer_breaks_it(model, shape, layer, message):
    with pytest.raises(ValueError, match=message):
        gdbr.Bridge(model, layer, shape=shape)
