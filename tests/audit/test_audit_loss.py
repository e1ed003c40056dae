"""Clients with a loss of their own and several epochs: numbers are shown, and what is no all-clear is none."""

import pytest
import torch
from networks import Behind, Residual
from torch import nn
from torch.nn import functional as F

from fedleak.audit import Setup, audit, guard
from fedleak.audit.case import passes, prepare


def quick(**changes):
    usual = {"model": Residual, "shape": (20,), "batch_size": 16, "trials": 4, "remedy_trials": 0, "auxiliary": 20}
    return Setup(**{**usual, **changes})


def best(report):
    return report.table.query("applies").set_index("attack")["iacc"][report.ranking()].max()


LOSSES = {
    "ten times": (lambda z, y: 10 * F.cross_entropy(z, y), True),
    "label smoothing": (nn.CrossEntropyLoss(label_smoothing=0.2), False),
    "ascent": (lambda z, y: -F.cross_entropy(z, y), False),
}


@pytest.mark.parametrize("name", LOSSES)
def test_an_all_clear_needs_the_cross_entropy_times_a_factor(name):
    loss, is_clear = LOSSES[name]
    report = audit(quick(loss=loss), fast=True)
    assert report.ranking(), "the attacks' numbers are shown"
    (verdict,) = guard.verdicts(report, guard.Limits(mean=1.0))
    assert (verdict.status == "kept") == is_clear, verdict.why


class Rolled(torch.autograd.Function):
    """The identity, whose gradient has the classes in another order."""

    @staticmethod
    def forward(ctx, z):
        return z.view_as(z)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.roll(1, dims=1)


def clamped(z, y):
    return F.cross_entropy(z.clamp(-10, 10), y)


@pytest.mark.parametrize("steps", [{}, {"algorithm": "fedavg", "lr": 1e-3, "steps": 2}])
@pytest.mark.parametrize(
    ("function", "loss", "departs"),
    [
        (nn.Identity(), None, False),
        (nn.Identity(), LOSSES["ten times"][0], False),
        (lambda z: z.log_softmax(1), nn.NLLLoss(), False),
        (nn.Identity(), clamped, True),
        (Rolled.apply, None, True),
        (lambda z: z.mul_(0.5), None, True),
    ],
    ids=["plain", "ten times", "log-softmax", "clamped in the loss", "other backward pass", "changed in place"],
)
def test_the_gradient_at_the_last_layer_is_measured_in_every_step(function, loss, departs, steps):
    case = prepare(quick(model=Behind(function, (20, 32, 4), 60), loss=loss, **steps))
    case.trial(0)
    assert bool(case.loss.departure) == departs
    assert (case.loss.factor is None) == departs
    assert not any(module._forward_hooks for module in case.model.modules())


class WarmUp(nn.Module):
    """The cross-entropy in its first calls, then with smoothed labels."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def forward(self, z, y):
        self.calls -= 1
        return F.cross_entropy(z, y, label_smoothing=0.0 if self.calls >= 0 else 0.2)


@pytest.mark.parametrize(("calls", "departs"), [(8, True), (9, False)])
def test_a_loss_that_changes_with_its_calls_is_measured_where_clients_call_it(calls, departs):
    """The calls that look at a loss beforehand are on a copy of it: three trials of three steps are nine calls."""
    case = prepare(quick(loss=WarmUp(calls), algorithm="fedavg", lr=0.05, steps=3))
    for number in range(3):
        case.trial(number)
    assert bool(case.loss.departure) == departs


def test_well_trained_models_do_not_depart():
    """The gradients are those of rounding: 1 - p, where a sample's own logit is 30 above the others."""
    model = nn.Sequential(nn.Linear(20, 4), nn.LogSoftmax(1))
    with torch.no_grad():
        model[0].weight.copy_(30 * torch.eye(4, 20))
    y = torch.arange(200) % 4
    case = prepare(quick(model=model, shape=None, data=(torch.eye(20)[y] + 0.1 * torch.rand(200, 20), y)))
    case.trial(0)
    assert case.loss.departure == ""


@pytest.mark.parametrize("steps", [{}, {"algorithm": "fedavg", "lr": 0.05, "steps": 2}])
def test_clients_train_with_the_loss_that_they_have(steps):
    """Labels smoothed by 0.2 move the bias's gradient by 0.2 (share of the class - 1/4)."""
    case = prepare(quick(loss=LOSSES["label smoothing"][0], **steps))
    plain = prepare(quick(**steps)).trial(0).updates[0]
    (smoothed,) = (done := case.trial(0)).updates
    moved = (done.y[0].flatten().bincount(minlength=4) / done.y.numel() - 0.25) * 0.2
    torch.testing.assert_close(smoothed.gradient("c.bias") - plain.gradient("c.bias"), moved, atol=0.005, rtol=0)
    assert moved.abs().max() > 0.02


def test_a_report_names_the_loss():
    losses = LOSSES["ten times"][0], LOSSES["label smoothing"][0]
    for loss, named in zip(losses, ("<lambda> (10 times", "CrossEntropyLoss (no multiple of"), strict=True):
        text = audit(quick(loss=loss, trials=1, adversary="no access")).to_markdown().replace("\\", "")
        assert f"- Loss: {named} the mean cross-entropy)." in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "focal"}, "loss is a function or a module"),
        ({"loss": nn.CrossEntropyLoss}, "loss is a function or a module"),
        ({"loss": nn.CrossEntropyLoss(reduction="none")}, "reduce it over the batch"),
        ({"loss": nn.CrossEntropyLoss(torch.ones(3))}, "the loss does not take logits"),
        ({"epochs": 2}, "FedSGD has one local step, got steps=1, epochs=2"),
        ({"epochs": 0, "algorithm": "fedavg"}, "epochs is a whole number, at least 1"),
    ],
)
def test_what_no_client_can_train_with_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        prepare(quick(**changes))


EPOCHS = {"algorithm": "fedavg", "lr": 0.05, "steps": 2, "epochs": 3}


def test_epochs_are_passes_over_the_same_samples():
    first, *later = passes(3, (1, 2, 4), torch.Generator().manual_seed(0)).view(3, 8).tolist()
    assert first == list(range(8))
    assert [sorted(epoch) for epoch in later] == [first] * 2
    assert later[0] != first
    done = prepare(quick(**EPOCHS)).trial(0)
    (update,) = done.updates
    assert (update.steps, update.samples, done.truth.sum().item()) == (6, 96, 32)


def test_counts_are_those_of_one_epoch():
    report = audit(quick(**EPOCHS, trials=6), fast=True)
    assert report.facts["samples"] == 32
    assert best(report) > 0.9
    assert "after 3 epochs of 2 steps, rate 0.05" in report.to_markdown()
