"""The simple label rules: iDLG, GI and the random guess, and how all label attacks read an update."""

import pytest
import torch
from torch import nn

from fedleak import Update, WithheldParameter
from fedleak.attacks.labels import gi, guess, idlg
from fedleak.attacks.labels.inputs import row_sums
from fedleak.data import Images

MODEL = nn.Linear(2, 3)


def update(gradient, samples=1, **options):
    return Update({"weight": torch.tensor(gradient)}, "gradient", samples=samples, **options)


def test_row_sums_are_of_one_steps_mean_gradient():
    # Rows sum to 3, -1 and 0; two steps halve them.
    two = update([[1.0, 2.0], [-2.0, 1.0], [4.0, -4.0]], samples=4, steps=2)
    assert row_sums(two, MODEL).tolist() == [1.5, -0.5, 0.0]
    assert row_sums(two, MODEL).dtype == torch.float64


def test_golden_idlg():
    assert idlg.recover(update([[1.0, 0.5], [-1.0, 0.5], [0.1, 0.1]]), MODEL).tolist() == [0, 1, 0]
    # No negative row (a head with negative inputs): still one label, the smallest row sum.
    assert idlg.recover(update([[1.0, 0.5], [1.0, 0.5], [0.1, 0.1]]), MODEL).tolist() == [0, 0, 1]


def test_golden_gi_takes_the_rows_with_the_smallest_entries():
    # Smallest entries of the rows: -3, -1, 0.5. Two samples: the first two rows; row sums would say 1 and 2.
    gradient = [[-3.0, 9.0], [-1.0, 0.0], [0.5, 0.5]]
    assert gi.recover(update(gradient, samples=2), MODEL).tolist() == [1, 1, 0]
    assert gi.recover(update(gradient, samples=1), MODEL).tolist() == [1, 0, 0]
    assert gi.recover(update(gradient, samples=3), MODEL).tolist() == [1, 1, 1]


def test_guess_is_uniform():
    # 3,000 trials of 20 labels over 4 classes: the share of a class has the standard deviation
    # sqrt(0.25 * 0.75 / 60,000) = 0.00177; 6 of them are 0.011.
    counts = guess.uniform_counts(20, 4, 3000, torch.Generator().manual_seed(0))
    assert counts.shape == (3000, 4)
    assert (counts.sum(dim=1) == 20).all()
    assert ((counts.double().mean(dim=0) / 20 - 0.25).abs() < 0.011).all()


def test_the_prior_guess_follows_the_auxiliary_data_or_the_prior():
    x, y = torch.zeros(5, 1, 1, 2), torch.tensor([0, 0, 0, 1, 2])
    aux = Images(x, y, tuple("abc"), "zeros", "train", False, "made here", "none")
    ten = update([[0.0, 1.0]] * 3, samples=10)
    assert guess.recover_prior(ten, MODEL, aux).tolist() == [6, 2, 2]
    for scale in (1, 10, 100):  # shares, numbers of samples, per cent
        prior = scale * torch.tensor([0.1, 0.2, 0.7])
        assert guess.recover_prior(ten, MODEL, aux, prior=prior).tolist() == [1, 2, 7]
    for wrong in ([0.0, 0, 0], [-1.0, 1, 1], [0.5, 0.5], [float("nan"), 1, 1]):
        with pytest.raises(ValueError, match="3 classes"):
            guess.recover_prior(ten, MODEL, aux, prior=torch.tensor(wrong))


def test_a_gradient_withheld_not_finite_or_of_another_model():
    with pytest.raises(WithheldParameter, match="'weight'"):
        gi.recover(Update({"bias": torch.ones(3)}, "gradient", samples=1), MODEL)
    for bad in (float("nan"), -float("inf")):
        with pytest.raises(ValueError, match="1 of 6 entries of the update's 'weight'"):
            gi.recover(update([[0.0, 1.0], [bad, 0.0], [0.0, 0.0]]), MODEL)
    with pytest.raises(ValueError, match="'weight' has shape"):
        gi.recover(update([[0.0, 1.0], [0.0, 0.0]]), MODEL)
