"""Words behind an update: the rows that move by more than weight decay."""

import pytest
import torch
from torch import nn

from fedleak.attacks import words
from fedleak.federated import Update


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(40, 6), nn.Flatten(), nn.Linear(6 * 3, 2)).double()


def update(model, used, decay):
    gradient = decay * model[0].weight.detach()
    gradient[used] += torch.rand(len(used), 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return Update({"0.weight": gradient}, "gradient", 2)


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("used", [[7], [0, 3, 39], [*range(38)]])
def test_rows_that_move_are_the_words(model, used, decay):
    model.input_shape = (3,)
    assert words.recover(update(model, used, decay), model).tolist() == used


def test_one_row_at_rest_is_no_weight_decay(model):
    """With one row besides, any movement is a multiple of its weights: the factor is not known."""
    model.input_shape = (3,)
    with pytest.raises(ValueError, match="all rows"):
        words.recover(update(model, [*range(39)], 0.01), model)
