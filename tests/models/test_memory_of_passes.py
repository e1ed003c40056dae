"""Passes take a bounded amount of memory."""

import pytest
import torch
from torch import nn

from fedleak.attacks.labels import adapter
from fedleak.data import Images
from fedleak.models import head_pass, passes
from fedleak.models.memory import unchanged
from fedleak.models.passes import bytes_per_sample, in_order, places_at_once


def normed():
    return nn.Sequential(nn.Linear(6, 50), nn.BatchNorm1d(50), nn.ReLU(), nn.Linear(50, 3)).train()


def test_a_samples_memory_is_its_largest_layers_or_all():
    model, x = normed(), torch.rand(4, 6)
    assert bytes_per_sample(model, x) == 4 * 100
    assert bytes_per_sample(model, x, has_graph=True) == 4 * (6 + 56 + 100 + 100 + 53)


def limit_memory(monkeypatch, most):
    monkeypatch.setattr(passes, "MAX_BYTES", most)
    monkeypatch.setattr(passes, "MAX_ENTRIES_AT_ONCE", 64)


def test_a_batch_that_fits_is_one_pass(monkeypatch):
    model, x = normed(), torch.rand(8, 6)
    limit_memory(monkeypatch, 400 * 8)
    assert places_at_once(model, x, 4) == [slice(0, None, 1)]


def test_a_batch_that_does_not_fit_is_dealt_into_batches_of_all_classes(monkeypatch):
    model, x, labels = normed(), torch.rand(12, 6), torch.arange(12) // 4
    limit_memory(monkeypatch, 400 * 7)
    places = places_at_once(model, x, 4)
    assert [labels[place].unique().tolist() for place in places] == [[0, 1, 2]] * 2
    parts = [head_pass(model, x[place]) for place in places]
    together = head_pass(model, x)
    assert together.inputs.equal(in_order([part.inputs for part in parts], places))
    assert together.probabilities[1].equal(parts[1].probabilities[0])


def test_samples_with_large_outputs_run_few_at_a_time(monkeypatch):
    limit_memory(monkeypatch, 600)
    model, x = normed().eval(), torch.rand(12, 6)
    assert places_at_once(model, x, 8) == [slice(start, start + 3) for start in (0, 3, 6, 9)]


def test_batches_of_one_sample_are_never_made(monkeypatch):
    limit_memory(monkeypatch, 1)
    assert head_pass(normed(), torch.rand(12, 6)).inputs.shape == (12, 50)


def test_a_remembered_pass_does_not_hold_its_inputs():
    model, x = normed(), torch.rand(5, 6)
    with unchanged(model):
        first = head_pass(model, x)
        assert head_pass(model, x.clone()) is first
        assert head_pass(model, x.flip(0)) is not first
        assert all(isinstance(digest, bytes) for digest in passes._passes(model))


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
