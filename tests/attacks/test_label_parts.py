"""What GDBR shares with its baselines: rounding to whole counts, ZLG, and simulated gradients."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedleak.attacks.labels import zlg
from fedleak.attacks.labels.inputs import whole_counts
from fedleak.attacks.labels.simulated import simulate
from fedleak.federated import fedsgd


@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=12),
    st.integers(1, 60),
)
@settings(deadline=None, max_examples=80)
def test_rounded_counts_are_not_negative_and_keep_the_sum(estimates, samples):
    counts = whole_counts(torch.tensor(estimates, dtype=torch.float64), samples)
    assert counts.min() >= 0
    assert counts.sum() == samples


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8).filter(any))
@settings(deadline=None, max_examples=40)
def test_whole_numbers_stay_as_they_are(counts):
    exact = torch.tensor(counts, dtype=torch.float64)
    assert whole_counts(exact + 0.01 * torch.sin(torch.arange(len(counts))), sum(counts)).tolist() == counts


def test_rounding_refuses_what_is_no_estimate():
    with pytest.raises(ValueError, match="NaN or infinite"):
        whole_counts(torch.tensor([1.0, math.nan]), 2)
    with pytest.raises(ValueError, match="samples is at least 1"):
        whole_counts(torch.tensor([1.0]), 0)


def test_zlg_is_exact_where_its_means_are():
    model = nn.Sequential(nn.Linear(20, 10), nn.ReLU(), nn.Linear(10, 5)).double()
    x, y = torch.rand(1, 20, dtype=torch.float64), torch.tensor([1, 1, 4])
    update = fedsgd(model, x.expand(3, -1), y)  # one image under all labels: the means are exact
    assert zlg.recover(update, model, x).tolist() == [0, 2, 0, 0, 1]
    assert zlg.recover(update, model).sum() == 3
    with pytest.raises(ValueError, match="sum to 0"):
        zlg.estimate(torch.zeros(3), torch.full((3,), 1 / 3), 0.0, 4)


def test_simulations_keep_what_they_promise():
    true = torch.randn(20, 30, generator=torch.Generator().manual_seed(0)) * 3 + torch.arange(30)
    made = {
        m: simulate(true, m, torch.Generator().manual_seed(1))
        for m in ("stats", "stats (col)", "shuffle (col)", "mask")
    }
    assert made["stats"].mean() == pytest.approx(true.mean().item(), abs=1.5)
    assert made["stats"].std() == pytest.approx(true.std().item(), rel=0.1)
    assert (made["stats (col)"].mean(0) - true.mean(0)).abs().max() < 3
    assert torch.equal(made["shuffle (col)"].sort(0).values, true.sort(0).values)
    assert not torch.equal(made["shuffle (col)"], true)
    kept = made["mask"] == true
    assert int(kept.sum()) == 300
    torch.testing.assert_close(made["mask"][~kept].unique().mean(), true[~kept].mean(), atol=1e-3, rtol=0)
    assert made["mask"][~kept].std() < 1e-4
    with pytest.raises(ValueError, match="unknown simulation 'copy'"):
        simulate(true, "copy", torch.Generator())
