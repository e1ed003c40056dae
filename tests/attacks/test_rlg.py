"""RLG where the singular vectors can be seen by eye, and where the space is too large for it."""

import pytest
import torch
from torch import nn

from fedleak.attacks.labels import rlg
from fedleak.federated import Update, fedavg, fedsgd


def gradient_of(labels, n_classes):
    """Of a head whose outputs are the same for all inputs, with inputs at right angles: columns ``1/n - y``."""
    columns = torch.full((len(labels), n_classes), 1 / n_classes, dtype=torch.float64)
    columns[range(len(labels)), labels] -= 1
    return columns.T @ torch.eye(len(labels), 6, dtype=torch.float64) / len(labels)


def test_by_hand_two_samples_of_five_classes():
    """The space is spanned by (-4, 1, 1, 1, 1) and (1, 1, -4, 1, 1): rows 1, 3 and 4 are equal, never apart."""
    assert rlg.find_separable_classes(gradient_of([0, 2], 5), 2)[0].tolist() == [True, False, True, False, False]
    update = Update({"weight": gradient_of([0, 2], 5)}, "gradient", 2)
    assert rlg.recover(update, nn.Linear(6, 5).double()).tolist() == [1, 0, 1, 0, 0]


def test_a_class_that_occurs_twice_is_one_of_the_set():
    update = Update({"weight": gradient_of([3, 1, 3], 6)}, "gradient", 3)
    found = rlg.recover(update, nn.Linear(6, 6).double())
    assert found.sum() == 3
    assert found.nonzero().flatten().tolist() == [1, 3]


def test_as_many_directions_as_classes_less_one_tell_nothing():
    with pytest.raises(ValueError, match="got 4 for 5 classes"):
        rlg.find_separable_classes(gradient_of([0, 1, 2, 3], 5), 4)
    with pytest.raises(ValueError, match="got 0 for 5 classes"):
        rlg.find_separable_classes(torch.zeros(5, 6, dtype=torch.float64), 2)


def test_rounded_changes_of_weights_are_still_read():
    generator = torch.Generator().manual_seed(1)
    model = nn.Linear(40, 10)
    x, y = torch.rand(1, 8, 40, generator=generator), torch.tensor([[0, 1, 3, 4, 5, 6, 8, 9]])
    update = fedavg(model, x, y, lr=0.01, share="delta")
    assert rlg.recover(update, model).tolist() == [1, 1, 0, 1, 1, 1, 1, 0, 1, 1]


@pytest.mark.parametrize("rounded", [torch.bfloat16, 1e-42], ids=str)
def test_rounding_that_makes_every_class_separable_is_a_violated_assumption(rounded):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 50))
    x, y = torch.rand(16, 64), torch.randint(50, (16,))
    update = fedsgd(model, x, y)
    assert set(rlg.recover(update, model).nonzero().flatten().tolist()) == set(y.tolist())
    to = (lambda t: t.to(rounded)) if isinstance(rounded, torch.dtype) else (lambda t: t * rounded)
    with pytest.warns(UserWarning, match="RLG: .* classes are separable: rounding or noise"):
        rlg.recover(update.replace({name: to(t) for name, t in update.tensors.items()}), model)


def test_linear_programs_of_too_many_classes_are_refused_beforehand(monkeypatch):
    monkeypatch.setattr(rlg, "MAX_ENTRIES", 99)
    with pytest.raises(ValueError, match="10 classes at rank 1"):
        rlg.find_separable_classes(torch.ones(10, 3).double(), 1)
