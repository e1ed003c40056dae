"""What a recorder measures of a training loop: step, loss, labels. None of many loops is misread silently."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import CLASSES, LOOPS, mlp, plain, samples
from torch import nn
from torch.nn import functional as F

from fedleak.federated import Update, loss_check, loss_identity
from fedleak.federated.loop import class_labels, record, training_facts
from fedleak.federated.loss_identity import identify_loss
from fedleak.federated.recording import read
from fedleak.federated.rules import Rule, unroll_rules
from fedleak.models import head

UNCLEAR_OUTPUTS = (
    "batch norm and dropout",
    "no bias",
    "data parallel",
    "a dictionary of outputs",
    "GradScaler that skips steps in float16",
    "a cosine head",
    "two heads that add up",
    "a scale that is never taken off",  # in its steps of 10 the probabilities move
)
"""Loops of which the mean probabilities are not those of a pass over all samples before."""


def recorded(folder, loop, optimiser=None):
    model, (x, y) = loop.network(), samples()
    chosen = optimiser or loop.optimiser(model)
    with record(folder, model, chosen, round=1) as saw:
        loop.run(model, chosen, x, y, saw)
    (contribution,) = read(folder)
    return contribution


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_verified_or_what_is_in_doubt_is_said(name, tmp_path):
    loop = LOOPS[name]
    record = recorded(tmp_path, loop)
    state = "assumed" if "loss" not in record.verified else "verified" if abs(record.factor - 1) < 1e-3 else "factor"
    assert ("doubt" if record.doubts else state) == loop.expected, record.doubts
    assert (record.scheme is None) == bool(record.doubts)
    if loop.expected not in ("verified", "factor"):
        return
    assert set(record.verified) == {"step", "loss", "labels"}
    if name not in UNCLEAR_OUTPUTS:
        # Counts follow from the bias' gradient, which is the mean of p - y; p hardly moves at these rates.
        model, (x, y) = loop.network(), samples()
        (bias,) = [k for k in record.update().tensors if k.endswith("bias") and k == head(model).bias]
        used = torch.isin(y, torch.tensor([k for k, n in enumerate(record.counts) if n]))
        p = model(x.to(next(model.parameters()))).softmax(1)[used].mean(0)
        estimate = record.samples * (p - record.update().gradient(bias))
        truth = record.truth(CLASSES)
        assert (estimate - truth).abs().max() < 0.05 * record.samples, (estimate, truth)


def test_skipped_steps_leave_no_labels(tmp_path):
    record = recorded(tmp_path, LOOPS["GradScaler that skips steps in float16"])
    assert record.steps < 4
    assert record.samples == 6 * record.steps == sum(record.counts)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_coefficients_are_those_of_torchs_own_sgd(data):
    """With gradients that are unit vectors the final change shows every step's coefficient."""
    steps, momentum = data.draw(st.integers(1, 6)), data.draw(st.sampled_from([0.0, 0.5, 0.9]))
    nesterov = bool(momentum) and data.draw(st.booleans())
    options = {
        "momentum": momentum,
        "nesterov": nesterov,
        "dampening": 0.0 if nesterov else data.draw(st.sampled_from([0.0, 0.3])),
        "maximize": data.draw(st.booleans()),
    }
    p = nn.Parameter(torch.zeros(steps, dtype=torch.float64))
    optimiser = torch.optim.SGD([p], lr=0.1, **options)
    rates = data.draw(st.lists(st.sampled_from([0.1, 0.05, 1.0]), min_size=steps, max_size=steps))
    rules = []
    for step, rate in enumerate(rates):
        optimiser.param_groups[0]["lr"] = rate
        rules.append(Rule.of(optimiser.param_groups[0], first=step == 0))
        p.grad = torch.eye(steps, dtype=torch.float64)[step]
        optimiser.step()
    np.testing.assert_allclose(unroll_rules(tuple(rules)).steps, -p.detach().numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (F.cross_entropy, loss_identity.CROSS_ENTROPY),
        (lambda z, y: 3 * F.cross_entropy(z, y, reduction="sum"), loss_identity.CROSS_ENTROPY),
        (lambda z, y: F.cross_entropy(z, y, weight=torch.arange(1.0, 7.0)), loss_identity.WEIGHTED),
        (lambda z, y: F.cross_entropy(z, y, label_smoothing=0.2), loss_identity.SMOOTHED),
        (lambda z, y: (torch.rand(30) * F.cross_entropy(z, y, reduction="none")).sum(), loss_identity.SAMPLE_WEIGHTED),
        (lambda z, y: F.cross_entropy(z, torch.rand(30, 6).softmax(1)), loss_identity.OTHER),
        (lambda z, y: F.binary_cross_entropy_with_logits(z, F.one_hot(y, 6).float()), loss_identity.NO_SOFTMAX),
    ],
)
def test_a_loss_is_identified_by_the_gradient_of_the_logits(loss, name, seed):
    torch.manual_seed(seed)
    logits, y = (3 * torch.randn(30, 6)).requires_grad_(), torch.randint(6, (30,))
    (gradient,) = torch.autograd.grad(loss(logits, y), logits)
    identified = identify_loss(logits.detach(), gradient)
    assert identified.name == name
    if name in (
        loss_identity.CROSS_ENTROPY,
        loss_identity.WEIGHTED,
        loss_identity.SMOOTHED,
        loss_identity.SAMPLE_WEIGHTED,
    ):
        assert identified.labels.equal(y)


def test_samples_that_are_certain_are_counted_and_ignored_ones_are_not():
    logits = torch.tensor([[0.0, 200.0, 0.0], [1.0, 2.0, 3.0], [0.5, 0.0, 0.0]]).requires_grad_()
    (gradient,) = torch.autograd.grad(F.cross_entropy(logits, torch.tensor([1, 0, -100])), logits)
    assert identify_loss(logits.detach(), gradient).labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.rand(4), "not torch.float32"),
        (torch.ones(4, dtype=torch.bool), "not torch.bool"),
        (F.one_hot(torch.arange(4)), "one-hot, multi-label or masks"),
        (torch.tensor([0, -1, 2]), "labels are 0 or larger, got -1"),
    ],
)
def test_labels_of_another_kind_are_refused_when_they_are_shown(labels, message, tmp_path):
    model = mlp()
    with (
        pytest.raises(ValueError, match=message),
        record(tmp_path, model, LOOPS["sgd"].optimiser(model), round=1) as saw,
    ):
        saw(labels)
    assert not list(tmp_path.iterdir())


def test_labels_that_a_cross_entropy_ignores_are_not_counted():
    assert class_labels(np.array([[3], [-100], [1]])).tolist() == [3, 1]


def test_the_labels_that_the_loss_used_count_and_not_what_was_shown(tmp_path):
    model, (x, y) = mlp(), samples()
    optimiser = LOOPS["sgd"].optimiser(model)
    with record(tmp_path, model, optimiser, round=1) as saw:
        plain(labels=lambda part: (part + 1) % CLASSES)(model, optimiser, x, y, saw)
    assert read(tmp_path)[0].truth(CLASSES).tolist() == y.bincount(minlength=CLASSES).tolist()


@pytest.mark.parametrize("broken", ["identify_loss", "same_logits"])
def test_a_check_that_fails_ends_no_training(tmp_path, monkeypatch, broken):
    monkeypatch.setattr(loss_check, broken, lambda *_: 1 / 0)
    record = recorded(tmp_path, LOOPS["sgd"])
    assert "ZeroDivisionError" in record.doubts[0]
    assert (record.verified, record.counts) == ([], samples()[1].bincount().tolist())


def test_the_model_and_the_optimiser_are_left_without_hooks(tmp_path):
    model = mlp()
    optimiser = LOOPS["momentum"].optimiser(model)
    with pytest.raises(KeyError), record(tmp_path, model, optimiser, round=1):
        raise KeyError
    assert not any(module._forward_hooks for module in model.modules())
    assert not any(p._backward_hooks for p in model.parameters())
    assert not optimiser._optimizer_step_pre_hooks
    assert not optimiser._optimizer_step_post_hooks


def test_training_is_the_same_with_and_without_a_recorder(tmp_path):
    loop, (x, y) = LOOPS["batch norm and dropout"], samples()
    model = loop.network()
    other = copy.deepcopy(model)
    torch.manual_seed(1)
    chosen = loop.optimiser(model)
    with record(tmp_path, model, chosen, round=1) as saw:
        loop.run(model, chosen, x, y, saw)
    torch.manual_seed(1)
    loop.run(other, loop.optimiser(other), x, y, lambda _: None)
    assert all(a.equal(b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))


def test_rates_of_their_own_and_weight_decay_are_taken_off(tmp_path):
    """Every parameter's gradient comes out, of one step exactly."""
    model, (x, y) = mlp(), samples()
    groups = [{"params": model[0].parameters(), "lr": 0.001, "weight_decay": 0.5}, {"params": model[2].parameters()}]
    optimiser = torch.optim.SGD(groups, lr=0.1, weight_decay=0.1)
    gradients = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    with record(tmp_path, model, optimiser, round=1) as saw:
        plain(splits=1)(model, optimiser, x, y, saw)
    update = read(tmp_path)[0].update()
    for name, gradient in zip(dict(model.named_parameters()), gradients, strict=True):
        torch.testing.assert_close(update.gradient(name), gradient, rtol=1e-3, atol=1e-4)


def test_a_parameter_with_the_rate_0_is_not_taken_for_one_without_gradient(tmp_path):
    model, (x, y) = mlp(), samples()
    optimiser = torch.optim.SGD(
        [{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2].parameters()}], lr=0.1
    )
    with record(tmp_path, model, optimiser, round=1) as saw:
        plain(splits=1)(model, optimiser, x, y, saw)
    assert set(read(tmp_path)[0].update().tensors) == {"2.weight", "2.bias"}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "sgd"),
        ({"momentum": 0.9}, "sgd"),
        ({"momentum": 0.9, "nesterov": True}, "nag"),
        ({"momentum": 0.9, "dampening": 0.5}, "sgd with dampening"),
        ({"maximize": True}, "sgd with maximize"),
    ],
)
def test_what_an_optimiser_declares_is_named(options, name):
    assert training_facts(torch.optim.SGD(mlp().parameters(), lr=0.1, **options))["optimiser"] == name


def test_groups_that_differ_are_no_plain_sgd_where_nothing_is_measured():
    model = mlp()
    groups = [{"params": model[0].parameters(), "lr": 0.01}, {"params": model[2].parameters()}]
    assert training_facts(torch.optim.SGD(groups, lr=0.1))["optimiser"] == "sgd with parameter groups that differ"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_state_in_another_precision_has_not_moved_where_only_rounding_differs(dtype):
    """Servers send what their arithmetic makes, clients train from it in their own precision."""
    after = {"w": torch.rand(5, 3).to(dtype if dtype != torch.float64 else torch.float32)}
    sent = {"w": after["w"].double() * (1 + 1e-9)}
    after = {"w": after["w"].clone()}
    after["w"][2] += 0.5
    moved = Update.from_states(sent, after, 4, 1, 0.1).tensors["w"]
    assert moved[[0, 1, 3, 4]].eq(0).all()
    assert moved[2].ne(0).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_bias_in_front_of_batch_norm_raises_no_doubt(seed, tmp_path):
    """Its gradient is nothing but rounding errors, and no part of what an update shows."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, CLASSES))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = samples()
    with record(tmp_path, model, optimiser, round=1) as saw:
        for batch in (slice(0, 12), slice(12, 24)):
            saw(y[batch])
            optimiser.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()
    (contribution,) = read(tmp_path)
    assert sorted(contribution.verified) == ["labels", "loss", "step"], contribution.doubts


def test_steps_that_rounding_swallows_are_doubted_where_they_matter(tmp_path):
    model = mlp().to(torch.bfloat16)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = samples()
    with record(tmp_path, model, optimiser, round=1) as saw:
        saw(y)
        F.cross_entropy(model(x.bfloat16()).float(), y).backward()
        optimiser.step()
    (contribution,) = read(tmp_path)
    assert "step" not in contribution.verified
    assert "roundings" in contribution.doubts[0]


def test_a_sent_state_that_is_not_the_trained_one_keeps_the_labels_alone(tmp_path):
    for folder, factor in (("same", 1.0), ("noisy", 1.01)):
        model = mlp()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = samples()

        def sent(model=model, factor=factor):
            return {name: tensor * factor for name, tensor in model.state_dict().items()}

        with record(tmp_path / folder, model, optimiser, round=1, sent=sent) as saw:
            saw(y)
            F.cross_entropy(model(x), y).backward()
            optimiser.step()
        (contribution,) = read(tmp_path / folder)
        assert sorted(contribution.verified) == (["labels", "loss", "step"] if folder == "same" else ["labels"])
        torch.testing.assert_close(contribution.states()[1]["2.bias"], model.state_dict()["2.bias"] * factor)
