"""Decaf by hand, where its mixture is exact, and on bad input."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedleak.attacks.labels import decaf
from fedleak.data import Images
from fedleak.federated import Update, fedsgd


def alike(n_classes, seed=0):
    """A head, and one image a class: a client's images are copies of these, so that the mixture is exact."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(5, n_classes))
    with torch.no_grad():
        model[1].weight.copy_(torch.randn(n_classes, 5, generator=generator))
        model[1].bias.zero_()
    return model, Images(torch.rand(n_classes, 1, 1, 5, generator=generator), torch.arange(n_classes))


def test_null_classes_by_hand():
    gradient = torch.tensor([[0.2, -0.1], [0.3, 0.0], [-0.1, -0.4], [0.0, 0.0]])
    assert decaf.null_classes(gradient).tolist() == [False, True, False, True]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 6), min_size=4, max_size=4).filter(any))
def test_exact_where_all_images_of_a_class_are_alike(seed, counts):
    model, aux = alike(4, seed)
    y = torch.arange(4).repeat_interleave(torch.tensor(counts))
    update = fedsgd(model, aux.x[y], y)
    null = decaf.null_classes(update.gradient("1.weight"))
    found = decaf.recover(update, model, aux)
    assert not found[null].any()
    if not null[y].any():  # the rule can take a class away that others push down harder
        assert found.tolist() == counts


def test_bad_input():
    model, aux = alike(3)
    with pytest.raises(ValueError, match="negative"):
        decaf.recover(Update({"1.weight": torch.ones(3, 5), "1.bias": torch.ones(3)}, "gradient", 2), model, aux)
