"""Every scheme's update is the weighted sum of its steps' gradients and h, over random models, rounds and settings."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedleak.federated import Scheme, Server
from fedleak.federated.algorithms import SCHEMES
from notebooks.rlu.experiments.table1 import round_with_gradients

rates = st.floats(1e-3, 0.5)


def scheme_of(name, lr, steps, momentum, regularisation):
    momentum, regularisation = momentum * (name in ("sgdm", "nag")), regularisation * (name in SCHEMES[-3:])
    return Scheme(name, lr, steps, momentum, regularisation)


def network(generator, sizes):
    layers = [nn.Flatten(), nn.Linear(sizes[0], sizes[1]), nn.Tanh(), nn.Linear(sizes[1], sizes[2])]
    model = nn.Sequential(*layers).double()
    for p in model.parameters():
        p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64)
    return model


@pytest.mark.parametrize("name", SCHEMES)
@settings(max_examples=6, deadline=None)
@given(
    lr=rates,
    steps=st.integers(1, 7),
    momentum=st.floats(0, 0.99),
    regularisation=st.floats(1e-2, 5),
    rounds=st.integers(1, 4),
    seed=st.integers(0, 2**31),
)
def test_the_update_is_weighted_gradients_plus_h(name, lr, steps, momentum, regularisation, rounds, seed):
    generator = torch.Generator().manual_seed(seed)
    scheme = scheme_of(name, lr, steps, momentum, regularisation)
    server = Server(network(generator, (4, 3, 5)), scheme, 3)
    for t in range(rounds):
        x = torch.randn(3, steps, 6, 1, 2, 2, generator=generator, dtype=torch.float64)
        y = torch.randint(5, (3, steps, 6), generator=generator)
        updates, gradients = round_with_gradients(server, x, y)
        for k, update in enumerate(updates):
            h = server.history(k, "3.bias")
            expected = -lr * (scheme.weights() @ gradients[k]) + h
            scale = max(1.0, expected.abs().max().item())
            assert (update.tensors["3.bias"] - expected).abs().max() / scale < 1e-10
            if name in ("scaffold", "feddyn", "feddc"):
                assert bool(torch.as_tensor(h).any()) == (t > 0)


def test_server_steps_of_fedavg_and_feddyn():
    for name in ("fedavg", "feddyn", "feddc"):
        generator = torch.Generator().manual_seed(0)
        server = Server(network(generator, (4, 3, 5)), scheme_of(name, 0.1, 2, 0, 0.5), 2)
        means = []
        for _ in range(2):
            before = server.model[3].bias.detach().clone()
            x = torch.randn(2, 2, 6, 1, 2, 2, generator=generator, dtype=torch.float64)
            updates = server.round(x, torch.randint(5, (2, 2, 6), generator=generator))
            means.append(torch.stack([u.tensors["3.bias"] for u in updates]).mean(0))
            expected = means[-1] if name == "fedavg" else means[-1] + sum(means)
            torch.testing.assert_close(server.model[3].bias.detach() - before, expected)


def test_scaffolds_server_sends_the_mean_of_the_clients_mean_gradients():
    generator = torch.Generator().manual_seed(0)
    server = Server(network(generator, (4, 3, 5)), Scheme("scaffold", 0.1, 2), 3)
    x = torch.randn(3, 2, 6, 1, 2, 2, generator=generator, dtype=torch.float64)
    updates, gradients = round_with_gradients(server, x, torch.randint(5, (3, 2, 6), generator=generator))
    torch.testing.assert_close(server.sent["3.bias"], gradients.mean((0, 1)))
    torch.testing.assert_close(
        server.sent["1.weight"], -torch.stack([u.tensors["1.weight"] for u in updates]).mean(0) / 0.2
    )


def played(scheme, clients, labels=0):
    """A round of two clients' batches of two steps each."""
    x, y = torch.zeros(2, 2, 6, 1, 2, 2, dtype=torch.float64), torch.full((2, 2, 6), labels)
    Server(network(torch.Generator().manual_seed(0), (4, 3, 5)), scheme, clients).round(x, y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Scheme("adam", 0.1, 1), "adam"),
        (lambda: Scheme("fedavg", 0.0, 1), "learning rate"),
        (lambda: Scheme("fedavg", 0.1, 1, 0.9), "momentum"),
        (lambda: Scheme("fedprox", 0.1, 1), "regularisation"),
        (lambda: Scheme("scaffold", 0.1, 2).history([torch.zeros(5)]), "2 rounds"),
        (lambda: played(Scheme("fedavg", 0.1, 2), 3), "3 clients"),
        (lambda: played(Scheme("fedavg", 0.1, 3), 2), "x"),
        (lambda: played(Scheme("fedavg", 0.1, 2), 2, labels=5), "labels"),
    ],
)
def test_bad_schemes_and_rounds(make, message):
    with pytest.raises(ValueError, match=message):
        make()


class Noted(nn.Module):
    """Keep the mean of the last batch where some implementations keep statistics: in a frozen parameter."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(3, dtype=torch.float64), requires_grad=False)
        self.register_buffer("apart", torch.zeros(3, dtype=torch.float64), persistent=False)

    def forward(self, x):
        self.mean.copy_(x.detach().mean(0))
        self.apart.copy_(x.detach().mean(0))
        return x


@pytest.mark.parametrize(("norm", "name"), [(lambda: nn.BatchNorm1d(3), "scaffold"), (Noted, "fedavg")])
def test_running_statistics_become_the_mean_of_the_clients(norm, name):
    def statistics(model):
        return {k: v.clone() for k, v in model.state_dict().items() if not {"weight", "bias"} & {k.split(".")[-1]}}

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), norm(), nn.Linear(3, 5)).double()
    x, y = torch.randn(3, 2, 6, 4, dtype=torch.float64), torch.randint(5, (3, 2, 6))
    scheme = scheme_of(name, 0.1, 2, 0, 0.5)
    alone = [Server(copy.deepcopy(model), scheme, 1) for _ in x]
    for server, *batches in zip(alone, x, y, strict=True):
        server.round(*([part] for part in batches))
    server = Server(model, scheme, 3)
    update = server.round(x, y)[0]
    for entry, value in statistics(model).items():
        mean = torch.stack([statistics(other.model)[entry].double() for other in alone]).mean(0)
        assert torch.equal(value, mean.to(value.dtype))
        assert value.any()
        assert entry not in update.tensors
    assert norm is not Noted or not model[1].apart.any(), "no state has it"


def test_statistics_stay_bit_by_bit_where_no_client_changes_them():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.GroupNorm(1, 3), nn.Linear(3, 5)).eval()
    model[1].running_mean.copy_(torch.rand(3) / 3)
    before = {k: v.clone() for k, v in model.named_buffers()}
    Server(model, Scheme("fedavg", 0.1, 2), 3).round(torch.randn(3, 2, 6, 4), torch.randint(5, (3, 2, 6)))
    assert all(torch.equal(v, before[k]) for k, v in model.named_buffers())
