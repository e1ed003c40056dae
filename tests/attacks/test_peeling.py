"""Peeling: inputs that can be read by eye, complete batches, and everything that leaves no proof."""

import pytest
import torch
from networks import dense
from torch import nn
from updates import changed, noisy

from fedleak import WithheldParameter
from fedleak.attacks import plausible
from fedleak.attacks.labels import whole_head
from fedleak.attacks.labels.exact import peeling, spear
from fedleak.data import Images
from fedleak.federated import Softening, Update, fedavg, fedsgd

N, WIDTH, SHAPE = 6, 40, (1, 5, 8)


def network(*widths, precision=torch.float64, seed=0):
    model = nn.Sequential(nn.Flatten(), *dense(WIDTH, *widths, N, seed=seed).float())
    nn.init.normal_(model[1].weight, std=0.5)
    model.input_shape = SHAPE
    return model.to(precision)


def batch(samples, precision=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, *SHAPE, dtype=torch.float64, generator=generator)
    return x.to(precision), torch.randint(N, (samples,), generator=generator)


def quantised(bits):
    return lambda t: (t / (step := t.abs().max() / 2 ** (bits - 1))).round() * step


@pytest.mark.parametrize("widths", [(120,), (120, 20)])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_small_batches_are_proven_whole(widths, precision):
    model = network(*widths, precision=precision)
    for seed in range(3):
        x, y = batch(5, precision, seed)
        peeled, why = peeling.peel(fedsgd(model, x, y), model, seed)
        assert (peeled.labels.bincount(minlength=N).tolist(), why) == (y.bincount(minlength=N).tolist(), "")
        near = torch.cdist(peeled.inputs, x.flatten(1).double())
        assert near.argmin(1).sort().values.tolist() == list(range(5)), "each sample once"
        assert y[near.argmin(1)].equal(peeled.labels)
        assert near.amin(1).max() < 1e-3
        assert peeled.head_gradient.abs().max() < 1e-5, "nothing is left"


def test_taking_a_sample_off_makes_other_neurons_exclusive(monkeypatch):
    """Without splitting, more labels are proven than in the first round: over twelve batches, as luck decides each."""
    monkeypatch.setattr(spear, "MAX_SAMPLES", 0)
    every_round = peeling.Peeled.peel_round

    def count_proven(peel_round):
        monkeypatch.setattr(peeling.Peeled, "peel_round", peel_round)
        models, batches = [network(150, seed=s) for s in range(12)], [batch(9, seed=s) for s in range(12)]
        return sum(len(peeling.peel(fedsgd(m, *b), m, 0)[0].labels) for m, b in zip(models, batches, strict=True))

    once = count_proven(lambda self: every_round(self) and False)
    assert 0 < once < 0.75 * count_proven(every_round)


def test_what_cannot_be_peeled_is_split(monkeypatch):
    monkeypatch.setattr(peeling.Peeled, "peel_round", lambda self: False)
    model, (x, y) = network(60), batch(4)
    peeled, _ = peeling.peel(fedsgd(model, x, y), model, 0)
    assert peeled.labels.bincount(minlength=N).tolist() == y.bincount(minlength=N).tolist()


def test_of_other_labels_than_the_gradients_nothing_is_taken():
    """A true input with a coefficient that no label explains, one that is taken already, and a mixture."""
    model, (x, y) = network(120), batch(5)
    update = fedsgd(model, x, y)
    layer = spear.find_widest_layer(update, model)
    peeled = peeling.Peeled(layer, torch.zeros(N, 121).double(), 5, 1e-9, 0)
    x = x.flatten(1)
    deltas = peeling.trace(x, layer.links).deltas[range(5), y] / 5
    neurons = deltas.abs().argmax(1, keepdim=True)
    target = deltas.gather(1, neurons)
    labels, missed = peeled.test_proposals(x, target, neurons)
    assert labels.equal(y)
    assert missed.isfinite().all()
    assert peeled.test_proposals(x, 1.001 * target, neurons)[1].isinf().all()
    mixed = (x + x.roll(1, 0)) / 2
    own = peeling.trace(mixed, layer.links).deltas[range(5), y].gather(1, neurons) / 5
    assert peeled.test_proposals(mixed, own, neurons)[1].isinf().all(), "its coefficient fits, other neurons' do not"
    assert peeling.is_distinct(x, x[:0])
    assert not peeling.is_distinct(x[:1] * 1.001, x)


def broken(model, x, y):
    """Updates of clients that break a condition, by what they do."""
    update, weights = fedsgd(model, x, y), dict(model.named_parameters())
    return {
        "noise": changed(update, noisy(0.01)),
        "8 bits": changed(update, quantised(8)),
        "half precision": changed(update, lambda t: t.half().to(t)),
        "clipped": changed(update, lambda t: 0.5 * t),
        "one sample more": Update(update.tensors, "gradient", len(y) + 1),
        "half of the samples": Update(update.tensors, "gradient", len(y) // 2),
        "smoothed": fedsgd(model, x, y, Softening(smoothing=0.1)),
        "weight decay": update.replace({n: t + 1e-3 * weights[n].detach() for n, t in update.tensors.items()}),
        "leaky": fedsgd(nn.Sequential(*model[:2], nn.LeakyReLU(0.05), model[3]), x, y),
        "another model": fedsgd(network(120, seed=1, precision=x.dtype), x, y),
        "neurons in another order": changed(update, lambda t: t.roll(1, 0)),
    }


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_where_a_condition_does_not_hold_nothing_is_proven(precision):
    model, (x, y) = network(120, precision=precision), batch(6, precision)
    assert len(peeling.peel(fedsgd(model, x, y), model, 0)[0].labels) == 6
    for name, update in broken(model, x, y).items():
        peeled, why = peeling.peel(update, model, 0)
        assert peeled is None or not len(peeled.labels), name
        assert why, name


def test_a_narrow_layer_and_a_withheld_bias_are_named():
    model, (x, y) = network(120), batch(6)
    narrow = network(20)
    assert "30 inputs" in peeling.peel(fedsgd(narrow, x, y), narrow, 0)[1]
    with pytest.raises(WithheldParameter, match=r"1\.bias"):
        peeling.peel(fedsgd(model, x, y).without("0.bias"), model, 0)


def test_the_result_tells_proven_labels_from_estimates():
    """A sample that is there twice is not proven: its coefficient is another."""
    model = network(120, precision=torch.float32)
    nn.init.constant_(model[1].bias, -2.0)  # neurons that few samples pass
    x, y = batch(16, torch.float32, 1)
    x[1], y[1] = x[0], y[0]
    rest = y[2:].bincount(minlength=N)
    images = Images(x.sigmoid(), torch.arange(16) % N, tuple("abcdef"), "made", "test", True, "drawn", "none")
    attack = peeling.prepare(model, images)
    found = attack.recover(update := fedsgd(model, x, y))
    assert found.proven.tolist() == rest.tolist()
    assert (found.proven <= found.counts).all()
    assert int(found.counts.sum()) == 16
    assert str(found).endswith("14 of 16 labels are proven")
    refused = attack.recover(changed(update, noisy(0.1)))
    assert refused.proven.tolist() == [0] * N
    assert refused.violated_assumptions == ("no sample's gradient passes the tests of a proof", plausible.SUM)
    half = changed(update, lambda t: t.half())
    assert attack.recover(half).counts.equal(whole_head.prepare(model, images).recover(half).counts)
    steps = x.unflatten(0, (2, -1)), y.unflatten(0, (2, -1))
    with pytest.raises(ValueError, match="of 2"):
        attack.recover(fedavg(model, *steps, 0.1))
