"""EludingSA and MANDRAKE: images out of the sum."""

import pytest
import torch

from fedleak.attacks.images import eluding_sa, mandrake
from fedleak.federated import Update, fedsgd
from fedleak.federated.aggregation import plain_sum
from fedleak.models import build, head

SHAPE = (1, 8, 8)
BINS = torch.linspace(0.05, 0.95, 40)


def images(count, seed=0):
    """Images of well-separated brightness."""
    noise = torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed)) * 0.1
    return noise + torch.linspace(0.1, 0.8, count).view(-1, 1, 1, 1)


def test_the_sum_is_the_targets_update():
    model = build("cnn", (1, 28, 28), 10, seed=0)
    models = eluding_sa.clients_models(model, 1, 3, "4")
    x, y = torch.rand(3, 1, 28, 28), torch.tensor([3, 5, 7])
    updates = [fedsgd(m, x[u : u + 1], y[u : u + 1]) for u, m in enumerate(models)]
    update = eluding_sa.target_update(plain_sum(updates), model, 1)
    assert set(update.tensors) == set(updates[1].tensors) - {"7.bias"}
    assert all(torch.equal(t, updates[1].tensors[k]) for k, t in update.tensors.items())


def test_eluding_reconstructs_the_targets_image():
    """From some starts the matching gets stuck, so that a few are tried."""
    model = build("cnn", (1, 12, 12), 10, seed=0)
    blob = torch.zeros(2, 1, 12, 12)
    blob[:, :, 3:9, 4:8] = torch.tensor([1.0, 0.5]).view(2, 1, 1, 1)
    models = eluding_sa.clients_models(model, 0, 2, "4")
    total = plain_sum([fedsgd(m, blob[u : u + 1], torch.tensor([4])) for u, m in enumerate(models)])
    tries = (eluding_sa.reconstruct(total, model, iterations=40, seed=seed) for seed in (1, 2, 4, 5, 6))
    assert any(((found - blob[:1]) ** 2).mean() < 1e-3 for found in tries)
    assert head(model).layer.bias is not None  # the model was not touched
    early = eluding_sa.reconstruct(total, model, iterations=1)  # a step away from normal draws
    assert (early.min(), early.max()) == (0, 1)


def test_mandrake_reads_every_client_off_the_sum():
    model = build("fcn3", SHAPE, 4, seed=0)
    models = [mandrake.fronted_model(model, SHAPE, u, 3, BINS) for u in range(3)]
    batches = [images(4, u) for u in range(3)]
    updates = [fedsgd(m, x, torch.arange(4)) for m, x in zip(models, batches, strict=True)]
    for u in range(3):
        found = mandrake.reconstruct(plain_sum(updates), models[0], client=u)
        assert found.shape == (4, *SHAPE)
        assert ((found - batches[u]) ** 2).mean() < 2e-3


def test_the_front_has_the_papers_number_of_weights():
    front = mandrake.Front((3, 32, 32), 0, 10, torch.linspace(0, 1, 256))
    assert sum(p.numel() for n, p in front.named_parameters() if n != "bins.bias") == 8_651_562


def test_thresholds_are_quantiles():
    quantiles = mandrake.thresholds(torch.tensor([0.0, 1.0]), 3)
    spread = 0.5**0.5 * 0.67449
    torch.testing.assert_close(quantiles, torch.tensor([0.5 - spread, 0.5, 0.5 + spread]), atol=1e-4, rtol=0)


def test_bad_input():
    fronted = mandrake.fronted_model(build("fcn3", SHAPE, 4, seed=0), SHAPE, 0, 2, BINS)
    sent = lambda rows: Update({mandrake.FRONT[1]: torch.ones(rows, 128)}, "gradient", 2)
    for word, call in (
        ("increasing", lambda: mandrake.Front(SHAPE, 0, 2, torch.zeros(4))),
        ("got 2", lambda: mandrake.reconstruct(sent(40), fronted, client=2)),
        ("shape", lambda: mandrake.reconstruct(sent(4), fronted, client=0)),
    ):
        with pytest.raises(ValueError, match=word):
            call()
