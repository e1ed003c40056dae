"""Dirichlet partitions: complete, reproducible, as heterogeneous as asked for, nobody empty."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedleak.data.partitions import dirichlet, local_batches

LABELS = torch.arange(500) % 10


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.floats(0.05, 20), st.integers(0, 99), st.integers(0, 3))
def test_every_sample_goes_to_one_client(clients, concentration, seed, at_least):
    parts = dirichlet(LABELS, clients, concentration, seed, at_least=at_least)
    assert len(parts) == clients
    assert min(map(len, parts)) >= at_least
    assert torch.cat(parts).sort().values.equal(torch.arange(500))
    again = dirichlet(LABELS, clients, concentration, seed, at_least=at_least)
    assert all(map(torch.equal, parts, again))


def test_a_small_concentration_leaves_few_classes():
    def largest_share(concentration):
        parts = dirichlet(LABELS.repeat(10), 10, concentration, 0)
        counts = torch.stack([LABELS.repeat(10)[p].bincount(minlength=10) for p in parts]).double()
        return (counts.max(1).values / counts.sum(1)).mean()

    assert largest_share(0.05) > 0.5
    assert largest_share(1000.0) < 0.13


def test_empty_clients_only_if_asked():
    few = torch.zeros(3, dtype=torch.int64)
    assert sum(len(p) == 0 for p in dirichlet(few, 3, 0.01, 0, at_least=0)) >= 1
    with pytest.raises(ValueError, match="raise the concentration"):
        dirichlet(torch.zeros(10, dtype=torch.int64), 10, 1e-3, 0)


@pytest.mark.parametrize("bad", [(0, 0.5), (3, 0.0), (3, float("nan")), (501, 0.5)])
def test_bad_partitions(bad):
    with pytest.raises(ValueError, match="clients"):
        dirichlet(LABELS, *bad, seed=0)


def test_local_batches_are_epochs():
    held = torch.tensor([4, 7, 9])
    batches = local_batches(held, 2, 3, torch.Generator().manual_seed(0))
    assert batches.shape == (2, 3)
    assert all(row.sort().values.equal(held) for row in batches)
    with pytest.raises(ValueError, match="samples of the client"):
        local_batches(held[:0], 1, 1, torch.Generator())
