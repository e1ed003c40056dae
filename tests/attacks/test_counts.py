"""Estimates to whole counts, and least squares on the simplex: the right sum, the optimum, no silent NaN."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedleak.attacks.labels.counts import project, round_to_total, solve


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 12), total=st.integers(1, 300), scale=st.floats(0.01, 1e3))
def test_whole_counts_lie_within_one_of_the_projection(seed, n, total, scale):
    values = scale * torch.randn(3, n, generator=torch.Generator().manual_seed(seed)).double()
    rounded = round_to_total(values, total)
    assert rounded.dtype == torch.long
    assert (rounded >= 0).all()
    assert (rounded.sum(-1) == total).all()
    assert ((rounded - project(values, total)).abs() < 1 + 1e-6).all()


def test_integers_stay_and_remainders_go_to_the_largest():
    assert round_to_total(torch.tensor([3.0, 0.0, 5.0]), 8).tolist() == [3, 0, 5]
    assert round_to_total(torch.tensor([2.2, 0.5, 5.3]), 8).tolist() == [2, 1, 5]
    assert round_to_total(torch.tensor([-4.0, 9.0, 9.0]), 8).tolist() == [0, 4, 4]


def test_equal_remainders_go_to_the_first_classes():
    assert round_to_total(torch.full((40,), 0.5), 20).tolist() == [1] * 20 + [0] * 20


def test_bad_estimates():
    with pytest.raises(ValueError, match="at least 1"):
        round_to_total(torch.ones(3), 0)
    with pytest.raises(ValueError, match="NaN"):
        round_to_total(torch.tensor([1.0, float("nan")]), 2)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 8), rows=st.integers(1, 10))
def test_the_solution_satisfies_the_optimality_conditions(seed, n, rows):
    generator = torch.Generator().manual_seed(seed)
    system = torch.randn(rows, n, generator=generator).double()
    target = 10 * torch.randn(rows, generator=generator).double()
    solution = solve(system, target, 20)
    assert solution.min() >= 0
    assert solution.sum() == pytest.approx(20)
    slope = system.T @ (system @ solution - target)
    assert (slope[solution > 1e-9] - slope.min()).abs().max() < 1e-7 * slope.abs().max().clamp(min=1)
