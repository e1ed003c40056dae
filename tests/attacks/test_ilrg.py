"""iLRG where its assumptions hold exactly, and on bad input."""

import pytest
import torch
from torch import nn

from fedleak.attacks.labels import ilrg
from fedleak.federated import Update, fedsgd


def even():
    """A head whose outputs are the same for all inputs, and the gradients of labels 0, 0, 2: no approximation."""
    layer = nn.Linear(3, 3).double()
    embeddings = torch.eye(3, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor([0.5, -0.2, 0.1]))
    y = torch.tensor([0, 0, 2])
    x = embeddings[y]
    delta = (layer(x).softmax(1) - nn.functional.one_hot(y, 3)).detach()
    tensors = {"weight": delta.T @ x / 3, "bias": delta.mean(0)}
    return layer, Update(tensors, "gradient", 3)


def test_where_the_probabilities_are_known_the_counts_are_exact():
    layer, update = even()
    assert ilrg.recover(update, layer).tolist() == [2, 0, 1]


def test_one_image_under_several_labels_is_every_classs_embedding():
    layer = nn.Linear(4, 3).double()
    with torch.no_grad():
        layer.weight.copy_(torch.arange(12).view(3, 4) / 6 - 1)
    x, y = torch.tensor([[0.3, 1.0, 0.2, 0.6]], dtype=torch.float64), torch.tensor([0, 0, 2, 2, 2, 1])
    assert ilrg.recover(fedsgd(layer, x.expand(6, -1), y), layer).tolist() == [2, 1, 3]


def test_a_scaled_update_has_a_solution_that_no_batch_has():
    layer, update = even()
    read = ilrg.prepare(layer).recover
    assert read(update).facts["residual"] < 1e-6
    larger = read(update.replace({k: 10 * t for k, t in update.tensors.items()}))
    assert larger.facts["residual"] > 1
    assert larger.facts["solution"].min() < 0


def test_a_class_without_gradient_is_no_division_by_zero():
    layer = nn.Linear(2, 3).double()
    rows = torch.tensor([[0.5, 0.5], [-0.5, -0.5], [0.0, 0.0]])
    assert (ilrg.recover(Update({"weight": rows, "bias": rows[:, 0]}, "gradient", 4), layer) >= 0).all()


def test_many_classes_are_solved_by_iteration_to_the_same_counts(monkeypatch):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 30), torch.nn.ReLU(), torch.nn.Linear(30, 40)).double()
    update = fedsgd(model, torch.rand(20, 8).double(), torch.arange(20) * 2)
    inverted = ilrg.prepare(model).recover(update).facts["solution"]
    monkeypatch.setattr(ilrg, "MAX_INVERTED", 10)
    torch.testing.assert_close(ilrg.prepare(model).recover(update).facts["solution"], inverted, atol=1e-6, rtol=1e-6)


def test_a_matrix_that_is_too_large_is_refused_with_the_number(monkeypatch):
    model = torch.nn.Linear(8, 40)
    update = fedsgd(model, torch.rand(5, 8), torch.arange(5))
    monkeypatch.setattr(ilrg, "MAX_CLASSES", 39)
    with pytest.raises(ValueError, match="40 classes"):
        ilrg.recover(update, model)
