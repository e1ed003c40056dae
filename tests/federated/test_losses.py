"""A loss is measured, not recognised: its factor, and the gradient of clients that train with it."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedleak.federated import Scheme, fedavg, fedsgd
from fedleak.federated.algorithms import Client
from fedleak.federated.losses import as_loss, measure_factor

WEIGHT = torch.tensor([1.0, 5.0, 1.0, 0.2, 3.0])


MULTIPLES = {
    "mean": (nn.CrossEntropyLoss(), 1.0),
    "sum": (nn.CrossEntropyLoss(reduction="sum"), 8.0),
    "summed and divided": (lambda z, y: F.cross_entropy(z, y, reduction="sum") / 4, 2.0),
    "log-softmax": (lambda z, y: F.nll_loss(z.log_softmax(1), y), 1.0),
    "ascent": (lambda z, y: -F.cross_entropy(z, y), -1.0),
}
OTHER = {
    "weights": nn.CrossEntropyLoss(WEIGHT),
    "weights, sum": partial(F.cross_entropy, weight=WEIGHT, reduction="sum"),
    "an ignored class": nn.CrossEntropyLoss(ignore_index=2),
    "smoothing": nn.CrossEntropyLoss(label_smoothing=0.01),
    "a sigmoid per class": nn.BCEWithLogitsLoss(),
    "a random factor": lambda z, y: torch.rand(()) * F.cross_entropy(z, y),
    "the square of the mean": lambda z, y: F.cross_entropy(z, y) ** 2,
}


@pytest.mark.parametrize("name", MULTIPLES)
def test_a_multiple_of_the_mean_cross_entropy_has_a_factor(name):
    loss, factor = MULTIPLES[name]
    assert measure_factor(loss, 5, 8) == pytest.approx(factor, rel=1e-3)


@pytest.mark.parametrize("name", OTHER)
def test_any_other_loss_has_none(name):
    assert measure_factor(as_loss(OTHER[name]), 5, 3) is None


def test_batches_of_one_sample_show_every_class():
    """A weight that is divided by itself is none; a sum of weighted losses has one for each class."""
    assert measure_factor(nn.CrossEntropyLoss(WEIGHT), 5, 1) == pytest.approx(1, rel=1e-3)
    assert measure_factor(OTHER["weights, sum"], 5, 1) is None


def test_a_loss_that_is_none_is_refused():
    no_loss = lambda z, y: 1.0, lambda z, y: torch.ones((), requires_grad=True) * 2
    for loss in (nn.CrossEntropyLoss(reduction="none"), nn.CrossEntropyLoss(torch.ones(3)), *no_loss):
        with pytest.raises(ValueError, match="loss"):
            measure_factor(loss, 5, 8)


@pytest.mark.parametrize("loss", [OTHER["weights"], MULTIPLES["sum"][0]])
def test_clients_train_with_their_loss(loss):
    model, x, y = nn.Linear(6, 5), torch.rand(2, 4, 6), torch.randint(5, (2, 4))
    loss(model(x[0]), y[0]).backward()
    update = fedsgd(model, x[0], y[0], loss=loss)
    torch.testing.assert_close(update.gradient("weight"), model.weight.grad)
    trained = Client(Scheme("fedavg", 0.1, 2), loss=loss).train(model, x, y, {})
    torch.testing.assert_close(trained.tensors, fedavg(model, x, y, 0.1, "delta", loss=loss).tensors)
    plain = fedavg(model, x, y, 0.1, "delta").tensors
    assert not torch.allclose(trained.tensors["weight"], plain["weight"], rtol=0.01)
