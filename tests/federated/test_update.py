"""What the server sees: `Update` reads the same gradient whatever was shared, and refuses what makes no sense."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedleak import Update, WithheldParameter
from fedleak.federated import fedavg


def update(**changes):
    fields = {"tensors": {"w": torch.tensor([6.0, -3.0]), "b": torch.ones(1)}, "kind": "gradient", "samples": 6}
    return Update(**{**fields, **changes})


def test_gradient_of_a_gradient_is_the_mean_over_the_steps():
    # Three steps, summed: 6 / 3 and -3 / 3.
    assert update(steps=3).gradient("w").tolist() == [2.0, -1.0]


def test_gradient_of_a_delta_has_the_sign_turned_and_the_learning_rate_taken_out():
    # delta = -lr * (sum over 3 steps), so the mean gradient is delta / (-0.5 * 3): 6 / -1.5 and -3 / -1.5.
    assert update(kind="delta", steps=3, lr=0.5).gradient("w").tolist() == [-4.0, 2.0]


def test_batch_size_is_per_step():
    assert update(samples=12, steps=3).batch_size == 4


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 4), batch=st.integers(1, 5), lr=st.floats(0.01, 1.0))
def test_delta_and_gradient_updates_give_the_same_gradient(seed, steps, batch, lr):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 3)).double()
    x, y = torch.rand(steps, batch, 3).double(), torch.randint(3, (steps, batch))
    shared, moved = (fedavg(model, x, y, lr, share=share) for share in ("gradient", "delta"))
    assert shared.samples == moved.samples == steps * batch
    for name in shared.tensors:
        torch.testing.assert_close(moved.gradient(name), shared.gradient(name), rtol=1e-9, atol=1e-12)


def test_withheld_parameter_is_named_with_what_is_shared():
    with pytest.raises(WithheldParameter, match=r"withholds 'fc\.weight'; it shares: b, w\. Use an attack") as caught:
        update().gradient("fc.weight")
    assert caught.value.name == "fc.weight"
    assert isinstance(caught.value, KeyError)


def test_an_update_that_shares_nothing_says_so():
    with pytest.raises(WithheldParameter, match="it shares: nothing"):
        update(tensors={}).gradient("w")


def test_without_takes_parameters_away_and_keeps_the_rest():
    less = update(samples=12, steps=3).without("b")
    assert set(less.tensors) == {"w"}
    assert (less.kind, less.samples, less.steps) == ("gradient", 12, 3)
    with pytest.raises(WithheldParameter, match="withholds 'b'"):
        less.gradient("b")
    with pytest.raises(WithheldParameter, match="withholds 'b'"):
        less.without("b")


def test_replace_and_to_keep_what_is_known_about_the_update():
    old = update(kind="delta", steps=2, lr=0.1)
    for new in (old.replace({"w": torch.zeros(2)}), old.to("cpu")):
        assert (new.kind, new.samples, new.steps, new.lr) == ("delta", 6, 2, 0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "weights"}, "kind is 'gradient' or 'delta', not 'weights'"),
        ({"samples": 0}, "at least 1, got 0 and 1"),
        ({"samples": -4}, "at least 1, got -4 and 1"),
        ({"steps": 0}, "at least 1, got 6 and 0"),
        ({"steps": -1}, "at least 1, got 6 and -1"),
        ({"steps": 4}, "6 samples do not divide into 4 equal local batches"),
        ({"lr": 0.0}, "learning rate is positive, got 0"),
        ({"lr": -0.1}, "learning rate is positive, got -0.1"),
        ({"lr": float("nan")}, "learning rate is positive, got nan"),
        ({"kind": "delta"}, "read with the client's learning rate: pass lr"),
    ],
)
def test_bad_updates(changes, message):
    with pytest.raises(ValueError, match=message):
        update(**changes)
