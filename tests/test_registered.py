"""Others' tables in the arena: who alone activates a neuron, what shadow clients hold, and what is read with them."""

import torch

from fedleak import metrics
from fedleak_book.experiments import running

MODULE = running.module("arena", "experiments_registered")


def test_samples_are_peeled_one_after_the_other():
    """The first has a neuron of its own, then the second, then the third; the last two share all of theirs."""
    active = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1]]).bool()
    assert [now.nonzero().flatten().tolist() for now in MODULE.peeled(active)] == [[0], [1], [2], []]
    assert [now.sum().item() for now in MODULE.peeled(torch.ones(3, 7).bool())] == [0]


def test_shadow_clients_hold_one_class_to_all_of_them():
    labels = MODULE.spacings(40, 500, 4, torch.Generator().manual_seed(0))
    named = (metrics.counts(labels, 4) > 0).sum(1)
    assert labels.shape == (40, 500)
    assert (named[:10] == 1).all()
    assert (named <= torch.arange(40) // 10 + 1).all()
    assert named[30:].float().mean() > 3.5


def test_shares_are_read_off_updates_that_have_them():
    generator = torch.Generator().manual_seed(0)
    labels = MODULE.dirichlet(250, 100, 0.8, 4, generator)
    counts = metrics.counts(labels, 4).float()
    seen = [counts @ torch.randn(4, 30, generator=generator) for _ in range(2)]
    shares = MODULE.by_shadows(seen, counts[50:], 0)
    assert shares.shape == (50, 4)
    assert torch.allclose(shares.sum(1), torch.ones(50))
    assert (shares - counts[:50] / 100).abs().mean() < 0.05
    assert (shares - counts[:50].flip(1) / 100).abs().mean() > 0.1
