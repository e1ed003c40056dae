"""Secure aggregation against the plain sum; values by hand."""

from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedleak.federated import Update
from fedleak.federated.aggregation import FixedPoint, plain_sum, secure_sum

MODULUS = 2**64


def update(seed, samples=4, **changes):
    generator = torch.Generator().manual_seed(seed)
    tensors = {"w": torch.randn(3, 2, generator=generator), "b": torch.randn(3, generator=generator)}
    return Update(**{"tensors": tensors, "kind": "gradient", "samples": samples} | changes)


def test_the_encoding_by_hand():
    code = FixedPoint(bits=3, bound=3.0)  # integers -3 … 3
    assert code.step == 1.0
    assert code.encode(np.array([0.0, 1.4, -1.4, 3.0, -3.0])).tolist() == [0, 1, MODULUS - 1, 3, MODULUS - 3]
    assert code.decode(np.array([0, 2, MODULUS - 2], dtype=np.uint64)).tolist() == [0.0, 2.0, -2.0]


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 5), st.integers(0, 1000), st.sampled_from([12, 24, 32, 48]), st.data())
def test_secure_and_plain_sums_are_the_same_bits(clients, seed, bits, data):
    code = FixedPoint(bits, 8.0)
    updates = [update(seed + u) for u in range(clients)]
    threshold = max(2, -(-2 * clients // 3))
    dropped = data.draw(st.sets(st.integers(1, clients), max_size=clients - threshold))
    remaining = [u for i, u in enumerate(updates, 1) if i not in dropped]
    total, _ = secure_sum(updates, code, dropped=dropped)
    if len(remaining) < 2:
        return
    wanted, clear = plain_sum(remaining, code), plain_sum(remaining)
    for name, tensor in wanted.tensors.items():
        assert torch.equal(total.tensors[name], tensor)
        assert (tensor - clear.tensors[name].double()).abs().max() <= len(remaining) * code.step / 2 + 1e-5
    assert total.samples == 4 * len(remaining)


def test_secrets_change_the_messages_but_not_the_sum():
    updates = [update(u) for u in range(3)]
    (a, first), (b, second) = (secure_sum(updates, FixedPoint(), entropy=Random(s).randbytes) for s in (0, 1))
    assert all(torch.equal(a.tensors[k], b.tensors[k]) for k in a.tensors)
    assert (first.masked[1] != second.masked[1]).all()
    _, again = secure_sum(updates, FixedPoint(), entropy=Random(0).randbytes)
    assert (first.masked[1] == again.masked[1]).all()


def test_what_a_client_sends_says_nothing_about_its_update():
    flat = Update({"w": torch.linspace(-1, 1, 4000)}, "gradient", 1)
    _, protocol = secure_sum([flat, flat, flat], FixedPoint(32, 2.0), entropy=Random(0).randbytes)
    sent = protocol.masked[2].astype(float) / MODULUS
    assert abs(sent.mean() - 0.5) < 0.03
    assert abs(sent.std() - 12**-0.5) < 0.02
    assert abs(np.corrcoef(sent, np.linspace(-1, 1, 4000))[0, 1]) < 0.06
    assert (protocol.masked[1] + protocol.masked[2] != protocol.total).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedPoint(bits=1), "bits"),
        (lambda: FixedPoint(bound=1.0).encode(np.array([2.0])), "bound"),
        (lambda: plain_sum([update(0)] * (2**11 + 1), FixedPoint(53)), "64 bits"),
        (lambda: plain_sum([update(0), update(1, kind="delta", lr=0.1)]), "gradients"),
        (lambda: plain_sum([update(0), update(1).without("b")]), "parameters"),
        (lambda: secure_sum([update(0), update(1)], FixedPoint(), threshold=3), "threshold"),
        (lambda: secure_sum([update(0), update(1)], FixedPoint(), dropped=[1]), "1 of 2 clients"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
