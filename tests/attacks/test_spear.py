"""SPEAR: directions that can be seen by eye, complete batches, and the reasons why it refuses one."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import dense
from torch import nn

from fedleak.attacks.labels.exact import spear, splitting
from fedleak.federated import fedavg, fedsgd


def batch(samples, width, n_classes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, width, dtype=torch.float64, generator=generator)
    return x, torch.randint(n_classes, (samples,), generator=generator)


def test_by_hand_two_samples_of_a_layer_with_five_units():
    """(1, 2, 0, 0, 5) and (0, 0, 3, 1, 5) have two zeros each; any other mixture has one at most."""
    deltas = torch.tensor([[1.0, 2.0, 0.0, 0.0, 5.0], [0.0, 0.0, 3.0, 1.0, 5.0]], dtype=torch.float64)
    inputs = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    space = splitting.find_column_space(deltas.T @ inputs, 2, generator)
    found = splitting.draw_proposals(space, torch.arange(5.0).double(), 50, generator)
    vectors = splitting.choose_sparsest(found, space) @ space.basis.T
    cosines = nn.functional.normalize(vectors) @ nn.functional.normalize(deltas).T
    assert cosines.abs().amax(0) == pytest.approx([1.0, 1.0])


def test_zeros_lie_between_noise_and_size():
    vectors = torch.tensor([[1.0, 1e-5, 1e-3, 0.0]], dtype=torch.float64)
    assert splitting.is_zero(vectors, 1e-8).tolist() == [[False, True, False, True]]  # sqrt(1e-8 * 0.5) = 7e-5
    assert splitting.is_zero(vectors, 1e-6, 1 / 3).tolist() == [[False, True, True, True]]  # 6e-3


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_every_label_of_a_small_batch(seed, samples):
    model, (x, y) = dense(40, 60, 6, seed=seed), batch(samples, 40, 6, seed)
    assert spear.recover(fedsgd(model, x, y), model).tolist() == y.bincount(minlength=6).tolist()


def test_below_further_layers_and_from_a_clipped_update():
    """A common factor of all gradients, as clipping has one, changes no direction and no input."""
    model, (x, y) = dense(40, 60, 30, 6), batch(5, 40, 6)
    update = fedsgd(model, x, y)
    clipped = update.replace({name: 0.01 * tensor for name, tensor in update.tensors.items()})
    for one in (update, clipped):
        assert spear.recover(one, model).tolist() == y.bincount(minlength=6).tolist()


def test_a_wrong_splitting_does_not_agree():
    model, (x, y) = dense(40, 60, 6), batch(3, 40, 6)
    update = fedsgd(model, x, y)
    links = spear.chain(model).links
    before = (x @ links[0].matrix().T + links[0].layer.bias).detach().requires_grad_()
    loss = nn.functional.cross_entropy(model[2](before.relu()), y)
    (deltas,) = torch.autograd.grad(loss, before)
    seen = update.gradient("0.weight"), links, torch.arange(60), update.gradient("2.weight")
    agreement, labels = spear.check_split(deltas, *seen)
    assert agreement > 0.999
    assert labels.equal(y)
    deltas[0] += 0.3 * deltas[1]
    assert spear.check_split(deltas, *seen)[0] < spear.MIN_AGREEMENT


def test_refusals_name_their_reason():
    model, (x, y) = dense(40, 60, 6), batch(3, 40, 6)
    narrow = dense(40, 3, 6)
    for word, net, update in (
        ("17 samples", model, fedsgd(model, *batch(17, 40, 6))),
        ("3 steps", model, fedavg(model, x[:, None], y[:, None], 0.1)),
        ("2 samples", model, fedsgd(model, x[[0, 1, 1]], y[[0, 1, 1]])),
        ("3 outputs", narrow, fedsgd(narrow, x, y)),
    ):
        with pytest.raises(ValueError, match=word):
            spear.recover(update, net)


def test_what_no_splitting_fits_is_said(monkeypatch):
    monkeypatch.setattr(spear, "MAX_DRAWS", 100)
    model, (x, y) = dense(40, 60, 6), batch(3, 40, 6)
    update = fedsgd(model, x, y)
    noise = torch.randn(60, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mixed = torch.linalg.svd(noise).U[:, :3] @ noise[:3]  # three directions, none of them with a zero
    with pytest.raises(ValueError, match="3 samples"):
        spear.recover(update.replace({**update.tensors, "0.weight": mixed}), model)
