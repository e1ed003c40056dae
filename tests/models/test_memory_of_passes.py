"""Passes of samples that depend on each other take a bounded amount of memory, or are refused with the number."""

import pytest
import torch
from torch import nn

from fedleak.attacks.labels import adapter, fishing
from fedleak.data import Images
from fedleak.models import head_pass, passes
from fedleak.models.passes import bytes_per_sample, pieces_at_once


def normed():
    return nn.Sequential(nn.Linear(6, 50), nn.BatchNorm1d(50), nn.ReLU(), nn.Linear(50, 3)).train()


def test_a_samples_memory_is_that_of_its_largest_layer_or_of_all():
    model, x = normed(), torch.rand(4, 6)
    assert bytes_per_sample(model, x) == 4 * 100
    assert bytes_per_sample(model, x, has_graph=True) == 4 * (6 + 56 + 100 + 100 + 53)


@pytest.mark.parametrize("read", [head_pass, pieces_at_once])
def test_a_pass_that_is_too_large_is_refused_with_the_number(monkeypatch, read):
    monkeypatch.setattr(passes, "MAX_BYTES", 400 * 7)
    monkeypatch.setattr(passes, "MAX_ENTRIES_AT_ONCE", 64)
    model, x = normed(), torch.rand(8, 6)
    with pytest.raises(ValueError, match="all 8 samples in one pass, of which 7 fit"):
        read(model, x, 4)
    assert read(model, x[:7], 4) is not None
    assert read(model.eval(), x, 4) is not None


class Adapted(nn.Module):
    def __init__(self, *, norm):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5) if norm else nn.Tanh())
        self.base, self.low, self.up = nn.Linear(5, 3), nn.Linear(5, 2, bias=False), nn.Linear(2, 3, bias=False)
        self.base.requires_grad_(False)

    def forward(self, x):
        x = self.body(x)
        return self.base(x) + self.up(self.low(x))


@pytest.mark.parametrize("norm", [True, False])
def test_pieces_of_an_adapters_gradients_are_those_at_once(monkeypatch, norm):
    torch.manual_seed(0)
    model, aux = Adapted(norm=norm).double(), Images(torch.rand(12, 6), torch.arange(12) % 3)
    names = ["up.weight"]
    whole = adapter.compute_sample_gradients(model, names, aux)
    means = adapter.compute_class_gradients(model, names, aux)
    torch.testing.assert_close(means, torch.stack([whole[aux.y == k].mean(0) for k in range(3)]))
    monkeypatch.setattr(adapter, "SAMPLES_AT_ONCE", 5)
    torch.testing.assert_close(adapter.compute_sample_gradients(model, names, aux), whole)


def test_many_fishing_models_take_the_memory_of_one():
    model = nn.Sequential(nn.Linear(6, 50), nn.ReLU(), nn.Linear(50, 3))
    models = [fishing.fishing_model(model, "vector", client, 9, 0) for client in range(9)]
    storages = {p.untyped_storage().data_ptr(): p.numel() for m in models for p in m.parameters()}
    assert sum(storages.values()) == 6 * 50 + 9 * 50 + 153
    assert not models[0][0].weight.any()
    assert model[0].weight.any()
