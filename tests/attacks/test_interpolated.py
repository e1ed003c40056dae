"""The interpolated statistics of Dimitrov et al. by hand, and against ZLG where both are the same."""

import pytest
import torch

from fedleak.attacks.labels import interpolated, zlg
from fedleak.federated import fedavg
from fedleak.models import build

SHAPE = (1, 4, 4)


def test_by_hand_two_steps_of_two_classes():
    """Before step 0 p = (1/2, 1/2), O = 2; before step 1, halfway to (1/4, 3/4) and 4: (3/8, 5/8), O = 3.

    With K = 8 and row sums (-3/4, 3/4) the steps say 8 (1/2 + 3/8) = 7 and 8 (3/8 + 1/4) = 5 for class 0: 6.
    """
    p = torch.tensor([[0.5, 0.5], [0.25, 0.75]], dtype=torch.float64)
    mass = torch.tensor([2.0, 4.0], dtype=torch.float64)
    found = interpolated.estimate(torch.tensor([-0.75, 0.75], dtype=torch.float64), p, mass, 8, 2)
    assert found.tolist() == [6.0, 2.0]


def test_no_mass_at_a_step():
    p, mass = torch.full((2, 2), 0.5), torch.tensor([1.0, -1.0])
    with pytest.raises(ValueError, match="sum to 0 on average"):
        interpolated.estimate(torch.zeros(2), p, mass, 4, 2)


def test_of_one_step_it_is_zlg():
    model = build("fcn3", SHAPE, 3, seed=0)
    x, y = torch.rand(1, 6, *SHAPE, generator=torch.Generator().manual_seed(0)), torch.tensor([[0, 0, 1, 2, 2, 2]])
    update = fedavg(model, x, y, 0.1)
    assert interpolated.recover(update, model).equal(zlg.recover(update, model))
