"""What an update cannot be is said by every attack, and honest updates are not accused."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from updates import changed, train_by_sgd

from fedleak import Update
from fedleak.attacks import plausible
from fedleak.attacks.images import invg
from fedleak.attacks.labels import llg, zlg
from fedleak.attacks.plausible import contradictions
from fedleak.federated import fedsgd
from fedleak.federated.schemes import Scheme

N = 10


def network(bias=True, relu=True):
    last = (nn.ReLU() if relu else nn.Tanh(), nn.Linear(32, N, bias=bias))
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32), *last)


def client(seed, size=8, classes=N, bias=True, relu=True):
    torch.manual_seed(seed)
    return network(bias, relu), torch.rand(size, 1, 8, 8), torch.randint(classes, (size,)).square() % N


def trained(model, x, y, steps=1, lr=0.1, loss=F.cross_entropy, **options):
    """The change of the weights over some steps, each on a part of the batch, and the model after them."""
    parts = torch.arange(len(y)).chunk(steps)
    after, _ = train_by_sgd(model, [(x[part], y[part]) for part in parts], loss, lr=lr, **options)
    return after, Update.from_states(model.state_dict(), after.state_dict(), len(y), steps, lr)


@pytest.mark.parametrize(("size", "relu", "bias"), [(1, True, True), (2, False, True), (8, True, False), (64, 1, 1)])
def test_honest_updates_contradict_nothing(size, relu, bias):
    for seed in range(10):
        model, x, y = client(seed, size, bias=bias, relu=relu)
        updates = [fedsgd(model, x, y), trained(model, x, y)[1]]
        if size >= 8:
            updates += [trained(model, x, y, steps, lr)[1] for steps, lr in ((4, 0.1), (4, 0.001), (8, 0.5))]
        updates.append(trained(model, x, y, loss=nn.CrossEntropyLoss(label_smoothing=0.1))[1])
        updates.append(trained(model, x, y, loss=nn.CrossEntropyLoss(weight=torch.arange(1.0, N + 1)))[1])
        assert [contradictions(update, model) for update in updates] == [()] * len(updates)


def test_momentum_is_no_contradiction_for_who_knows_it():
    model, x, y = client(0, 64, classes=2)
    _, update = trained(model, x, y, 8, momentum=0.9)
    assert contradictions(update, model, Scheme("sgdm", 0.1, 8, 0.9)) == ()


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_half_precision_is_no_contradiction(precision):
    for seed in range(10):
        model, x, y = client(seed, 32)
        model = model.to(precision)
        _, update = trained(model, x.to(precision), y)
        assert contradictions(update, model) == ()


@pytest.mark.parametrize(
    ("factor", "reason", "least"),
    [
        (65536.0, plausible.SCALE, 36),
        (8.0, plausible.SCALE, 36),
        (-1.0, plausible.SIGN, 24),
        (-8.0, plausible.SIGN, 36),
    ],
)
def test_scale_and_sign_are_told_of_most_updates(factor, reason, least):
    """A rate over 40 updates: a class may have so small a share that eight times as much is still possible.

    A turned update of a batch whose classes look alike could be an honest one of a client with label smoothing.
    """
    reports = []
    for seed in range(40):
        model, x, y = client(seed)
        reports.append(reason in contradictions(changed(fedsgd(model, x, y), lambda t: factor * t), model))
    assert sum(reports) >= least


def test_a_sum_another_loss_and_a_state_are_told():
    model, x, y = client(1, 32)
    sigmoids = lambda z, y: F.binary_cross_entropy_with_logits(z, F.one_hot(y, N).float())
    for loss in (nn.CrossEntropyLoss(reduction="sum"), sigmoids):
        assert contradictions(trained(model, x, y, loss=loss)[1], model)
    after, _ = trained(model, x, y)
    change = {name: tensor - after.state_dict()[name] for name, tensor in model.state_dict().items()}
    for update in (
        Update.from_states(model.state_dict(), change, 32, 1, 0.1),
        Update(dict(after.state_dict()), "delta", 32, lr=0.1),
    ):
        assert contradictions(update, model) == (plausible.STATE,)


def test_smoothed_clients_of_a_trained_model_are_not_accused():
    """Without a sample of a class, its probability can be below what smoothing gives it: its row is then negative."""
    reports, loss = [], nn.CrossEntropyLoss(label_smoothing=0.2)
    for seed in range(10):
        model, x, y = client(seed, 64)
        for _ in range(5):
            model, _ = trained(model, x, y, 32, loss=loss)
        reports += [contradictions(trained(model, x[k : k + 4], y[k : k + 4], loss=loss)[1], model) for k in (0, 8)]
    assert sum(map(bool, reports)) <= 1


def test_unknown_inputs_are_not_taken_for_those_of_relu():
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru, self.fc = nn.GRU(8, 24, batch_first=True), nn.Linear(24, N)

        def forward(self, x):
            return self.fc(self.gru(x[:, 0])[0][:, -1])

    for seed in range(20):
        _, x, y = client(seed, 4)
        model = Rows()
        model.head_name = "fc"
        assert contradictions(fedsgd(model, x, y), model) == ()


def test_attacks_called_directly_warn():
    model, x, y = client(4)
    odd = changed(fedsgd(model, x, y), lambda t: 65536.0 * t)
    inverted = lambda u, m: invg.reconstruct(u, m, labels=y, iterations=1, shape=(1, 8, 8))
    for recover in (llg.recover, lambda u, m: zlg.recover(u, m, shape=(1, 8, 8)), inverted):
        with pytest.warns(UserWarning, match="larger than that of any mean over samples"):
            recover(odd, model)
