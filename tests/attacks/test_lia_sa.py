"""LIA-SA on systems solved by hand, on honest clients, and on bad input."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedleak import WithheldParameter, metrics
from fedleak.attacks.labels import lia_sa
from fedleak.federated import Update, fedsgd
from fedleak.federated.aggregation import plain_sum
from fedleak.models import build

SHAPE = (1, 8, 8)


def federation(net="fcn3", recipe="vector", clients=3, batch=6, shape=SHAPE, n=4, seed=0):
    """Fishing models, honest updates and true counts."""
    model = build(net, shape, n, seed=seed)
    models = [lia_sa.fishing_model(model, recipe, u, clients, seed) for u in range(clients)]
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(n, (clients, batch), generator=generator)
    updates = [
        fedsgd(m, torch.rand(batch, *shape, generator=generator), labels) for m, labels in zip(models, y, strict=True)
    ]
    return models, updates, metrics.counts(y, n)


def test_the_system_by_hand():
    """Two clients with embeddings (1, 0) and (1, 2), one class with bias gradients 0.25 and -0.5."""
    embeddings = torch.tensor([[1.0, 0.0], [1.0, 2.0]], dtype=torch.float64)
    assert lia_sa.system(embeddings).tolist() == [[1, 1], [1, 1], [0, 2]]
    weight = torch.tensor([[0.25 - 0.5, 2 * -0.5]], dtype=torch.float64)
    solved = lia_sa.disaggregate(embeddings, weight, torch.tensor([-0.25], dtype=torch.float64))
    torch.testing.assert_close(solved, torch.tensor([[0.25], [-0.5]], dtype=torch.float64))
    counts = lia_sa.counts(torch.tensor([[0.5], [0.25]], dtype=torch.float64), solved, 4)
    torch.testing.assert_close(counts, torch.tensor([[1.0], [3.0]], dtype=torch.float64))


def test_conditions_by_hand():
    orthogonal = lia_sa.conditioning_of(torch.tensor([[1.0, 0, 0], [0, 1, 0]]))  # G'G = I + 1: eigenvalues 3 and 1
    assert orthogonal.rank == orthogonal.clients == 2
    assert orthogonal.condition == pytest.approx(math.sqrt(3))
    line = lia_sa.conditioning_of(torch.tensor([[1.0, 1], [2, 2], [3, 3]], dtype=torch.float64))
    assert (line.rank, line.clients) == (2, 3)
    assert line.condition > 1e15
    assert lia_sa.conditioning_of(torch.rand(4, 2)).condition == math.inf


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 10**6))
def test_counts_come_back_exactly(clients, batch, seed):
    models, updates, truth = federation(clients=clients, batch=batch, seed=seed)
    total = plain_sum(updates) if clients > 1 else updates[0]
    assert lia_sa.recover(total, models, batch, SHAPE).equal(truth)


def test_batch_norm_networks():
    models, updates, truth = federation("resnet20-1", clients=2, batch=4, shape=(3, 16, 16), n=20)
    statistics = models[0].stem[1].running_mean.clone()
    assert lia_sa.recover(plain_sum(updates), models, 4, (3, 16, 16)).equal(truth)
    assert models[0].stem[1].running_mean.equal(statistics)


def test_more_models_than_the_server_runs_at_once():
    network = build("resnet20-1", (3, 16, 16), 4, seed=1)  # its head is found by a forward pass
    models = [lia_sa.fishing_model(network, "vector", u, 23, 1) for u in range(23)]
    found = lia_sa.preset(models, (3, 16, 16))
    torch.testing.assert_close(found.inputs[21:], lia_sa.preset(models[21:], (3, 16, 16)).inputs)


def test_fishing_changes_one_layer_and_leaves_the_model():
    model = build("resnet20-1", (3, 16, 16), 5, seed=0)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    fished = lia_sa.fishing_model(model, "literal", 2, 5, 0)
    assert lia_sa.fishing_layer(model) == "stem.1"
    assert fished.stem[1].weight.tolist() == [0.0] * 16
    assert fished.stem[1].bias.tolist() == pytest.approx([0.3] * 16)
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in before.items())
    shared = [n for n, p in fished.named_parameters() if p is dict(model.named_parameters())[n]]
    assert len(shared) == len(list(model.parameters())) - 2
    assert fished.training


def test_recipes():
    assert lia_sa.constants("literal", 4, 5, 3, 0).tolist() == pytest.approx([0.5] * 3)
    log = [lia_sa.constants("log", u, 4, 1, 0).item() for u in range(4)]
    assert log == pytest.approx([1e-4, 1e-3, 1e-2, 1e-1])
    a, b, again = (lia_sa.constants("vector", u, 2, 64, 7) for u in (0, 1, 0))
    assert a.equal(again)
    assert not a.equal(b)
    assert a.min() >= 0
    assert a.max() < 1


def test_evaluation_mode_is_a_line_and_is_refused():
    model = build("resnet20-1", (3, 16, 16), 10, seed=0).eval()
    models = [lia_sa.fishing_model(model, "literal", u, 3, 0) for u in range(3)]
    assert lia_sa.conditioning(models).rank == 2
    ones = Update({n: torch.ones_like(p) for n, p in model.named_parameters()}, "gradient", 3)
    with pytest.raises(ValueError, match="rank 2"):
        lia_sa.prepare(models, 1, (3, 16, 16))
    assert lia_sa.recover(ones, models, 1, (3, 16, 16), force=True).shape == (3, 10)


def test_bad_input():
    models, updates, _ = federation()
    total, honest = plain_sum(updates), [build("fcn3", SHAPE, 4, seed=s) for s in range(3)]
    other = [*models[:2], build("fcn3", SHAPE, 7, seed=0)]
    with pytest.raises(WithheldParameter, match=r"5\.bias"):
        lia_sa.recover(total.without("5.bias"), models, 6, SHAPE)
    for word, call in (
        ("batches of 5", lambda: lia_sa.recover(total, models, 5, SHAPE)),
        ("shapes", lambda: lia_sa.recover(total, other, 6, SHAPE)),
        ("fishing model", lambda: lia_sa.recover(total, honest, 6, SHAPE)),
        ("got 2", lambda: lia_sa.fishing_model(honest[0], "vector", 2, 2, 0)),
    ):
        with pytest.raises(ValueError, match=word):
            call()


def test_active_dropout_is_a_violated_assumption():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    models = [lia_sa.fishing_model(model, "vector", u, 2, 0) for u in range(2)]
    aggregate = Update({n: torch.ones_like(p) for n, p in model.named_parameters()}, "gradient", 2)
    for training in (True, False):
        attack = lia_sa.prepare([m.train(training) for m in models], 1, SHAPE)
        assert [m.training for m in models] == [training] * 2
        assert bool(attack.recover(aggregate).violated_assumptions) == training


def test_nothing_to_fish_with():
    for layers in ([nn.Linear(64, 3)], [nn.Conv2d(1, 2, 3)], [nn.Linear(64, 3, bias=False), nn.Linear(3, 2)]):
        with pytest.raises(ValueError, match="layer"):
            lia_sa.fishing_model(nn.Sequential(*layers), "vector", 0, 2, 0)


def without_variance(depth):
    """Pointwise convolutions with batch norm: behind a fishing layer no channel has a variance."""
    torch.manual_seed(0)
    blocks = [m for _ in range(depth) for m in (nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU())]
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )


def test_the_server_foresees_in_double_precision_unless_rounding_decides():
    shallow = [lia_sa.fishing_model(build("fcn3", SHAPE, 4, seed=0), "vector", u, 2, 0) for u in range(2)]
    assert lia_sa.foresee(shallow, SHAPE).inputs.equal(lia_sa.preset(shallow, SHAPE).inputs)
    deep = [lia_sa.fishing_model(without_variance(12), "vector", u, 2, 0) for u in range(2)]
    double, single = (lia_sa.preset(deep, SHAPE, dtype).inputs.double() for dtype in (torch.float64, torch.float32))
    assert (double - single).abs().max() > 0.01 * double.abs().max()
    assert lia_sa.foresee(deep, SHAPE).inputs.equal(single)
