"""Loops whose steps look like SGD's on the mean cross-entropy, and are not: each is in doubt, with right labels."""

import pytest
import torch
from loops import CLASSES, Parts, mlp, samples
from torch import nn
from torch.nn import functional as F

from fedleak.federated.loop import record
from fedleak.federated.loss_identity import CROSS_ENTROPY, OTHER, SMOOTHED, identify_loss
from fedleak.federated.recording import read


def backward(model, x, y, loss=F.cross_entropy):
    model.zero_grad()
    loss(model(x), y).backward()


def one_step(folder, model, optimiser, x, y, **how):
    with record(folder, model, optimiser, round=1, **how) as saw:
        saw(y)
        backward(model, x, y)
        optimiser.step()


def copies(model):
    return [p.detach().clone() for p in model.parameters()]


@torch.no_grad()
def put(model, values):
    for p, value in zip(model.parameters(), values, strict=True):
        p.copy_(value)


def binarised(model, optimiser, x, y, saw):
    saw(y)
    weights = copies(model)
    put(model, [w.sign() * w.abs().mean() for w in weights])
    backward(model, x, y)
    put(model, weights)
    optimiser.step()


def sharpness_aware(model, optimiser, x, y, saw):
    saw(y)
    backward(model, x, y)
    weights = copies(model)
    put(model, [w + p.grad for w, p in zip(weights, model.parameters(), strict=True)])
    backward(model, x, y)
    put(model, weights)
    optimiser.step()


def clipped_by_hand(model, optimiser, x, y, saw):
    saw(y)
    total = [torch.zeros_like(p) for p in model.parameters()]
    for i in range(len(y)):
        backward(model, x[i : i + 1], y[i : i + 1])
        norm = sum(p.grad.square().sum() for p in model.parameters()).sqrt()
        for t, p in zip(total, model.parameters(), strict=True):
            t += p.grad / norm.clamp(min=0.1) / len(y)
    for t, p in zip(total, model.parameters(), strict=True):
        p.grad = t
    optimiser.step()


def added_by_hand(model, optimiser, x, y, saw):
    total = [torch.zeros_like(p) for p in model.parameters()]
    for a, b in zip(x.chunk(2), y.chunk(2), strict=True):
        saw(b)
        backward(model, a, b)
        total = [t + p.grad / 2 for t, p in zip(total, model.parameters(), strict=True)]
    for t, p in zip(total, model.parameters(), strict=True):
        p.grad = t
    optimiser.step()


def two_optimisers(model, optimiser, x, y, saw):
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    for a, b, steps in zip(x.chunk(2), y.chunk(2), (optimiser, other), strict=True):
        saw(b)
        backward(model, a, b)
        steps.step()


def hooked(model, optimiser, x, y, saw):
    saw(y)
    model[0].weight.register_hook(torch.sign)
    backward(model, x, y)
    optimiser.step()


def unfrozen_late(model, optimiser, x, y, saw):
    for k, (a, b) in enumerate(zip(x.chunk(4), y.chunk(4), strict=True)):
        saw(b)
        model[0].requires_grad_(k == 3)
        backward(model, a, b)
        optimiser.step()


def decayed_for_long(model, optimiser, x, y, saw):
    optimiser.param_groups[0].update(weight_decay=0.1, lr=0.5)
    for _ in range(60):
        saw(y)
        backward(model, x, y)
        optimiser.step()


def two_heads():
    return Parts(lambda m, x: (m.other(m.body(x)), m.fc(m.body(x))), other=nn.Linear(32, 3))


def of_two_heads(model, optimiser, x, y, saw):
    saw(y)
    backward(model, x, y, lambda z, y: F.cross_entropy(z[0], y // 2) + F.cross_entropy(z[1], y))
    optimiser.step()


DISGUISES = {
    "fake quantisation": (binarised, "changed otherwise than by the optimiser's steps"),
    "sharpness-aware": (sharpness_aware, "changed otherwise than by the optimiser's steps"),
    "samples clipped by hand": (clipped_by_hand, "altered between backward pass and step"),
    "batches added by hand": (added_by_hand, "altered between backward pass and step"),
    "a second optimiser": (two_optimisers, "changed otherwise than by the optimiser's steps"),
    "a hook on the body": (hooked, "a hook may change the gradient of 0.weight"),
    "a body unfrozen late": (unfrozen_late, "0.weight has a gradient in 1 of 4 steps"),
    "much weight decay": (decayed_for_long, "weight decay cannot be separated"),
    "two heads": (of_two_heads, "the loss is of 2 outputs"),
}


@pytest.mark.parametrize("name", DISGUISES)
def test_what_only_looks_like_sgd_is_in_doubt_and_its_labels_are_right(name, tmp_path):
    run, reason = DISGUISES[name]
    model = two_heads() if name == "two heads" else mlp()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = samples()
    with record(tmp_path, model, optimiser, round=1) as saw:
        run(model, optimiser, x, y, saw)
    (contribution,) = read(tmp_path)
    assert any(reason in doubt for doubt in contribution.doubts), contribution.doubts
    assert contribution.scheme is None
    times = contribution.samples // len(y)
    assert contribution.counts == (times * y.bincount()).tolist()


def test_columns_between_the_compared_ones_are_compared_in_other_rows(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 2048), nn.ReLU(), nn.Linear(2048, CLASSES, bias=False))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = samples()
    with record(tmp_path, model, optimiser, round=1) as saw:
        saw(y)
        backward(model, x, y)
        optimiser.step()
        with torch.no_grad():
            model[2].weight[:, 1::2] = 0
    assert "step" not in read(tmp_path)[0].verified


def test_ascent_with_weight_decay_is_recorded(tmp_path):
    model, (x, y) = mlp(), samples()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, maximize=True, weight_decay=0.01)
    with record(tmp_path, model, optimiser, round=1) as saw:
        saw(y)
        backward(model, x, y, lambda z, y: -F.cross_entropy(z, y))
        optimiser.step()
    (contribution,) = read(tmp_path)
    assert contribution.weight_decay == pytest.approx(0.01)
    assert contribution.scheme is not None


class Normed(nn.Module):
    """A network whose running variance changes far more than its weights."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.layers = nn.BatchNorm1d(20), mlp()

    def forward(self, x):
        return self.layers(self.norm(255 * x))


@pytest.mark.parametrize("share", [1.0, 0.99, 0.01, -1.0])
def test_buffers_do_not_hide_that_other_weights_are_sent(share, tmp_path):
    model, (x, y) = Normed(), samples()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def sent():
        trained = dict(model.named_parameters())
        return {n: before[n] + share * (t - before[n]) if n in trained else t for n, t in model.state_dict().items()}

    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    one_step(tmp_path, model, optimiser, x, y, sent=sent)
    assert ("step" in read(tmp_path)[0].verified) == (share == 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: {f"module.{name}": t for name, t in state.items()}, "'module.0.bias' is no name of the model"),
        (lambda state: {"2.weight": state["2.weight"]}, "missing"),
    ],
)
def test_a_sent_state_with_other_names_is_an_error_that_names_one(change, message, tmp_path):
    model, (x, y) = mlp(), samples()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    how = {"sent": lambda: change(model.state_dict())}
    with pytest.raises(ValueError, match=message):
        one_step(tmp_path, model, optimiser, x, y, **how)


@pytest.mark.parametrize(
    ("stated", "lost"),
    [({"lr": 1.0}, "step"), ({"factor": 2.0}, "loss"), ({"batch_size": 7}, "labels"), ({"lr": 0.1}, "")],
)
def test_a_stated_fact_that_differs_from_the_measured_one_is_a_doubt(stated, lost, tmp_path):
    model, (x, y) = mlp(), samples()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    one_step(tmp_path, model, optimiser, x, y, **stated)
    (contribution,) = read(tmp_path)
    assert {"step", "loss", "labels"} - {*contribution.verified} == ({lost} if lost else set())
    assert bool(contribution.doubts) == bool(lost)


def test_measured_fields_cannot_be_stated(tmp_path):
    model, (x, y) = mlp(), samples()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="verified is measured"):
        one_step(tmp_path, model, optimiser, x, y, verified=["step"])


def gradient_of(loss, logits):
    logits = logits.clone().requires_grad_()
    return torch.autograd.grad(loss(logits), logits)[0]


@pytest.mark.parametrize("seed", range(5))
def test_with_two_classes_only_a_plain_loss_shows_labels(seed):
    torch.manual_seed(seed)
    y = torch.arange(20) % 2
    certain = 8 * (F.one_hot(y, 2) - 0.5) + torch.randn(20, 2) / 2
    teacher = torch.randn(20, 2).softmax(1)
    signs = torch.where(torch.arange(20) < 8, -1.0, 1.0)
    for loss, name, labels in (
        (lambda z: F.cross_entropy(z, y), CROSS_ENTROPY, y),
        (lambda z: F.cross_entropy(z, y, reduction="sum"), CROSS_ENTROPY, y),
        (lambda z: F.cross_entropy(z, y, label_smoothing=0.2), SMOOTHED, y),
        (lambda z: F.kl_div(z.log_softmax(1), teacher, reduction="batchmean"), OTHER, None),
        (lambda z: (signs * F.cross_entropy(z, y, reduction="none")).mean(), OTHER, None),
    ):
        identified = identify_loss(certain, gradient_of(loss, certain))
        assert identified.name == name
        assert labels is None or identified.labels.equal(labels)


def test_one_sample_of_three_classes_shows_no_smoothing():
    logits, y = torch.tensor([[8.0, 0.5, 0.0]]), torch.tensor([0])
    gradient = gradient_of(lambda z: F.cross_entropy(z, y, label_smoothing=0.1), logits)
    assert identify_loss(logits, gradient).name == OTHER
