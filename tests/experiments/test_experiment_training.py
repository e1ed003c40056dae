"""All clients of a round at once give what one client after the other gives."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedleak.data import load
from fedleak.federated import fedavg
from fedleak.federated.defences import PureNoise
from fedleak.models import build
from fedleak_book.experiments.training import Federation, set_norms, stacked_updates

SHAPE = (1, 8, 8)


def federation(seed=0, **changes):
    options = {"users": 5, "samples": 12, "composition": "unbalanced", "seed": seed, **changes}
    images = load("synthetic", shape=SHAPE, n_classes=3, count=60)
    return Federation.of(build("cnn", SHAPE, 3, seed=1), images, **options)


def tensors(seed, clients, steps, batch, classes=3):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(clients, steps, batch, *SHAPE, generator=generator, dtype=torch.float64)
    return x, torch.randint(classes, (clients, steps, batch), generator=generator)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    clients=st.integers(1, 3),
    steps=st.integers(1, 3),
    batch=st.integers(1, 4),
    chunk=st.sampled_from([None, 1, 2]),
)
def test_stacked_updates_are_fedavg_of_every_client(seed, clients, steps, batch, chunk):
    model = build("cnn", SHAPE, 3, seed=seed).double()
    x, y = tensors(seed, clients, steps, batch)
    stacked = stacked_updates(model, x, y, lr=0.1, chunk=chunk)
    for client in range(clients):
        for name, tensor in fedavg(model, x[client], y[client], lr=0.1).tensors.items():
            torch.testing.assert_close(stacked[name][client], tensor, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "labels", "message"),
    [
        ((2, 1, 3), torch.zeros(2, 1, 4), "x"),
        ((0, 1, 3), torch.zeros(0, 1, 3), "empty"),
        ((1, 1, 3), torch.tensor([[[0, -100, 1]]]), "-100"),  # cross_entropy skips these
        ((1, 1, 3), torch.zeros(1, 1, 3), "batch norm"),
    ],
)
def test_stacked_updates_refuses_what_does_not_fit(shape, labels, message):
    with pytest.raises(ValueError, match=message):
        stacked_updates(build("resnet20", SHAPE, 3, seed=0), torch.rand(*shape, *SHAPE), labels.long(), 0.1)


def test_a_round_moves_the_model_by_the_mean_update():
    trained, reference = federation(), federation()
    index = reference.batches(reference.choose(3), steps=2, batch_size=4)
    updates = [fedavg(reference.model, trained.images.x[i], trained.images.y[i], lr=0.1).tensors for i in index]
    trained.round(3, steps=2, batch_size=4, lr=0.1)
    moved = dict(trained.model.named_parameters())
    for name, p in reference.model.named_parameters():
        expected = p - 0.1 * torch.stack([u[name] for u in updates]).mean(dim=0)
        torch.testing.assert_close(moved[name], expected, rtol=1e-4, atol=1e-6)
        assert not torch.equal(moved[name], p)


def test_a_defence_stands_between_the_clients_and_the_server():
    plain, noisy = federation(), federation()
    plain.round(2, 1, 4, 0.1)
    noisy.round(2, 1, 4, 0.1, defence=PureNoise(0.5, seed=0))
    undefended, defended = (torch.nn.utils.parameters_to_vector(f.model.parameters()) for f in (plain, noisy))
    # Mean of two clients' noise of sigma 0.5, times the learning rate: 0.1 * 0.5 / sqrt(2) = 0.0354.
    assert (undefended - defended).std().item() == pytest.approx(0.0354, rel=0.05)


def test_users_hold_their_composition_and_batches_are_epochs_of_it():
    clients_data = federation()
    assert clients_data.users.shape == (5, 12)
    for user in clients_data.users:
        assert clients_data.images.y[user].bincount(minlength=3).max() >= 6  # unbalanced: half of one class
    clients = torch.tensor([3, 1])
    index = clients_data.batches(clients, steps=5, batch_size=4)  # 20 samples: one epoch of 12 and 8 of the next
    assert index.shape == (2, 5, 4)
    for client, drawn in zip(clients, index.flatten(1), strict=True):
        assert sorted(drawn[:12].tolist()) == sorted(clients_data.users[client].tolist())
        # Of the second epoch's 8 samples each is the client's own, and none is taken twice.
        assert len(drawn[12:].unique()) == 8
        assert set(drawn[12:].tolist()) <= set(clients_data.users[client].tolist())


def test_batch_norm_is_set_to_its_mean_over_the_pieces():
    images, norm = torch.rand(150, 3, 4, 4, generator=torch.Generator().manual_seed(0)), nn.BatchNorm2d(3)
    model = nn.Sequential(norm)
    model(images + 7)  # forgotten
    for _ in range(2):
        assert set_norms(model, images) is model
        pieces = [piece.transpose(0, 1).flatten(1) for piece in images.split(100)]
        torch.testing.assert_close(norm.running_mean, torch.stack([p.mean(1) for p in pieces]).mean(0))
        torch.testing.assert_close(norm.running_var, torch.stack([p.var(1) for p in pieces]).mean(0))
        assert not norm.training
    assert not set_norms(nn.Sequential(nn.Dropout()), images).training
