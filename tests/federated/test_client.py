"""An honest client computes what plain PyTorch computes, and leaves the model as it was."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from updates import train_by_sgd

from fedleak.attacks.contest import view
from fedleak.attacks.registry import WHITE_BOX, Need
from fedleak.federated import Scheme, Softening, fedavg, fedsgd
from fedleak.federated.algorithms import Server
from fedleak.federated.client import Client
from fedleak.federated.restricted import last_layers
from fedleak.models import build


def small(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def zeros(inputs=1):
    model = nn.Linear(inputs, 2)
    for p in model.parameters():
        nn.init.zeros_(p)
    return model


def test_golden_gradient_of_a_bare_linear_layer():
    # Weights and bias 0, so the softmax of 2 classes is (1/2, 1/2); with label 0: p - y = (-1/2, 1/2).
    # Times the input (1, 2): rows (-1/2, -1) and (1/2, 1). The bias gradient is p - y.
    update = fedsgd(zeros(2), torch.tensor([[1.0, 2.0]]), torch.tensor([0]))
    assert update.gradient("weight").tolist() == [[-0.5, -1.0], [0.5, 1.0]]
    assert update.gradient("bias").tolist() == [-0.5, 0.5]
    assert (update.kind, update.samples, update.steps) == ("gradient", 1, 1)
    # The label 0 smoothed by 0.2 is (0.9, 0.1): p - y = (-0.4, 0.4).
    update = fedsgd(zeros(2), torch.tensor([[1.0, 2.0]]), torch.tensor([0]), Softening(smoothing=0.2))
    torch.testing.assert_close(update.gradient("bias"), torch.tensor([-0.4, 0.4]))
    torch.testing.assert_close(update.gradient("weight"), torch.tensor([[-0.4, -0.8], [0.4, 0.8]]))


def test_mixup_by_hand():
    # Of the labels 0 and 1, mixed either way, the mean is (1/2, 1/2): the bias's gradient is that of one-hot labels.
    # Swapped, the inputs 2 and 6 are 2 own + 6 (1 - own) and 6 own + 2 (1 - own), of the classes 0 and 1 own each.
    soft = next(s for s in (Softening(mixup=1.0, seed=k) for k in range(9)) if drawn_of(s)[1].tolist() == [1, 0])
    share, _ = drawn_of(soft)
    update = fedsgd(zeros(), torch.tensor([[2.0], [6.0]]), torch.tensor([0, 1]), soft)
    torch.testing.assert_close(update.gradient("bias"), torch.zeros(2), atol=1e-7, rtol=0)
    first, second = 2 * share + 6 * (1 - share), 6 * share + 2 * (1 - share)
    expected = (first * (0.5 - share) + second * (0.5 - (1 - share))) / 2
    torch.testing.assert_close(update.gradient("weight"), torch.tensor([[expected], [-expected]]))
    assert 0.01 < share < 0.99


def drawn_of(soft):
    """What a softening draws for two samples: the share of the own label, and whose is the other."""
    return soft.mixed(torch.zeros(2, 1), torch.Generator().manual_seed(soft.seed))[1:]


@pytest.mark.parametrize("wrong", [{"smoothing": -0.1}, {"smoothing": 1.1}, {"mixup": -1.0}, {"mixup": float("nan")}])
def test_a_softening_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match="smoothing"):
        Softening(**wrong)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 4), batch=st.integers(1, 5), lr=st.floats(0.01, 1.0))
def test_fedavg_is_a_loop_of_sgd_steps(seed, steps, batch, lr):
    model = small(seed)
    x, y = torch.rand(steps, batch, 1, 3, 4).double(), torch.randint(3, (steps, batch))
    after, total = train_by_sgd(model, zip(x, y, strict=True), lr=lr)
    delta = {name: p.detach() - model.get_parameter(name).detach() for name, p in after.named_parameters()}
    for share, expected in (("gradient", total), ("delta", delta)):
        update = fedavg(model, x, y, lr, share=share)
        assert (update.kind, update.samples, update.steps) == (share, steps * batch, steps)
        for name, tensor in expected.items():
            torch.testing.assert_close(update.tensors[name], tensor, rtol=1e-10, atol=1e-13)


def test_fedavg_with_batch_norm_equals_sgd_and_keeps_the_model():
    model = build("resnet20-1", (1, 8, 8), 3, seed=0).double()
    state = copy.deepcopy(model.state_dict())
    x, y = torch.rand(2, 4, 1, 8, 8).double(), torch.tensor([[0, 1, 2, 0], [1, 1, 2, 2]])
    _, total = train_by_sgd(model, zip(x, y, strict=True), lr=0.1)
    update = fedavg(model, x, y, 0.1)
    for name, tensor in total.items():
        torch.testing.assert_close(update.tensors[name], tensor, rtol=1e-8, atol=1e-11)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert model.training


def test_bad_batches():
    x, zero = torch.rand(2, 1, 1, 3, 4).double(), torch.zeros(2, 1).long()
    for word, y, lr in (
        ("expected x", torch.zeros(2, 4).long(), 0.1),
        ("labels", torch.tensor([[0], [3]]), 0.1),
        ("learning rate", zero, 0.0),
        ("whole numbers", zero.float(), 0.1),
    ):
        with pytest.raises(ValueError, match=word):
            fedavg(small(0), x, y, lr=lr)


def test_frozen_parameters_are_neither_trained_nor_shared():
    model = small(0)
    model[1].weight.requires_grad_(False)
    x, y = torch.rand(2, 4, 1, 3, 4).double(), torch.randint(3, (2, 4), dtype=torch.int32)
    update, (trained, total) = fedavg(model, x, y, 0.1), train_by_sgd(model, zip(x, y.long(), strict=True), lr=0.1)
    assert update.tensors.keys() == total.keys() == dict(model.named_parameters()).keys() - {"1.weight"}
    for name, tensor in update.tensors.items():
        torch.testing.assert_close(tensor, total[name])
    after = update.model(model)
    assert torch.equal(after[1].weight, model[1].weight)
    torch.testing.assert_close(after[3].weight, trained[3].weight)
    server = Server(copy.deepcopy(model), Scheme("scaffold", 0.1, 2), 2)
    server.round([x, x], [y, y])
    assert torch.equal(server.model[1].weight, model[1].weight)
    assert Need.ALL_GRADIENTS in view(WHITE_BOX, update, model).has
    model[3].bias.requires_grad_(False)
    assert last_layers(model) == ("3.weight",)
    with pytest.raises(ValueError, match="frozen"):
        fedsgd(model.requires_grad_(False), x[0], y[0])


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda m: nn.DataParallel(torch.compile(m, backend="eager"))])
def test_wrappers_change_neither_update_nor_names(wrap):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).double()
    x, y, scheme = torch.rand(2, 4, 6).double(), torch.randint(3, (2, 4)), Scheme("fedavg", 0.1, 2)
    expected = fedavg(model, x, y, 0.1, "delta").tensors
    for update in (
        fedavg(wrap(model), x, y, 0.1, "delta"),
        Client(scheme).train(wrap(model), x, y, {}),
        Server(wrap(copy.deepcopy(model)), scheme, 1).round([x], [y])[0],
    ):
        assert list(update.tensors) == list(expected)
        torch.testing.assert_close(dict(update.tensors), dict(expected))
