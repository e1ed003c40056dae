"""The defences change an update as their papers say, remember what they must, and account for privacy correctly."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedleak import Update
from fedleak.federated.aggregation import plain_sum
from fedleak.federated.defences import (
    ClippedNoise,
    PureNoise,
    Sparsification,
    protect,
)

ONE = torch.tensor([0])


def stacked(seed=0, clients=1, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    sizes = {"a": (4, 3), "b": (7,), "c": (1,)}
    return {k: torch.randn(clients, *size, generator=generator, dtype=dtype) for k, size in sizes.items()}


def test_pure_noise_has_mean_zero_and_its_standard_deviation():
    # 200,000 draws: the sample's standard deviation is within 6 * sigma / sqrt(2 N) = 0.95 % of sigma, the mean
    # within 6 * sigma / sqrt(N) = 1.3 % of it.
    noise = PureNoise(0.3, seed=0)({"w": torch.ones(2, 100_000)}, torch.tensor([0, 1]))["w"] - 1
    assert noise.std().item() == pytest.approx(0.3, rel=0.0095)
    assert abs(noise.mean().item()) < 0.3 * 0.0134
    assert abs(torch.corrcoef(noise)[0, 1].item()) < 0.02  # clients do not share their noise


def test_noise_is_seeded_and_new_in_every_call():
    one, two, other = (PureNoise(1.0, seed=s) for s in (3, 3, 4))
    a, b, c, again = (noise(stacked(), ONE) for noise in (one, two, other, one))
    for name in a:
        assert torch.equal(a[name], b[name])
        assert not torch.equal(a[name], c[name])
        assert not torch.equal(a[name], again[name])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), bound=st.floats(0.01, 10.0), clients=st.integers(1, 3))
def test_clipping_bounds_every_tensor_and_keeps_directions_and_small_tensors(seed, bound, clients):
    updates, defence = stacked(seed, clients), ClippedNoise(bound, 0.1, seed=7)
    clipped = defence.clip(updates)
    for name, tensor in updates.items():
        for before, after in zip(tensor, clipped[name], strict=True):
            assert after.norm() <= bound * (1 + 1e-12)
            factor = min(1.0, bound / before.norm().item())
            torch.testing.assert_close(after, before * factor, rtol=1e-12, atol=1e-15)
    both, alone = defence(updates, ONE), PureNoise(0.1, seed=7)(clipped, ONE)
    assert all(torch.equal(both[name], alone[name]) for name in updates), "clipping, then noise"


def test_golden_clipping_of_the_whole_update():
    # The first client's (3, 0) and (0, 4) have together norm 5; the second's (0.3, 0) and (0, 0.4) have 0.5.
    updates = {"a": torch.tensor([[3.0, 0.0], [0.3, 0.0]]), "b": torch.tensor([[[0.0], [4.0]], [[0.0], [0.4]]])}
    defence = ClippedNoise(1.0, 1.0, seed=0, whole=True)
    clipped = defence.clip(updates)
    torch.testing.assert_close(clipped["a"], torch.tensor([[0.6, 0.0], [0.3, 0.0]]))
    torch.testing.assert_close(clipped["b"], torch.tensor([[[0.0], [0.8]], [[0.0], [0.4]]]))
    assert defence.largest_norm(4) == 1.0
    assert ClippedNoise(1.0, 1.0, seed=0).largest_norm(4) == 2.0, "each of four tensors has norm 1"


def test_sparsification_discards_the_first_of_equal_entries():
    sent = Sparsification(0.5)({"w": torch.tensor([[2.0, -2.0, 1.0, 2.0, 2.0, 3.0]])}, ONE)["w"]
    assert sent.tolist() == [[0.0, 0.0, 0.0, 2.0, 2.0, 3.0]]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), discard=st.floats(0, 0.99))
def test_what_is_sent_plus_the_residual_is_what_was_computed(seed, discard):
    users, rounds = 4, 6
    generator = torch.Generator().manual_seed(seed)
    defence = Sparsification(discard, clients=users)
    sent, computed = ({name: t * 0 for name, t in stacked(clients=users).items()} for _ in range(2))
    for number in range(rounds):
        clients = torch.randperm(users, generator=generator)[:2]
        updates = stacked(seed + number, clients=2)
        for name, shared in defence(updates, clients).items():
            sent[name][clients] += shared
            computed[name][clients] += updates[name]
    for name in sent:
        torch.testing.assert_close(sent[name] + defence.residual[name], computed[name], rtol=1e-12, atol=1e-12)


def test_protect_uses_the_memory_of_the_updates_client():
    update = Update({"w": torch.tensor([4.0, 1.0, -3.0, 2.0])}, "gradient", samples=20, steps=10, lr=0.1)
    defence = Sparsification(0.5, clients=3)
    safe = protect(update, defence, client=2)
    assert safe.tensors["w"].tolist() == [4.0, 0.0, -3.0, 0.0]
    assert (safe.kind, safe.samples, safe.steps, safe.lr) == ("gradient", 20, 10, 0.1)
    assert defence.residual["w"].tolist() == [[0.0] * 4, [0.0] * 4, [0.0, 1.0, 0.0, 2.0]]


BAD = [
    *((lambda bad=bad: PureNoise(bad, seed=0), "sigma") for bad in (0.0, -1.0, math.inf)),
    (lambda: ClippedNoise(math.nan, 1.0, seed=0), "bound"),
    (lambda: ClippedNoise(1.0, 0.0, seed=0), "sigma"),
    *((lambda bad=bad: Sparsification(bad), "discard") for bad in (-0.1, 1.0, math.nan)),
    (lambda: Sparsification(0.5, clients=0), "clients"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_what_is_out_of_range_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("whole", "dtype"), [(False, torch.float16), (True, torch.bfloat16)])
def test_norms_of_half_precision_do_not_overflow(whole, dtype):
    torch.manual_seed(0)
    updates = {"a": (300 * torch.randn(2, 200, 300)).to(dtype), "b": torch.ones(2, 3, dtype=dtype)}
    clipped = ClippedNoise(1.0, 1e-9, 0, whole=whole).clip(updates)
    assert {t.dtype for t in clipped.values()} == {dtype}
    torch.testing.assert_close(clipped["a"].float().flatten(1).norm(dim=1), torch.ones(2), rtol=0.01, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_half_precision_are_computed_in_single_precision(dtype):
    updates = [Update({"w": torch.full((2,), 1 / 3, dtype=dtype)}, "gradient", 1) for _ in range(300)]
    total = plain_sum(updates).tensors["w"]
    assert total.dtype == torch.float32
    torch.testing.assert_close(total, 300 * updates[0].tensors["w"].float(), rtol=1e-5, atol=0)
