"""Products of a layer's gradient from its factors, beside autograd, and which layers compute them."""

import pytest
import torch
from torch import nn

from fedleak.attacks.images import dlg, factored, invg
from fedleak.attacks.images.factored import is_cheaper
from fedleak.attacks.images.objective import View
from fedleak.attacks.images.problem import Problem
from fedleak.federated import fedsgd

SHAPE, CLASSES = (16, 3, 5), 12


class Twice(nn.Module):
    """A model that uses one layer twice, and one weight in two layers."""

    def __init__(self):
        super().__init__()
        self.wide, self.again = nn.Conv2d(16, 48, 3, padding=1), nn.Conv2d(48, 48, 3, padding=1)
        self.shared, self.sharing = nn.Conv2d(48, 48, 1), nn.Conv2d(48, 48, 1)
        self.sharing.weight = self.shared.weight
        self.fc = nn.Linear(48, CLASSES)

    def forward(self, x):
        x = torch.tanh(self.wide(x))
        x = torch.tanh(self.again(torch.tanh(self.again(x))))
        return self.fc(torch.tanh(self.sharing(torch.tanh(self.shared(x)))).mean((2, 3)))


def wide(training=False):
    """Layers of each kind that can be factorised, and one with a stride, which cannot."""
    torch.manual_seed(0)
    convolutions = nn.Conv2d(16, 256, 3, padding=1), nn.BatchNorm2d(256), nn.Tanh(), nn.Conv2d(256, 256, 1), nn.Tanh()
    layers = *convolutions, nn.Conv2d(256, 32, 3, 2, 1), nn.Tanh(), nn.Flatten(), nn.Linear(192, 48), nn.Tanh()
    return nn.Sequential(*layers, nn.Linear(48, CLASSES)).train(training)


def problem(model, runs, batch, dtype=torch.float64, near=None):
    """InvG's objective, and a start at random or at this distance from the true images."""
    model = model.to(dtype)
    x = torch.rand(runs, batch, *SHAPE, generator=torch.Generator().manual_seed(0)).to(dtype)
    y = torch.arange(runs * batch).view(runs, batch) % CLASSES
    view = View([fedsgd(model, a, b) for a, b in zip(x, y, strict=True)], model, y)
    objective = Problem([view], invg.INVG, SHAPE)
    (start,) = objective.start(0)
    return objective, view, start if near is None else (x + near * start).detach().requires_grad_()


def by_autograd(view, x):
    """The cosine distance of every reconstruction and its gradient, from gradients that PyTorch computes."""
    values, slopes = [], []
    for n, images in enumerate(x.detach().unbind()):
        images.requires_grad_()
        loss = nn.functional.cross_entropy(view.model(images), view.labels[n])
        gradient = torch.autograd.grad(loss, list(view.model.parameters()), create_graph=True)
        target = [view.updates[n].gradient(name) for name, _ in view.model.named_parameters()]
        dot, *squares = (
            sum((p * q).sum() for p, q in zip(*pair, strict=True))
            for pair in ((gradient, target), (gradient, gradient), (target, target))
        )
        values.append(1 - dot / (squares[0] * squares[1]).sqrt())
        slopes.append(torch.autograd.grad(values[-1], images)[0])
    return torch.stack(values).detach(), torch.stack(slopes)


def evaluate(objective, start):
    value, (slope,) = objective.evaluate([start])
    return value, slope


@pytest.fixture(autouse=True)
def no_total_variation(monkeypatch):
    monkeypatch.setattr("fedleak.attacks.images.problem.total_variation_slope", torch.zeros_like)


@pytest.mark.parametrize(
    ("runs", "batch", "side_by_side", "training"),
    [(1, 1, False, True), (3, 1, True, False), (2, 2, False, False), (2, 2, True, True)],
)
def test_the_distance_and_its_gradient_are_those_of_autograd(runs, batch, side_by_side, training, monkeypatch):
    for module in ("convolution", "layers", "objective"):
        monkeypatch.setattr(f"fedleak.attacks.images.{module}.prefers_batched_kernels", lambda x: side_by_side)
    objective, view, start = problem(wide(training), runs, batch)
    assert {"0.weight", "3.weight"} <= view.factorised.keys()
    assert "5.weight" not in view.factorised  # its stride is 2
    for ours, expected in zip(evaluate(objective, start), by_autograd(view, start), strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("near", [None, 0.1, 0.001])
def test_single_precision_is_as_exact_as_autograd(near):
    objective, view, start = problem(wide(), 1, 1, torch.float32, near)
    plain = by_autograd(view, start)
    _, view_in_double, _ = problem(wide(), 1, 1)
    exact = by_autograd(view_in_double, start.double())
    for ours, single, double in zip(evaluate(objective, start), plain, exact, strict=True):
        scale = double.abs().max()
        assert (ours - double).abs().max() / scale <= 1e-4 + 10 * (single - double).abs().max() / scale


def test_one_reconstruction_of_several_uses_its_own_target():
    objective, _view, start = problem(wide(), 3, 1)
    value, (slope,) = objective.evaluate([start[1:2]], slice(1, 2))
    all_values, all_slopes = evaluate(objective, start)
    torch.testing.assert_close(value, all_values[1:2])
    torch.testing.assert_close(slope, all_slopes[1:2])


def test_a_weight_that_is_used_twice_keeps_its_gradient():
    objective, view, start = problem(Twice(), 1, 1)
    assert view.factorised.keys() == {"wide.weight", "fc.weight"}
    for ours, expected in zip(evaluate(objective, start), by_autograd(view, start), strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("kernel", [(1, 9), (9, 1), (3, 1)])
def test_other_windows_keep_their_gradients(kernel):
    """A window of nine weights in a row is not that of 3 x 3, although there are as many."""
    layers = nn.Conv2d(64, 256, kernel), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, CLASSES)
    shape, model = (64, 9, 9), nn.Sequential(*layers).double()
    assert is_cheaper(64, 256, 81, 9)
    x, y = torch.rand(1, 1, *shape, generator=torch.Generator().manual_seed(0)).double(), torch.zeros(1, 1).long()
    view = View([fedsgd(model, x[0], y[0])], model, y)
    objective = Problem([view], invg.INVG, shape)
    assert view.factorised.keys() == {"4.weight"}
    (start,) = objective.start(0)
    for ours, expected in zip(evaluate(objective, start), by_autograd(view, start), strict=True):
        torch.testing.assert_close(ours, expected)


def test_a_squared_difference_and_simulated_steps_keep_all_gradients():
    model, x, y = wide().double(), torch.rand(1, 1, *SHAPE).double(), torch.zeros(1, 1, dtype=torch.long)
    update = fedsgd(model, x[0], y[0])
    for descent, options in ((invg.INVG, {"simulate": True}), (dlg.DLG_ADAM, {})):
        view = View([update], model, y, **options)
        Problem([view], descent, SHAPE)
        assert not view.factorised


def test_sums_over_windows_are_products_of_windows():
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    windows, pixels = factored._windows(x, 9), factored._rows(x)
    gram = factored._sum_over_windows((pixels @ pixels.T)[None], x.shape, 9)
    torch.testing.assert_close(gram[0], windows @ windows.T)
    weights, grad = torch.randn(1, 6, 27, dtype=torch.float64), torch.randn(2, 6, 4, 5, dtype=torch.float64)
    on_inputs, outputs = factored._on_inputs(grad, x, weights, 9), windows @ weights[0].T
    torch.testing.assert_close((on_inputs * x).sum(), (factored._rows(grad) * outputs).sum())  # it is the transpose


@pytest.mark.parametrize(("positions", "cheaper"), [(64, True), (256, True), (1024, False)])
def test_gram_matrices_pay_for_few_positions(positions, cheaper):
    assert is_cheaper(256, 256, positions, 9) == cheaper
