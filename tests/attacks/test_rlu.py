"""RLU, its extension and ZLG: exact where their assumptions hold, right on real updates, clear about bad input."""

import copy

import pytest
import torch
from torch import nn

from fedleak.attacks.labels import adapter, any_scale, confidence, decaf, learned, llg, rlu, whole_head, zlg
from fedleak.data import Images, compose, draw
from fedleak.federated import Scheme, Server, Softening, Update, fedavg, fedsgd
from fedleak.metrics import counts
from fedleak.models import build, head, head_pass

SHAPE, N = (1, 12, 12), 4


def pool(per_class=40, n=N, seed=0):
    """Noisy versions of a pattern a class."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(9))
    y = torch.arange(per_class * n) % n
    x = (0.7 * patterns[y] + 0.3 * torch.rand(per_class * n, *SHAPE, generator=generator)).clamp(0, 1)
    return Images(x, y, tuple("abcdefgh"[:n]), "made", "train", False, "made here", "none")


def situation(steps=1, batch=12, seed=0, **extra):
    model = build("lenet", SHAPE, N, seed=seed, **extra)
    images, generator = pool(seed=1), torch.Generator().manual_seed(seed)
    y = compose("unbalanced", batch, N, 1, generator, steps=steps)[0]
    x = images.x[draw(images, y, generator)]
    return model, x, y, counts(y.flatten(), N)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_system_is_exact_for_the_batch_itself(smoothing):
    model, x, y, truth = situation()
    present = truth > 0
    p = head_pass(model.double(), x[0].double()).probabilities
    A = confidence.coefficients(confidence.mean_by_class(p, y[0], N), smoothing)
    update = fedavg(model, x.double(), y, 0.3, share="delta", softening=Softening(smoothing))
    delta = update.tensors[head(model).bias]
    torch.testing.assert_close(12 / 0.3 * delta, A @ truth.double())
    assert A[:, present].sum(0).abs().max() < 1e-12


def test_confidence_of_normal_logits_is_equal_by_draws_and_averaging():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(4000) % 2
    z = torch.randn(4000, 2, generator=generator).double() + torch.tensor([[1.0, -1.0], [0.0, 0.5]]).double()[y]
    ways = [confidence.erroneous_confidence(z, y, method) for method in ("average", "gaussian")]
    torch.testing.assert_close(*ways, atol=0.05, rtol=0)
    assert torch.equal(confidence.erroneous_confidence(z, y), ways[0])
    torch.testing.assert_close(ways[1].sum(1), torch.ones(2).double())


def test_draws_have_the_moments_of_few_samples_too():
    z = torch.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0], [0.0, 0.0, 0.0]]).double().repeat(3, 1)
    y = torch.arange(3).repeat_interleave(3)
    draws, labels = confidence.draw_logits(z, y, "gaussian", samples=20000)
    torch.testing.assert_close(draws[labels == 1].mean(0), z[3:6].mean(0), atol=0.03, rtol=0)
    torch.testing.assert_close(draws[labels == 1].T.cov(), z[3:6].T.cov(), atol=0.05, rtol=0)


def test_eq_14_gives_the_embedding_of_a_rank_one_update():
    bias, embedding = torch.tensor([0.5, -0.2, 0.1]).double(), torch.tensor([1.0, 2.0]).double()
    for ratios in (True, False):
        average = rlu.average_embedding(bias[:, None] * embedding, bias, ratios)
        torch.testing.assert_close(average, embedding)


def test_simulated_rounds_are_exact_for_constant_head_inputs():
    """With one embedding for all images Eq. 13 is exact, so that the simulation is the client's training."""
    generator = torch.Generator().manual_seed(0)
    layer = nn.Linear(5, N).double()
    inputs = torch.rand(5, generator=generator).double()
    y = torch.tensor([0, 0, 0, 1, 1, 2, 0, 0]).repeat(6, 1)
    for scheme in (
        Scheme("fedavg", 0.5, 6),
        Scheme("sgdm", 0.5, 6, momentum=0.6),
        Scheme("nag", 0.5, 6, momentum=0.6),
        Scheme("fedprox", 0.5, 6, regularisation=0.4),
    ):
        update = Server(copy.deepcopy(layer), scheme, 1).round([inputs.expand(6, 8, 5)], [y])[0]
        observed = rlu.observe(update, layer, scheme, None)
        embedding = rlu.average_embedding(observed.weight, observed.bias)
        torch.testing.assert_close(embedding, inputs)
        logits = layer(inputs).detach().expand(N, N)
        truth = 6 * counts(y[0], N).double()
        system, shift = rlu.simulate_round(truth, logits, torch.arange(N), observed, embedding)
        torch.testing.assert_close(shift, update.tensors["bias"] * (1 + inputs @ inputs))
        torch.testing.assert_close(system @ truth, observed.target)


@pytest.mark.parametrize(
    ("steps", "activation", "share"), [(1, "relu", "delta"), (5, "tanh", "gradient"), (5, "relu", "delta")]
)
def test_the_counts_of_untrained_networks_are_found(steps, activation, share):
    model, x, y, truth = situation(steps, activation=activation)
    update = fedavg(model, x, y, 0.05, share=share)
    assert rlu.recover(update, model, pool(), trajectory="midpoint", confidence="average").equal(truth)
    for recovered in (rlu.recover(update, model, pool()), whole_head.recover(update, model, pool())):
        assert recovered.sum() == truth.sum()
        assert torch.minimum(recovered, truth).sum() / truth.sum() >= 0.95


def test_simulated_steps_are_those_of_a_client_whose_only_image_is_known():
    """The second step begins where the first ended, moved by half of what lies between both ends."""
    model, aux = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), Images(torch.rand(3, 1, 2, 2), torch.arange(3))
    x, y = aux.x[:1].expand(2, 5, -1, -1, -1), torch.zeros(2, 5, dtype=torch.long)
    updates = [fedavg(model, x[:steps], y[:steps], 0.5, "delta", softening=Softening(0.1)) for steps in (1, 2)]
    one, two = (update.model(model).state_dict() for update in updates)
    settings = torch.tensor([10.0, 0.0, 0.0]), Scheme("fedavg", 0.5, 2), 5
    start, second = (m.state_dict() for m in whole_head.simulate_models(model, model, aux, *settings, 0, smoothing=0.1))
    torch.testing.assert_close(start, model.state_dict())
    for name, tensor in second.items():
        torch.testing.assert_close(tensor, one[name] + (start[name] - two[name]) / 2)


@pytest.mark.parametrize("steps", [1, 5])
def test_a_server_informed_of_label_smoothing_recovers_the_labels(steps):
    model, x, y, truth = situation(steps)
    images, optimiser = pool(), torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images.x), images.y).backward()
        optimiser.step()
    assert head_pass(model, x[0]).probabilities.max(1).values.mean() > 0.99
    update = fedavg(model, x, y, 0.001, share="delta", softening=Softening(0.1))
    for attack in (rlu.recover, whole_head.recover):
        informed, uninformed = (
            torch.minimum(attack(update, model, pool(), **knows), truth).sum() / truth.sum()
            for knows in ({"smoothing": 0.1}, {})
        )
        assert informed >= 0.95
        assert uninformed < informed
        with pytest.raises(ValueError, match="smoothing"):
            attack(update, model, pool(), smoothing=1.1)


@pytest.mark.parametrize(
    "scheme",
    [
        Scheme("sgdm", 0.02, 5, momentum=0.9),
        Scheme("nag", 0.02, 5, momentum=0.9),
        Scheme("scaffold", 0.05, 5),
        Scheme("fedprox", 0.05, 5, regularisation=8.0),
        Scheme("feddyn", 0.05, 5, regularisation=4.0),
        Scheme("feddc", 0.05, 5, regularisation=4.0),
    ],
)
def test_the_counts_under_every_scheme_in_the_second_round(scheme):
    model, images, generator = build("lenet", SHAPE, N, seed=0), pool(seed=1), torch.Generator().manual_seed(0)
    server = Server(model, scheme, 2)
    for _ in range(2):
        sent = {k: v.clone() for k, v in model.state_dict().items()}
        y = compose("unbalanced", 12, N, 2, generator, steps=5)
        updates = server.round(list(images.x[draw(images, y, generator)]), list(y))
    model.load_state_dict(sent)
    for k, update in enumerate(updates):
        history = server.history(k, head(model).bias)
        recovered = rlu.recover(update, model, pool(), scheme=scheme, history=history, trajectory="midpoint")
        truth = counts(y[k].flatten(), N)
        assert torch.minimum(recovered, truth).sum() / truth.sum() >= 0.95


@pytest.mark.parametrize("factor", [0.05, 20.0])
def test_counts_are_read_at_any_scale(factor):
    model, x, y, truth = situation(batch=24)
    update = fedsgd(model, x[0], y[0])
    scaled = update.replace({name: factor * tensor for name, tensor in update.tensors.items()})
    recovered = any_scale.prepare(model, pool()).recover(scaled).counts
    assert torch.minimum(recovered, truth).sum() >= 22


def test_zlg_is_exact_where_its_means_are():
    model = nn.Sequential(nn.Flatten(), nn.Linear(20, 10), nn.ReLU(), nn.Linear(10, 5))
    x, y = torch.rand(1, 1, 4, 5), torch.tensor([1, 1, 4])
    update = fedsgd(model, x.expand(3, -1, -1, -1), y)  # one image under all labels: the means are exact
    assert zlg.recover(update, model, Images(x.expand(5, -1, -1, -1), torch.arange(5))).tolist() == [0, 2, 0, 0, 1]
    assert zlg.recover(update, model, shape=(1, 4, 5)).sum() == 3
    with pytest.raises(ValueError, match="sum to 0"):
        zlg.estimate(torch.zeros(3), torch.full((3,), 1 / 3), 0.0, 4)


def test_bad_input():
    model, x, y, _ = situation(5)
    update, aux = fedavg(model, x, y, 0.05, share="delta"), pool()
    for attack in (rlu, whole_head, zlg, llg, decaf, learned, adapter):
        with pytest.raises(ValueError, match="'d'"):
            attack.prepare(model, aux.take((aux.y < 3).nonzero().flatten()))
        with pytest.raises(ValueError, match="3 classes"):
            attack.prepare(model, pool(n=3))
    without_bias = nn.Sequential(nn.Flatten(), nn.Linear(144, N, bias=False))
    without_lr = Update(fedavg(model, x, y, 0.05).tensors, "gradient", y.numel(), 5)
    for word, call in (
        ("bias", lambda: rlu.recover(update, without_bias, aux)),
        ("learning rate", lambda: rlu.recover(without_lr, model, aux)),
        ("scheme", lambda: rlu.recover(update, model, aux, scheme=Scheme("fedavg", 0.05, 4))),
    ):
        with pytest.raises(ValueError, match=word):
            call()


@pytest.mark.parametrize(
    ("samples", "entries", "n", "most"), [(30, 40, 3, 10), (12, 90, 5, 5000), (200, 210, 20, 5000), (60, 1200, 2, 10)]
)
def test_solving_by_samples_gives_the_counts_of_the_whitened_equations(monkeypatch, samples, entries, n, most):
    """With few samples an N x N matrix is inverted instead of the covariance: the counts must be the same."""
    monkeypatch.setattr(whole_head, "MAX_COVARIANCE_ROWS", most)
    generator = torch.Generator().manual_seed(samples)
    labels = torch.arange(samples) % n
    rows = torch.randn(n, entries, generator=generator)[labels] + torch.randn(samples, entries, generator=generator)
    rows = rows.double()
    system = whole_head.WeightedLeastSquares(rows, labels, n)
    assert system.uses_sample_span
    basis = torch.linalg.qr(rows.T).Q if entries > most else torch.eye(entries).double()  # large heads: in the span
    direct = whole_head.WeightedLeastSquares(rows @ basis, labels, n)
    direct.uses_sample_span = False
    gradient = rows[torch.randint(samples, (9,), generator=generator)].mean(0) + 0.01 * rows.std()
    for start in (torch.full((n,), 9 / n).double(), 9.0 * torch.eye(n).double()[0]):
        solved, expected = system.solve(gradient, 9, start, 1), direct.solve(gradient @ basis, 9, start, 1)
        torch.testing.assert_close(solved, expected, atol=1e-8, rtol=0)
        torch.testing.assert_close(solved.sum(), torch.tensor(9.0).double())


def test_images_and_heads_too_large_for_memory_are_refused(monkeypatch):
    model, x, y, _ = situation()
    for name, most in (("MAX_COVARIANCE_ROWS", 20), ("MAX_GRADIENT_ENTRIES", 1000)):
        with monkeypatch.context() as patch:
            patch.setattr(whole_head, name, most)
            allowed = min(most, whole_head.MAX_GRADIENT_ENTRIES // (head(model).layer.weight.numel() + N))
            with pytest.raises(ValueError, match=f"{allowed} images"):
                whole_head.recover(fedsgd(model, x[0], y[0]), model, pool())


def test_equations_of_too_many_classes_are_refused_beforehand(monkeypatch):
    monkeypatch.setattr(rlu, "MAX_BYTES", 8 * 6 * 9 - 1)
    aux = Images(torch.rand(3, 2), torch.arange(3))
    with pytest.raises(ValueError, match="3 classes"):
        rlu.prepare(torch.nn.Linear(2, 3), aux)
