"""Words behind an update: the rows that move by more than weight decay."""

import pytest
import torch
from networks import Text
from torch import nn
from updates import train_by_sgd

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


def trained(model, tokens, steps, **options):
    """Return the update of some steps on these texts, of classes 0, 1, ..."""
    after, _ = train_by_sgd(model, [(tokens, torch.arange(len(tokens)))] * steps, **options)
    return Update.from_states(model.state_dict(), after.state_dict(), steps * len(tokens), steps, options["lr"])


@pytest.mark.parametrize(("steps", "lr", "decay"), [(1, 0.1, 1e-4), (60, 0.01, 1e-4), (100, 0.05, 1e-5)])
def test_rounding_of_many_steps_and_padding_are_no_words(steps, lr, decay):
    model, tokens = Text(1000, padding_idx=0), torch.tensor([[5, 6, 7, 0], [8, 9, 0, 0]])
    update = trained(model, tokens, steps, lr=lr, weight_decay=decay)
    assert words.recover(update, model).tolist() == [5, 6, 7, 8, 9]


def test_the_second_of_two_tables_is_read_where_the_first_is_withheld():
    class Two(Text):
        def __init__(self):
            super().__init__()
            self.weights = nn.Embedding(50, 6)

        def forward(self, tokens):
            return super().forward(tokens) + self.weights(tokens).sum(1)

    update = trained(model := Two(), torch.tensor([[1, 2], [3, 4]]), 1, lr=0.1).without("words.weight")
    assert words.recover(update, model).tolist() == [1, 2, 3, 4]


def test_an_update_of_another_model_or_with_nan_is_refused():
    model = Text()
    update = trained(model, torch.tensor([[1, 2], [3, 4]]), 1, lr=0.1)
    other = update.replace({**update.tensors, "words.weight": torch.zeros(60, 16)})
    with pytest.raises(ValueError, match="is it an update of this model"):
        words.recover(other, model)
    broken = update.replace({**update.tensors, "words.weight": update.tensors["words.weight"] * torch.nan})
    with pytest.raises(ValueError, match="NaN or infinite"):
        words.recover(broken, model)
