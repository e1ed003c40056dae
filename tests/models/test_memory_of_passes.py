"""Passes take a bounded amount of memory."""

import pytest
import torch
from networks import LoRA
from torch import nn

from fedleak.attacks.labels import adapter
from fedleak.data import Images
from fedleak.federated import fedsgd
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


@pytest.mark.parametrize("norm", [True, False])
def test_pieces_of_an_adapters_gradients_are_those_at_once(monkeypatch, norm):
    torch.manual_seed(0)
    layers = nn.Linear(6, 5), nn.BatchNorm1d(5) if norm else nn.Tanh(), LoRA(nn.Linear(5, 3), fresh=False)
    model, aux = nn.Sequential(*layers).double(), Images(torch.rand(12, 6), torch.arange(12) % 3)
    names = ["2.B"]
    whole = adapter.compute_sample_gradients(model, names, aux)
    means = adapter.compute_class_gradients(model, names, aux)
    torch.testing.assert_close(means, torch.stack([whole[aux.y == k].mean(0) for k in range(3)]))
    torch.testing.assert_close(whole.mean(0), fedsgd(model, aux.x.double(), aux.y).gradient("2.B"))
    monkeypatch.setattr(adapter, "SAMPLES_AT_ONCE", 5)
    torch.testing.assert_close(adapter.compute_sample_gradients(model, names, aux), whole)
