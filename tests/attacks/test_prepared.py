"""Attacks that are prepared once for a model: every update is read as by a call of its own."""

import pytest
import torch

from fedleak.attacks.labels import gdbr, lia_sa, llg
from fedleak.data import Images
from fedleak.federated import fedavg, fedsgd
from fedleak.federated.aggregation import plain_sum
from fedleak.models import build

SHAPE, N, B = (1, 28, 28), 4, 3


@pytest.fixture(scope="module")
def model():
    return build("lenet", SHAPE, N, seed=1).eval()


@pytest.fixture(scope="module")
def aux():
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(40, *SHAPE, generator=generator)
    return Images(x, torch.arange(40) % N, tuple("abcd"), "random", "train", False, "made here", "none")


def batches(steps, count=3):
    generator = torch.Generator().manual_seed(3)
    for _ in range(count):
        yield torch.rand(steps, B, *SHAPE, generator=generator), torch.randint(N, (steps, B), generator=generator)


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("known", [None, "zeros", "random", "images"])
def test_llg(model, aux, known, steps):
    held = aux if known == "images" else known
    attack = llg.prepare(model, held, samples=steps * B, steps=steps, runs=2, seed=5)
    for x, y in batches(steps):
        update = fedavg(model, x, y, lr=0.1)
        assert attack.recover(update).equal(llg.recover(update, model, held, runs=2, seed=5))


def test_llg_refuses_an_update_of_another_size(model, aux):
    x, y = next(batches(1))
    with pytest.raises(ValueError, match="prepared for 6 samples in 2 steps, and the update is of 3 in 1"):
        llg.prepare(model, aux, samples=6, steps=2).recover(fedsgd(model, x[0], y[0]))


@pytest.mark.parametrize("projection", ["paper", "whitened"])
def test_gdbr(model, aux, projection):
    attack = gdbr.prepare(model, aux, projection=projection)
    for x, y in batches(1):
        update = fedsgd(model, x[0], y[0])
        assert attack.recover(update).equal(gdbr.recover(update, model, aux, projection=projection))


def test_lia_sa_reads_many_rounds_of_the_same_models(model):
    sent = [lia_sa.fishing_model(model, "vector", u, 3, 0) for u in range(3)]
    attack = lia_sa.prepare(sent, B, SHAPE)
    for _ in range(2):
        clients = list(batches(1))
        aggregate = plain_sum([fedsgd(m, x[0], y[0]) for m, (x, y) in zip(sent, clients, strict=True)])
        truth = torch.stack([y[0].bincount(minlength=N) for _, y in clients])
        assert attack.recover(aggregate).equal(truth)
        assert attack.recover(aggregate).equal(lia_sa.recover(aggregate, sent, B, SHAPE))


def test_lia_sa_says_before_any_round_that_its_models_cannot_be_told_apart(model):
    with pytest.raises(ValueError, match="singular"):
        lia_sa.prepare([lia_sa.fishing_model(model, "vector", 0, 2, 0)] * 2, B, SHAPE)
