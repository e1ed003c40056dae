"""The derivations by hand (part A of each assignment), each checked on numbers."""

import itertools
import math

import pytest
import torch
from torch import nn

from fedleak.attacks.labels import llg
from fedleak.coursework.given import small_network, small_parameters


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_llg_a3_the_papers_factor_is_off_by_one_over_n_squared():
    for n, batch in ((2, 4), (10, 32)):
        inputs = torch.ones(batch, 6) / 3
        layer = nn.Linear(6, n)
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)  # p = 1/n
        labels = torch.zeros(batch, dtype=torch.long)
        g = torch.autograd.grad(nn.functional.cross_entropy(layer(inputs), labels), layer.weight)[0].sum(1)
        impact = -2 / batch
        assert g[0] / batch * n / (n - 1) == pytest.approx(impact)
        assert g[0] / batch * (1 + 1 / n) == pytest.approx(impact * (1 - 1 / n**2))


def test_lia_sa_a1_clients_are_told_apart_if_embeddings_are_affinely_independent(generator):
    points = torch.rand(4, 3, generator=generator)
    assert torch.linalg.matrix_rank(torch.cat([torch.ones(4, 1), points], 1)) == 4  # m + 1
    points[3] = 0.2 * points[0] + 0.3 * points[1] + 0.5 * points[2]  # not linearly, but affinely dependent
    assert torch.linalg.matrix_rank(torch.cat([torch.ones(4, 1), points], 1)) == 3


def test_lia_sa_a2_constants_through_a_homogeneous_network_have_rank_two(generator):
    weight = torch.randn(30, 20, generator=generator)
    constants = torch.rand(7, 1, generator=generator) + 0.1
    embeddings = torch.relu(constants.expand(-1, 20) @ weight.T)
    assert torch.linalg.matrix_rank(torch.cat([torch.ones(7, 1), embeddings], 1)) == 2


def test_lia_sa_a3_errors_are_bounded_by_the_smallest_singular_value(generator):
    matrix = torch.cat([torch.ones(5, 1), torch.rand(5, 8, generator=generator)], 1).T
    exact = torch.randn(5, 3, generator=generator)
    error = torch.randn(9, 3, generator=generator)
    found = torch.linalg.lstsq(matrix, matrix @ exact + error).solution
    bound = torch.linalg.matrix_norm(error, 2) / torch.linalg.svdvals(matrix)[-1]
    assert (found - exact).abs().max() <= bound


def test_rlu_a1_the_null_vector_is_the_stationary_distribution(generator):
    p = torch.randn(5, 5, generator=generator).softmax(1)
    system = torch.eye(5) - p.T
    stationary = torch.linalg.matrix_power(p, 200)[0]
    assert (system @ stationary).abs().max() < 1e-12
    assert system.sum(0).abs().max() < 1e-12
    assert torch.linalg.matrix_rank(system) == 4


def test_rlu_a3_without_rho_counts_are_stretched_from_the_stationary_distribution(generator):
    rho = sum((1 - 0.9**k) / 0.1 for k in range(1, 11)) / 10
    assert rho == pytest.approx(4.14, abs=0.005)
    p = (0.3 * torch.randn(4, 4, generator=generator)).softmax(1)
    system, truth = torch.eye(4) - p.T, torch.tensor([90.0, 80.0, 75.0, 75.0])
    stationary = torch.linalg.matrix_power(p, 200)[0]
    constrained = torch.cat([system, torch.ones(1, 4)])
    found = torch.linalg.lstsq(constrained, torch.cat([rho * system @ truth, torch.tensor([320.0])])).solution
    assert (found - (320 * stationary + rho * (truth - 320 * stationary))).abs().max() < 1e-8


def test_gdbr_a2_the_error_of_a_batch_is_a_covariance(generator):
    weight = torch.rand(4, 6, generator=generator).requires_grad_()
    above = torch.randn(3, 4, generator=generator)
    x, labels = torch.rand(10, 6, generator=generator), torch.randint(3, (10,), generator=generator)
    a = torch.relu(x @ weight.T)
    loss = nn.functional.cross_entropy(a @ above.T, labels)
    gradient, slopes = torch.autograd.grad(loss, (weight, a))
    slopes, a = 10 * slopes, a.detach()  # of a sample's own loss
    estimate = (gradient * weight.detach()).sum(1) / a.mean(0)
    covariance = ((slopes - slopes.mean(0)) * (a - a.mean(0))).mean(0)
    assert (estimate - slopes.mean(0) - covariance / a.mean(0)).abs().max() < 1e-12


def test_gdbr_a3_the_pseudo_inverse_loses_the_kernel(generator):
    weight, slope = torch.randn(6, 4, generator=generator), torch.randn(6, generator=generator)  # N > M
    found = torch.linalg.pinv(weight.T) @ (weight.T @ slope)
    kernel = torch.eye(6) - weight @ torch.linalg.pinv(weight)
    assert (found - (slope - kernel @ slope)).abs().max() < 1e-10


def fedavg(start, batches, lr):
    weights = start
    for x, y in batches:
        weights = [w.detach().requires_grad_() for w in weights]
        slopes = torch.autograd.grad(nn.functional.cross_entropy(small_network(weights, x), y), weights)
        weights = [w - lr * s for w, s in zip(weights, slopes, strict=True)]
    return torch.cat([(w - s).detach().flatten() for w, s in zip(weights, start, strict=True)])


def curvature(start, first, second):
    """Return the Hessian of the first batch's loss times the gradient of the second's, all parameters in one vector."""

    def slope(batch):
        loss = nn.functional.cross_entropy(small_network(start, batch[0]), batch[1])
        return torch.autograd.grad(loss, start, create_graph=True)

    along = [g.detach() for g in slope(second)]
    inner = sum((g * v).sum() for g, v in zip(slope(first), along, strict=True))
    return torch.cat([t.flatten() for t in torch.autograd.grad(inner, start)])


def test_agic_a1_and_a2_the_first_order_error_and_the_order_of_the_batches(generator):
    start = [p.requires_grad_() for p in small_parameters(0)]
    batches = [
        (torch.rand(3, 1, 8, 8, generator=generator), torch.randint(10, (3,), generator=generator)) for _ in range(3)
    ]
    lr, steps = 1e-7, 3
    read = fedavg(start, batches, lr) / (-lr * steps)
    whole = fedavg(start, [tuple(torch.cat(parts) for parts in zip(*batches, strict=True))], 1.0) / -1.0
    pairs = itertools.combinations(batches, 2)  # (k, j) with k < j
    first_order = -lr / steps * sum(curvature(start, j, k) for k, j in pairs)
    assert (read - whole - first_order).norm() < 0.02 * first_order.norm()

    one, two = batches[:2]
    lr = 1e-5
    differ = fedavg(start, [one, two], lr) - fedavg(start, [two, one], lr)
    predicted = lr**2 * (curvature(start, two, one) - curvature(start, one, two))
    assert (differ - predicted).norm() < 0.05 * predicted.norm()


def test_agic_a3_the_first_layer_gives_the_image(generator):
    layer, image = nn.Linear(9, 5), torch.rand(2, 9, generator=generator)
    above = torch.randn(4, 5, generator=generator)

    def gradients(x, labels):
        loss = nn.functional.cross_entropy(torch.tanh(layer(x)) @ above.T, labels)
        return torch.autograd.grad(loss, (layer.weight, layer.bias))

    weight, bias = gradients(image[:1], torch.tensor([2]))
    assert (weight / bias[:, None] - image[0]).abs().max() < 1e-10
    parts = [gradients(image[i : i + 1], torch.tensor([i]))[1] for i in range(2)]
    weight, bias = gradients(image, torch.tensor([0, 1]))
    shares = parts[0] / (parts[0] + parts[1])
    mixture = shares[:, None] * image[0] + (1 - shares)[:, None] * image[1]
    assert (weight / bias[:, None] - mixture).abs().max() < 1e-10


def test_defences_a1_llg_does_not_see_the_scale(generator):
    for _ in range(20):
        g = torch.randn(10, generator=generator)
        counts = [llg.extract(c * g, llg.gradient_impact(c * g, 16), torch.zeros(10), 16) for c in (1.0, 0.01, 50.0)]
        assert counts[0].equal(counts[1])
        assert counts[0].equal(counts[2])


def test_defences_a2_and_c_numbers():
    assert math.erf(1 / (2 * math.sqrt(2) * 0.741)) == pytest.approx(0.5, abs=1e-3)
    assert pytest.approx(0.023, abs=5e-4) == 0.741 / 32
    assert 0.741 / 32 * math.sqrt(60_000) == pytest.approx(5.7, abs=0.05)


def test_defences_a3_clipping_by_tensor_leaves_a_norm_of_root_t(generator):
    tensors = [torch.randn(20, generator=generator) * 9 for _ in range(5)]
    clipped = torch.cat([t / max(1.0, t.norm() / 2.0) for t in tensors])
    assert clipped.norm() == pytest.approx(2.0 * math.sqrt(5))
    noise = torch.randn(25, 40_000, generator=generator).mean(0).std()
    assert noise == pytest.approx(1 / 5, rel=0.03)
