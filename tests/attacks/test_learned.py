"""The learned attacker: closed forms, answers that are right, and intervals that hold."""

import copy
import dataclasses

import pytest
import torch
from learned_clients import CLASSES, MODEL, SHAPE, B, drawn, pool
from torch import nn

from fedleak.attacks.labels import learned, llg
from fedleak.attacks.labels.confidence import mean_by_class
from fedleak.attacks.labels.counts import solve
from fedleak.attacks.labels.inputs import bias_gradient, head_gradient
from fedleak.attacks.labels.learned.reader import Reader
from fedleak.attacks.labels.learned.simulated import (
    LocalSteps,
    Observation,
    draw_labels,
)
from fedleak.attacks.labels.whole_head import WeightedLeastSquares, compute_sample_gradients
from fedleak.attacks.registry import WITH_AUXILIARY, get
from fedleak.data import Images
from fedleak.federated import Softening, fedavg, fedsgd
from fedleak.federated.defences import PureNoise, protect, protections
from fedleak.metrics import instance_accuracy
from fedleak.models import build, head_pass


@pytest.fixture(scope="module")
def attacker():
    return learned.train(MODEL, pool(), B, iterations=30)


def test_neurons_dead_on_auxiliary_images_may_be_clients():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    model[1].weight.data[0], model[1].bias.data[0] = torch.eye(16)[15], -1.0  # active where the last pixel is above 1
    clients = pool(seed=9)
    clients.x[:, 0, 3, 3] = 2.0
    attacker = learned.train(model, pool(), B, iterations=40, batches=64)
    updates, truth = drawn(20, 0, clients=clients, model=model)
    recovered = torch.stack([attacker.read(update, model).counts for update in updates])
    assert instance_accuracy(recovered, truth).mean() > 0.8


def test_a_gradient_worked_out_by_hand():
    """Zero weights: p is (1/2, 1/2), so of images 0.1 and 0.3 of class 0 the first row is -(0.1 + 0.3) / 4."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2))
    nn.init.zeros_(model[1].weight)
    nn.init.zeros_(model[1].bias)
    x = torch.tensor([0.1, 0.3, 0.2, 0.4]).view(4, 1, 1, 1)
    aux = Images(x, torch.tensor([0, 0, 1, 1]), ("a", "b"), "hand", "train", False, "made here", "none")
    inputs = Reader(model, aux).make_pool(model, aux).observe(torch.tensor([[0, 1]]))
    first, bias = inputs.linear_features.view(2, -1)[:, :2].unbind(1)  # the rows' sums and the bias
    torch.testing.assert_close(first, torch.tensor([-0.1, 0.1]))
    torch.testing.assert_close(bias, torch.tensor([-0.5, 0.5]))


def test_rows_of_absent_classes_have_no_negative_entries():
    aux, index = pool(), torch.tensor([[0, 3, 6, 1], [0, 1, 2, 3]])  # of classes 0, 0, 0, 1 and of all three
    reader = Reader(MODEL, aux)
    inputs = reader.make_pool(MODEL, aux).observe(index)
    features = reader.compute_features(inputs)[..., -5:]
    below, least, _, largest, share = features.unbind(-1)
    assert torch.equal(share > 0, torch.tensor([[True, True, False], [True, True, True]]))
    assert below[0, 2] == least[0, 2] == 0 < largest[0, 2]
    for batch, values in zip(index, features, strict=True):
        row = head_gradient(fedsgd(MODEL, aux.x[batch], aux.y[batch]), MODEL)
        ends = [end.clamp(min=0) for end in (row.amin(1), row.amax(1))]
        what = [row.clamp(max=0).sum(1), row.amin(1).clamp(max=0), *ends, (row < 0).double().mean(1)]
        torch.testing.assert_close(values.double(), torch.stack(what, -1), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_its_closed_forms_are_those_of_the_attacks(bias):
    aux, (updates, _) = pool(), drawn(5, seed=8)
    reader = Reader(MODEL, aux, bias)
    of_class = [aux.class_order[40 * c : 40 * c + 40] for c in range(CLASSES)]
    probes = torch.stack([llg.class_gradients(fedsgd(MODEL, aux.x[i], aux.y[i]), MODEL) for i in of_class])
    impact, offset = llg.impact_and_offset(probes[None], B)
    parts = compute_sample_gradients([head_pass(MODEL, aux.x)], aux, torch.ones(1))
    parts = (parts if bias else parts[:, :, :-1]).flatten(1)
    equations = WeightedLeastSquares(parts, aux.y, CLASSES)
    for update in updates:
        estimates = reader.estimate_shares(reader.read(update, MODEL), B)[0].double()
        named = llg.extract(llg.class_gradients(update, MODEL), impact, offset, B, stop_at_samples=True)
        torch.testing.assert_close(estimates[-1], (named / named.sum()).double(), atol=1e-6, rtol=0)
        gradient = torch.cat([head_gradient(update, MODEL), bias_gradient(update, MODEL)[:, None]], 1)
        gradient = gradient[:, : parts.shape[1] // CLASSES].flatten()
        torch.testing.assert_close(estimates[0], equations.solve(gradient, B) / B, atol=0.03, rtol=0)
        if bias:
            p = mean_by_class(head_pass(MODEL, aux.x).probabilities.double(), aux.y, CLASSES)
            solved = solve((p.T - torch.eye(CLASSES)) / B, bias_gradient(update, MODEL), B) / B
            torch.testing.assert_close(estimates[1], solved, atol=1e-2, rtol=0)


@pytest.mark.parametrize("train_loss", [None, 0.3])
def test_once_trained_it_reads_with_all_images_and_all_equations(train_loss):
    aux = pool()
    some = aux.split_in_two(0, 0.8)[0]
    attacker = learned.train(MODEL, aux, B, iterations=1, train_loss=train_loss)
    before, reader = Reader(MODEL, some, train_loss=train_loss), Reader(MODEL, some, train_loss=train_loss)
    reader.reweight(MODEL, aux)
    for name in ("projected_means", "mean_errors", "equation_directions"):
        torch.testing.assert_close(getattr(attacker.reader, name), getattr(reader, name))
        assert not torch.equal(getattr(before, name), getattr(reader, name))
    # the same images again change nothing but the number of equations, and of three classes these are all there are
    same = Reader(MODEL, some, train_loss=train_loss)
    same.reweight(MODEL, some)
    torch.testing.assert_close(same.mean_errors, before.mean_errors)
    update = drawn(1, 5)[0][0]
    solved = [trained.solve_whole_head(trained.read(update, MODEL).projections.double()) for trained in (same, before)]
    torch.testing.assert_close(*solved, atol=1e-6, rtol=0)


def test_training_draws_from_the_prior_and_goes_through_the_defence():
    seen = []

    def prior(*given):
        seen.append("prior")
        return draw_labels(*given)

    def defence(clients, seed):
        seen.append("defence")
        return lambda update, who: update

    learned.train(MODEL, pool(), B, iterations=1, batches=4, prior=prior, defence=defence)
    assert seen.count("prior") > 1, "the first is a check"
    assert "defence" in seen


def test_it_beats_the_even_guess_and_its_intervals_hold(attacker):
    updates, truth = drawn(80, seed=2)
    results = [attacker.read(update, MODEL) for update in updates]
    iacc = instance_accuracy(torch.stack([result.counts for result in results]), truth).mean()
    even = instance_accuracy(torch.full_like(truth, B // CLASSES), truth).mean()
    together = Observation(*map(torch.cat, zip(*(attacker.reader.read(u, MODEL) for u in updates), strict=True)))
    assert torch.equal(attacker.counts(together), torch.stack([result.counts for result in results]))
    assert iacc > even + 0.2
    assert all(result.counts.sum() == B for result in results)
    low, high = torch.stack([result.low for result in results]), torch.stack([result.high for result in results])
    assert (low >= 0).all()
    assert (high <= B).all()
    assert ((low <= truth) & (truth <= high)).double().mean() > 0.8


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_cover_fresh_simulations_as_often_as_they_say(level):
    attacker = learned.train(MODEL, pool(), B, iterations=5, level=level)
    other = attacker.reader.make_pool(MODEL, pool(seed=5))
    inputs, truth = other.draw(2000, B, torch.Generator().manual_seed(7))
    bounds = attacker.intervals(inputs)
    assert (((bounds[0] <= truth) & (truth <= bounds[1])).double().mean() - level).abs() < 0.05


def test_the_same_seed_gives_the_same_attacker_and_another_another():
    (update,), _ = drawn(1, seed=3)
    read = lambda seed: learned.train(MODEL, pool(), B, iterations=1, batches=16, seed=seed).read(update, MODEL)
    first, same, other = (read(seed) for seed in (0, 0, 1))
    assert all(torch.equal(getattr(first, name), getattr(same, name)) for name in ("counts", "low", "high"))
    assert not torch.equal(first.high, other.high)


def test_prepared_it_trains_once_for_a_batch_size(monkeypatch):
    trained, train = [], learned.train
    monkeypatch.setattr(learned, "train", lambda *args, **more: trained.append(args[2]) or train(*args, **more))
    updates, _ = drawn(2, seed=4)
    (larger,), _ = drawn(1, seed=4, batch_size=9)
    attack = get("learned").prepare(MODEL, adversary=WITH_AUXILIARY, aux=pool(), iterations=2)
    assert trained == []
    for update in (*updates, larger, updates[0]):
        assert attack.recover(update).counts.sum() == update.samples
    assert trained == [B, 9]
    learned.recover(updates[0], MODEL, pool(), iterations=2)
    assert trained == [B, 9, B]


def test_training_that_would_take_too_long_is_not_begun():
    with pytest.raises(ValueError, match=r"0\.001 s"):
        learned.train(MODEL, pool(), B, iterations=200, seconds=0.001)
    few = learned.TIMED_ITERATIONS  # no more than it is foreseen by
    learned.train(MODEL, pool(), B, iterations=few, seconds=0.001)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_an_update_changed_on_its_way_is_told_apart(attacker, precision):
    model, clients = copy.deepcopy(MODEL).to(precision), pool(seed=9)
    x, y = clients.x[:B].to(precision), clients.y[:B]
    update, steps = fedsgd(model, x, y), (x.view(2, 3, *SHAPE), y.view(2, 3), 0.01)
    for plain in (update, fedsgd(model, x, y, Softening(smoothing=0.1)), fedavg(model, *steps, "delta")):
        assert not attacker.reader.is_altered(plain, model)
    noisy, sparse = (
        protect(update, protections()[k].make(s, model, 1, 0)) for k, s in (("noise", 1e-4), ("sparsification", 0.5))
    )
    rounded = update.replace({name: t.half().to(precision) for name, t in update.tensors.items()})
    clipped = update.replace({name: t / 7 for name, t in update.tensors.items()})
    assert [attacker.reader.is_altered(u, model) for u in (noisy, sparse, rounded)] == [True] * 3
    assert not attacker.reader.is_altered(clipped, model)
    assert attacker.read(clipped, model).violated_assumptions == ()
    (reason,) = attacker.read(noisy, model).violated_assumptions
    assert "do not sum to 0" in reason
    informed = learned.train(MODEL, pool(), B, iterations=1, defence=lambda clients, s: PureNoise(1e-4, s))
    assert informed.read(noisy, model).violated_assumptions == ()


def test_what_cannot_be_learned_is_refused(attacker):
    (update,), _ = drawn(1, seed=3)
    aux = pool()
    steps = fedavg(MODEL, aux.x[:6].view(2, 3, *SHAPE), aux.y[:6].view(2, 3), 0.1)
    rateless, larger = dataclasses.replace(steps, lr=None), dataclasses.replace(update, samples=7)
    lost = build("fcn3", SHAPE, CLASSES, seed=0)
    nn.init.constant_(next(lost.parameters()), float("nan"))
    local, outside = LocalSteps(2, 0.1), lambda batches, size, n, _: torch.full((batches, size), n)
    for word, call in (
        ("NaN", lambda: learned.train(lost, aux, B)),
        ("lr", lambda: learned.recover(rateless, MODEL, aux)),
        ("samples", lambda: learned.train(MODEL, aux, 10**6)),
        ("level", lambda: learned.train(MODEL, aux, B, level=1.0)),
        ("local step", lambda: learned.train(MODEL, aux, B, train_loss=1.0, local=local)),
        ("labels", lambda: learned.train(MODEL, aux, B, prior=outside)),
        ("6 samples", lambda: attacker.read(larger, MODEL)),
    ):
        with pytest.raises(ValueError, match=word):
            call()


@pytest.mark.parametrize("bias", [True, False])
def test_directions_of_few_samples_are_those_of_the_whole_covariance(bias, monkeypatch):
    """With fewer auxiliary images than entries an N x N matrix is inverted: the closed form stays what it was."""
    few, (updates, _) = pool(6), drawn(5, seed=8)
    reader = Reader(MODEL, few, bias)
    assert len(few) < CLASSES * reader.input_axes.shape[1]
    monkeypatch.setattr("fedleak.attacks.labels.learned.reader.has_few_samples", lambda residual: False)
    whole = Reader(MODEL, few, bias)
    for update in updates:
        solutions = [side.solve_whole_head(side.read(update, MODEL).projections.double()) for side in (reader, whole)]
        torch.testing.assert_close(*solutions, atol=1e-4, rtol=0)
