"""ZLG where its means are exact."""

import pytest
import torch
from torch import nn

from fedleak.attacks.labels import zlg
from fedleak.data import Images
from fedleak.federated import fedsgd


def test_zlg_is_exact_where_its_means_are():
    model = nn.Sequential(nn.Flatten(), nn.Linear(20, 10), nn.ReLU(), nn.Linear(10, 5))
    x, y = torch.rand(1, 1, 4, 5), torch.tensor([1, 1, 4])
    update = fedsgd(model, x.expand(3, -1, -1, -1), y)  # one image under all labels: the means are exact
    aux = Images(
        x.expand(5, -1, -1, -1), torch.arange(5), tuple("abcde"), "one image", "train", False, "made here", "none"
    )
    assert zlg.recover(update, model, aux).tolist() == [0, 2, 0, 0, 1]
    assert zlg.recover(update, model, shape=(1, 4, 5)).sum() == 3
    with pytest.raises(ValueError, match="sum to 0"):
        zlg.estimate(torch.zeros(3), torch.full((3,), 1 / 3), 0.0, 4)
