"""LnAcc by hand, and on bad input."""

import pytest
import torch

from fedleak.metrics import label_number_accuracy


def test_by_hand():
    truth = torch.tensor([[2, 0, 1, 1], [0, 0, 0, 0]])
    found = torch.tensor([[2, 0, 2, 0], [0, 0, 0, 0]])
    assert label_number_accuracy(found, truth).tolist() == [0.5, 1.0]


@pytest.mark.parametrize(("found", "message"), [([[1, 2]], "do not compare"), ([-1, 0], "not negative")])
def test_bad_input(found, message):
    with pytest.raises(ValueError, match=message):
        label_number_accuracy(torch.tensor(found), torch.tensor([1, 0]))
