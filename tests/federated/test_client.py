"""An honest client computes what plain PyTorch computes, and leaves the model as it was."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedleak.federated import fedavg, fedsgd
from fedleak.models import build


def small(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def by_optimiser(model, x, y, lr):
    """Train a copy with torch.optim.SGD; returns summed gradients and weights after minus before."""
    model = copy.deepcopy(model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    total = {name: torch.zeros_like(p) for name, p in before.items()}
    optimiser = torch.optim.SGD(model.parameters(), lr=lr)
    for images, labels in zip(x, y, strict=True):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        for name, p in model.named_parameters():
            total[name] += p.grad
        optimiser.step()
    return total, {name: p.detach() - before[name] for name, p in model.named_parameters()}


def test_golden_gradient_of_a_bare_linear_layer():
    # Weights and bias 0, so the softmax of 2 classes is (1/2, 1/2); with label 0: p - y = (-1/2, 1/2).
    # Times the input (1, 2): rows (-1/2, -1) and (1/2, 1). The bias gradient is p - y.
    model = nn.Linear(2, 2)
    for p in model.parameters():
        nn.init.zeros_(p)
    update = fedsgd(model, torch.tensor([[1.0, 2.0]]), torch.tensor([0]))
    assert update.gradient("weight").tolist() == [[-0.5, -1.0], [0.5, 1.0]]
    assert update.gradient("bias").tolist() == [-0.5, 0.5]
    assert (update.kind, update.samples, update.steps) == ("gradient", 1, 1)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 4), batch=st.integers(1, 5), lr=st.floats(0.01, 1.0))
def test_fedavg_is_a_loop_of_sgd_steps(seed, steps, batch, lr):
    model = small(seed)
    x, y = torch.rand(steps, batch, 1, 3, 4).double(), torch.randint(3, (steps, batch))
    total, delta = by_optimiser(model, x, y, lr)
    for share, expected in (("gradient", total), ("delta", delta)):
        update = fedavg(model, x, y, lr, share=share)
        assert (update.kind, update.samples, update.steps) == (share, steps * batch, steps)
        for name, tensor in expected.items():
            torch.testing.assert_close(update.tensors[name], tensor, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("train", [True, False])
def test_fedavg_with_batch_norm_is_a_loop_of_sgd_steps_and_leaves_the_model_alone(train):
    model = build("resnet20", (1, 8, 8), 3, seed=0).double().train(train)
    state = copy.deepcopy(model.state_dict())
    x, y = torch.rand(2, 4, 1, 8, 8).double(), torch.tensor([[0, 1, 2, 0], [1, 1, 2, 2]])
    total, _ = by_optimiser(model, x, y, 0.1)
    update = fedavg(model, x, y, 0.1)
    for name, tensor in total.items():
        torch.testing.assert_close(update.tensors[name], tensor, rtol=1e-8, atol=1e-11)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert model.training is train


def test_fedsgd_is_fedavg_of_one_step():
    model, x, y = small(0), torch.rand(4, 1, 3, 4).double(), torch.tensor([0, 1, 2, 2])
    one, other = fedsgd(model, x, y), fedavg(model, x[None], y[None], lr=0.3)
    assert all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.rand(2, 3, 1, 3, 4), torch.zeros(2, 4, dtype=torch.long), r"got \(2, 3, 1, 3, 4\) and \(2, 4\)"),
        (torch.rand(2, 3, 1, 3, 4), torch.zeros(6, dtype=torch.long), r"y \[steps, B\]"),
        (torch.rand(2, 0, 1, 3, 4), torch.zeros(2, 0, dtype=torch.long), "not empty"),
        (torch.rand(1, 2, 1, 3, 4), torch.tensor([[0, 3]]), r"labels lie in 0\.\.2, got 0\.\.3"),
        (torch.rand(1, 2, 1, 3, 4), torch.tensor([[0, -1]]), r"labels lie in 0\.\.2, got -1\.\.0"),
    ],
)
def test_bad_batches(x, y, message):
    with pytest.raises(ValueError, match=message):
        fedavg(small(0), x.double(), y, lr=0.1)


def test_fedavg_refuses_a_learning_rate_that_is_not_positive():
    with pytest.raises(ValueError, match="learning rate is positive"):
        fedavg(small(0), torch.rand(2, 1, 1, 3, 4).double(), torch.zeros(2, 1, dtype=torch.long), lr=0.0)
