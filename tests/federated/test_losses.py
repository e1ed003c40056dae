"""A loss is measured, not recognised: its form, and the gradient of clients that train with it."""

import re
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedleak.federated import Scheme, fedavg, fedsgd
from fedleak.federated.algorithms import Client
from fedleak.federated.losses import as_loss, differentiate, measure_form

WEIGHT = torch.tensor([1.0, 5.0, 1.0, 0.2, 3.0])


def focal(logits, labels):
    ce = F.cross_entropy(logits, labels, reduction="none")
    return ((1 - (-ce).exp()) ** 2 * ce).mean()


def weighted_plain_mean(logits, labels):
    return (WEIGHT[labels] * F.cross_entropy(logits, labels, reduction="none")).mean()


LINEAR = {
    "mean": (nn.CrossEntropyLoss(), "mean over the batch"),
    "sum": (nn.CrossEntropyLoss(reduction="sum"), "summed over the batch"),
    "summed and divided": (
        lambda z, y: F.cross_entropy(z, y, reduction="sum") / 4,
        "summed over the batch, times 0.25",
    ),
    "weights": (nn.CrossEntropyLoss(WEIGHT), "mean over the batch, class weights from 0.098 to 2.45"),
    "weights, sum": (
        partial(F.cross_entropy, weight=WEIGHT, reduction="sum"),
        "summed .*, class weights from 0.2 to 5",
    ),
    "weights, plain mean": (weighted_plain_mean, "mean over the batch, class weights from 0.2 to 5"),
    "one weight is 0": (nn.CrossEntropyLoss(WEIGHT * (WEIGHT < 5)), "class weights from -?0 to 2.88"),
    "smoothing": (nn.CrossEntropyLoss(label_smoothing=0.1), "mean over the batch, labels smoothed by 0.1"),
    "both": (nn.CrossEntropyLoss(WEIGHT, label_smoothing=0.2), "class weights from 0.098 to 2.45, .* smoothed by 0.2"),
    "log-softmax": (lambda z, y: F.nll_loss(z.log_softmax(1), y), "mean over the batch"),
}
OTHER = {
    "focal": focal,
    "a sigmoid per class": nn.BCEWithLogitsLoss(),
    "confidence penalty": lambda z, y: (
        F.cross_entropy(z, y) - 0.1 * torch.distributions.Categorical(logits=z).entropy().mean()
    ),
    "a random factor": lambda z, y: torch.rand(()) * F.cross_entropy(z, y),
    "the square of the mean": lambda z, y: F.cross_entropy(z, y) ** 2,
}


@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_loss_predicts_its_gradient(name):
    loss, words = LINEAR[name]
    form = measure_form(loss, 5)
    assert form.describe().startswith("cross-entropy, ")
    assert re.search(words + "$", form.describe()), form.describe()
    logits, labels = torch.randn(9, 5), torch.tensor([0, 1, 2, 3, 4, 1, 1, 3, 0])
    norm = 1 if form.norms is None else form.norms[labels].sum()
    expected = (form.weights[labels, None] * logits.double().softmax(1) - form.targets[labels]) / norm
    torch.testing.assert_close(differentiate(loss, logits, labels).double(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", OTHER)
def test_any_other_loss_has_no_form(name):
    assert measure_form(as_loss(OTHER[name]), 5) is None


def test_only_a_factor_is_one():
    factors = {name: measure_form(loss, 5).factor(8) for name, (loss, _) in LINEAR.items()}
    found = {name: factor for name, factor in factors.items() if factor is not None}
    expected = {"mean": 1.0, "sum": 8.0, "summed and divided": 2.0, "log-softmax": 1.0}
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (nn.CrossEntropyLoss(reduction="none"), "one number"),
        (lambda z, y: 1.0, "float"),
        (nn.CrossEntropyLoss(torch.ones(3)), "weight tensor"),
        (lambda z, y: torch.ones((), requires_grad=True) * 2, "logits"),
    ],
)
def test_a_loss_that_is_none_is_refused(loss, message):
    with pytest.raises(ValueError, match=message):
        measure_form(loss, 5)


@pytest.mark.parametrize("name", ["weights", "sum", "both"])
def test_clients_train_with_their_loss(name):
    loss, _ = LINEAR[name]
    model, x, y = nn.Linear(6, 5), torch.rand(2, 4, 6), torch.randint(5, (2, 4))
    loss(model(x[0]), y[0]).backward()
    update = fedsgd(model, x[0], y[0], loss=loss)
    torch.testing.assert_close(update.gradient("weight"), model.weight.grad)
    trained = Client(Scheme("fedavg", 0.1, 2), loss=loss).train(model, x, y, {})
    torch.testing.assert_close(trained.tensors, fedavg(model, x, y, 0.1, "delta", loss=loss).tensors)
    plain = fedavg(model, x, y, 0.1, "delta").tensors
    assert not torch.allclose(trained.tensors["weight"], plain["weight"], rtol=0.01)
