"""A passive server that sees sums of several rounds: by hand, and where every round's totals are exact."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedleak.attacks.labels import ilrg, rounds
from fedleak.federated import fedsgd
from fedleak.federated.aggregation import plain_sum
from fedleak.models import build

SHAPE = (1, 4, 4)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_exact_totals_give_exact_counts_and_noisy_ones_whole_counts(seed):
    generator = torch.Generator().manual_seed(seed)
    truth = torch.zeros(5, 4, dtype=torch.long)
    truth.scatter_add_(1, torch.randint(4, (5, 6), generator=generator), torch.ones(5, 6, dtype=torch.long))
    took_part = torch.cat([torch.eye(5), torch.rand(5, 5, generator=generator).round()]).bool()
    totals = took_part.long() @ truth
    assert rounds.disaggregate(totals, took_part, 6).equal(truth)
    noisy = totals + torch.randn(totals.shape, generator=generator)
    assert rounds.disaggregate(noisy, took_part, 6).sum(1).tolist() == [6] * 5


def test_from_summed_gradients():
    model = build("fcn3", SHAPE, 3, seed=0)
    labels = torch.tensor([[0, 0, 0, 1], [1, 1, 1, 2], [2, 2, 0, 2]])
    x = torch.rand(3, 4, *SHAPE, generator=torch.Generator().manual_seed(0))
    updates = [fedsgd(model, *each) for each in zip(x, labels, strict=True)]
    pairs = torch.tensor([[1, 1, 0], [1, 0, 1], [0, 1, 1]]).bool()
    sums = [plain_sum([updates[int(k)] for k in row.nonzero()]) for row in pairs]
    found = rounds.recover(sums, [model] * 3, pairs, ilrg.recover)
    assert found.tolist() == [label.bincount(minlength=3).tolist() for label in labels]
    with pytest.raises(ValueError, match="2 aggregates, 3 models"):
        rounds.recover(sums[:2], [model] * 3, pairs, ilrg.recover)
    uneven = [sums[0], sums[1], updates[0]]
    with pytest.raises(ValueError, match="samples"):
        rounds.recover(uneven, [model] * 3, pairs, ilrg.recover)


def test_clients_that_always_meet_are_not_told_apart():
    together = torch.tensor([[1, 1, 0], [1, 1, 1], [0, 0, 1]]).bool()
    with pytest.raises(ValueError, match="3 rounds tell only 2 of 3 clients apart"):
        rounds.disaggregate(torch.ones(3, 2), together, 1)
    with pytest.raises(ValueError, match=r"totals are \[R, n\]"):
        rounds.disaggregate(torch.ones(2, 2), together, 1)
