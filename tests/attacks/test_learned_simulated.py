"""Simulated clients of the learned attacker are real ones: gradients, local steps, defences, priors and copies."""

import pytest
import torch
from learned_clients import CLASSES, MODEL, B, pool
from torch import nn

from fedleak.attacks.labels import learned
from fedleak.attacks.labels.confidence import mean_by_class
from fedleak.attacks.labels.learned.reader import Reader
from fedleak.attacks.labels.learned.simulated import (
    SHIFT_FACTOR,
    LocalSteps,
    draw_labels,
    error_factor,
    shifted_copies,
)
from fedleak.attacks.labels.learned.table import is_faithful, make_table
from fedleak.data import Images
from fedleak.federated import Update, fedavg, fedsgd
from fedleak.federated.defences import PureNoise, protect, protections
from fedleak.metrics import counts


@pytest.mark.parametrize("bias", [True, False])
def test_simulated_gradients_are_those_that_a_client_sends(bias):
    aux = pool()
    reader = Reader(MODEL, aux, bias)
    index = torch.randint(len(aux), (5, B), generator=torch.Generator().manual_seed(1))
    simulated = reader.make_pool(MODEL, aux).observe(index)
    for k, batch in enumerate(index):
        real = reader.read(fedsgd(MODEL, aux.x[batch], aux.y[batch]), MODEL)
        torch.testing.assert_close(simulated.linear_features[k], real.linear_features[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(simulated.projections[k], real.projections[0], atol=1e-5, rtol=1e-5)


class TiedText(nn.Module):
    """A classifier of words whose embedding, maybe with a padding word, shares the last layer's weight."""

    def __init__(self, padding):
        super().__init__()
        self.embed, self.body = nn.Embedding(CLASSES, 8, padding_idx=padding), nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, CLASSES)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.body(self.embed(x))[0][:, -1] + self.embed(x[:, :1]).mean(1))


@pytest.fixture(params=[(None, 5), (1, 1)], ids=["no padding", "one word"])
def tied(request):
    """A tied classifier of words, and texts of every class, longer than there are words or not."""
    torch.manual_seed(3)
    padding, length = request.param
    x, y = torch.randint(CLASSES, (60, length)), torch.arange(60) % CLASSES
    return TiedText(padding).eval(), Images(x, y, tuple("abc"), "words", "train", False, "made here", "none")


@pytest.mark.parametrize("defence", [None, lambda clients, seed: lambda update, who: update])
def test_simulated_gradients_have_what_a_tied_embedding_adds(tied, defence):
    model, texts = tied
    reader, index = Reader(model, texts), torch.arange(3 * B).view(3, B)
    simulated = reader.make_pool(model, texts, defence).observe(index)
    for k, batch in enumerate(index):
        update = fedsgd(model, texts.x[batch], texts.y[batch])
        real = reader.read(update, model)
        torch.testing.assert_close(simulated.linear_features[k], real.linear_features[0], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(simulated.projections[k], real.projections[0], atol=1e-5, rtol=1e-4)
        assert not reader.is_altered(update, model)
        noisy = protect(update, PureNoise(1e-3, 0))
        assert reader.is_altered(noisy, model)
        assert not Reader(model, texts, bias=False).is_altered(noisy, model)  # nothing to tell it by


def test_another_use_of_the_last_layers_weight_is_told(tied):
    model, texts = tied
    assert learned.train(model, texts, B, iterations=1).is_faithful
    other = TiedText(None).eval()
    other.body.register_forward_hook(lambda _, __, out: (out[0] * other.head.weight.sum(), out[1]))
    attacker = learned.train(other, texts, B, iterations=1)
    (reason,) = attacker.read(fedsgd(other, texts.x[:B], texts.y[:B]), other).violated_assumptions
    assert "something else in the model uses the weight" in reason


def test_no_other_use_is_suspected_where_dropout_makes_passes_differ():
    torch.manual_seed(0)
    layers = nn.Flatten(), nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, CLASSES)
    model, aux = nn.Sequential(*layers).train(), pool()
    table = make_table(model, aux, True)
    state = torch.get_rng_state()
    assert is_faithful(table, model, aux)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_head_without_a_bias_has_none_to_share():
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, CLASSES, bias=False))
    with pytest.raises(ValueError, match=r"no bias.*bias=False"):
        learned.train(model, pool(), B)
    assert learned.train(model, pool(), B, iterations=1, bias=False).batch_size == B


@pytest.mark.parametrize(
    ("bias", "name", "strength"), [(True, "sparsification", 0.6), (False, "clipping and noise", 1e-6)]
)
def test_simulated_gradients_go_through_the_clients_defence(bias, name, strength):
    aux = pool()

    def make_defence(clients, seed):
        return protections()[name].make(strength, MODEL, clients, seed)

    reader = Reader(MODEL, aux, bias)
    index = torch.randint(len(aux), (5, B), generator=torch.Generator().manual_seed(1))
    simulated, plain = (
        reader.make_pool(MODEL, aux, defence).observe(index, seed=1) for defence in (make_defence, None)
    )
    for k, batch in enumerate(index):
        update = protect(fedsgd(MODEL, aux.x[batch], aux.y[batch]), make_defence(1, 2))
        real = reader.read(update, MODEL)
        torch.testing.assert_close(simulated.linear_features[k], real.linear_features[0], atol=1e-4, rtol=1e-4)
        assert not torch.allclose(plain.linear_features[k], real.linear_features[0], atol=1e-2)


@pytest.mark.parametrize("bias", [True, False])
def test_simulated_local_steps_are_exact_for_a_bare_head(bias):
    model, aux, local = nn.Sequential(nn.Flatten(), nn.Linear(16, CLASSES)), pool(), LocalSteps(3, 0.5)
    reader = Reader(model, aux, bias)
    index = torch.randint(len(aux), (5, 3 * B), generator=torch.Generator().manual_seed(1))
    simulated, still = (
        reader.make_pool(model, aux, None, steps).observe(index) for steps in (local, LocalSteps(3, 1e-9))
    )
    for k, batch in enumerate(index.view(5, 3, B)):
        real = reader.read(fedavg(model, aux.x[batch], aux.y[batch], local.lr, "delta"), model)
        torch.testing.assert_close(simulated.linear_features[k], real.linear_features[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(simulated.projections[k], real.projections[0], atol=1e-4, rtol=1e-4)
        assert not torch.allclose(still.linear_features[k], real.linear_features[0], atol=1e-2)


def test_images_that_fit_better_have_their_own_logit_raised():
    aux, shift = pool(), 1.7
    plain = Reader(MODEL, aux).make_pool(MODEL, aux)
    reader = Reader(MODEL, aux, train_loss=0.3)
    better = reader.make_pool(MODEL, aux)
    index = torch.randint(len(aux), (5, B), generator=torch.Generator().manual_seed(1))
    weights = error_factor(better.label_probabilities[index], torch.tensor(shift))
    with torch.no_grad():
        logits = MODEL(aux.x)
    one_hot = nn.functional.one_hot(aux.y, CLASSES)
    raised = (logits + shift * one_hot).softmax(1) - one_hot
    expected = plain._replace(errors=raised).observe(index)
    torch.testing.assert_close(
        better.observe(index, 0, weights).linear_features, expected.linear_features, atol=1e-6, rtol=1e-5
    )
    torch.testing.assert_close(
        better.observe(index, 0, torch.ones(5, B)).projections, better.observe(index).projections
    )
    as_said = logits + reader.logit_shift * one_hot
    assert better.shift == SHIFT_FACTOR * reader.logit_shift > 0
    assert nn.functional.cross_entropy(as_said, aux.y).item() == pytest.approx(0.3, abs=1e-3)
    easy = Reader(MODEL, aux, train_loss=9.0)
    assert easy.logit_shift == easy.make_pool(MODEL, aux).shift == 0  # they fit better already
    means = mean_by_class(as_said.softmax(1) - one_hot, aux.y, CLASSES)
    torch.testing.assert_close(reader.mean_errors, means.double(), atol=1e-5, rtol=0)


def test_local_steps_are_read_by_who_simulated_them():
    clients, local = pool(seed=9), LocalSteps(3, 0.2)
    batches = clients.x[: 3 * B].unflatten(0, (3, B)), clients.y[: 3 * B].unflatten(0, (3, B))
    update = fedavg(MODEL, *batches, local.lr, "delta")
    attacker = learned.train(MODEL, pool(), B, iterations=1, local=local)
    assert torch.equal(learned.recover(update, MODEL, pool(), iterations=1), attacker.read(update, MODEL).counts)
    with pytest.raises(ValueError, match="trained for 3 local steps, the update is of 1"):
        attacker.read(Update(update.tensors, "delta", 3 * B, 1, 0.2), MODEL)


def test_images_are_moved_by_a_sixteenth_and_nothing_else_is():
    x = torch.zeros(2, 1, 16, 16)
    x[:, 0, 8, 8], x[:, 0, 15] = 1.0, 0.5
    images = Images(x, torch.tensor([0, 1]))
    moved = shifted_copies(images)
    assert moved.y.tolist() == [0, 1, 0, 1]
    assert [(image[0] == 1).nonzero()[0].tolist() for image in moved.x] == [[9, 8], [7, 8], [7, 8], [8, 9]]
    assert torch.equal(moved.x[1, 0, 14:], torch.full((2, 16), 0.5))  # the edge is repeated
    for still in (pool(), Images(torch.rand(4, 32), torch.arange(4))):
        assert shifted_copies(still) is None


def test_labels_are_drawn_from_all_kinds_of_batches():
    labels = draw_labels(4000, 30, 4, torch.Generator().manual_seed(0))
    drawn = counts(labels, 4)
    assert labels.shape == (4000, 30)
    torch.testing.assert_close(drawn.double().mean(0), torch.full((4,), 7.5).double(), atol=0.4, rtol=0)
    alone, even = (drawn == 30).any(1).double().mean(), (drawn.max(1).values < 14).double().mean()
    assert alone > 1 / 16
    assert even > 1 / 8
