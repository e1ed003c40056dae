"""The inversion engine: exact gradients for many reconstructions, seeds, NaN; InvG on it."""

import dataclasses

import pytest
import torch
from torch import nn

from fedleak.attacks.images import agic, dlg, engine, invg
from fedleak.attacks.images.layers import is_stackable
from fedleak.attacks.images.objective import View, distance
from fedleak.federated import fedavg, fedsgd
from fedleak.models import build

SHAPE, CLASSES = (3, 8, 8), 4


def tiny(seed=0):
    """Every layer that has a stacked form: convolutions with stride and bias, batch norm, a head."""
    torch.manual_seed(seed)
    layers = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 3, 2, 1, bias=False)
    end = nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, CLASSES)
    model = nn.Sequential(*layers, *end).double().eval()
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("mean"):
                buffer.uniform_(-0.3, 0.3)
            elif name.endswith("var"):
                buffer.uniform_(0.05, 0.3)
    model.input_shape = SHAPE
    return model


def batch(n, size, seed=0):
    x = torch.rand(n, size, *SHAPE, generator=torch.Generator().manual_seed(seed)).double()
    return x, torch.arange(n * size).view(n, size) % CLASSES


def plain(model, x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    return torch.autograd.grad(loss, list(model.parameters()), create_graph=True)


class Patchwise(nn.Module):
    """A linear layer on each row of an image, and a batch norm without parameters."""

    def __init__(self):
        super().__init__()
        self.row, self.norm = nn.Linear(8, 5), nn.BatchNorm2d(3, affine=False)
        self.head = nn.Linear(3 * 8 * 5, CLASSES)

    def forward(self, x):
        return self.head(self.norm(torch.sigmoid(self.row(x))).flatten(1))


def test_constants_in_place_of_parameters_are_those_of_every_reconstruction():
    model = tiny()
    bias = model[-1].bias.detach().clone()
    del model[-1].bias
    model[-1].register_buffer("bias", bias)
    assert not is_stackable(model)
    x, y = batch(1, 2)
    view = View([fedsgd(model, x[0], y[0])], model, y)
    gradients = view.gradients(x, nn.functional.one_hot(y, CLASSES).double(), slice(None))
    for got, expected in zip(gradients, plain(model, x[0], y[0]), strict=True):
        assert torch.allclose(got[0] if got.shape != expected.shape else got, expected)


@pytest.mark.parametrize("has_norm", [True, False])
def test_layers_on_rows_have_their_own_gradients(has_norm):
    torch.manual_seed(0)
    model = Patchwise().double().eval()
    if not has_norm:
        model.norm = nn.Identity()
    assert is_stackable(model) == (not has_norm)
    x, y = batch(1 if has_norm else 2, 3)
    view = View([fedsgd(model, a, b) for a, b in zip(x, y, strict=True)], model, y)
    gradients = view.gradients(x, nn.functional.one_hot(y, CLASSES).double(), slice(None))
    for place, (a, b) in enumerate(zip(x, y, strict=True)):
        for got, expected in zip(gradients, plain(model, a, b), strict=True):
            assert torch.allclose(got[place], expected)


@pytest.mark.parametrize(("training", "side_by_side"), [(False, False), (True, True)])
def test_stacked_gradients_and_their_derivative_are_those_of_each_alone(training, side_by_side, monkeypatch):
    for module in ("convolution", "layers"):
        monkeypatch.setattr(f"fedleak.attacks.images.{module}.prefers_batched_kernels", lambda x: side_by_side)
    model = tiny().train(training)
    x, y = batch(3, 2)
    x.requires_grad_()
    view = View([fedsgd(model, a.detach(), b) for a, b in zip(x, y, strict=True)], model, y)
    stacked = view.gradients(x, nn.functional.one_hot(y, CLASSES).double(), slice(None))
    separate = [plain(model, a, b) for a, b in zip(x, y, strict=True)]
    for k, stack in enumerate(stacked):
        torch.testing.assert_close(stack, torch.stack([e[k] for e in separate]))
        assert stack.dim() == 2 or stack.abs().max() > 1e-3  # nothing is dead in this model
        torch.testing.assert_close(stack.detach(), view.targets[k])  # at the true images: the update itself
    directions = [torch.randn_like(f) for f in stacked]
    (ours,) = torch.autograd.grad(stacked, x, directions)
    (theirs,) = torch.autograd.grad([g for e in separate for g in e], x, [d[n] for n in range(3) for d in directions])
    torch.testing.assert_close(ours, theirs)


def test_a_simulation_follows_the_steps_and_differentiates_through_them():
    model, (x, y) = tiny(), batch(1, 6)
    update = fedavg(model, x.view(3, 2, *SHAPE), y.view(3, 2), 0.1, "delta")
    view = View([update], model, y, simulate=True)
    x.requires_grad_()
    simulated = view.gradients(x, nn.functional.one_hot(y, CLASSES).double(), slice(None))
    for f, t in zip(simulated, view.targets, strict=True):
        torch.testing.assert_close(f, t)
    names, weights = zip(*model.named_parameters(), strict=True)
    current, total = list(weights), [torch.zeros_like(w) for w in weights]
    for images, labels in zip(x[0].split(2), y[0].split(2), strict=True):
        logits = torch.func.functional_call(model, dict(zip(names, current, strict=True)), (images,))
        g = torch.autograd.grad(nn.functional.cross_entropy(logits, labels), current, create_graph=True)
        total = [t + h / 3 for t, h in zip(total, g, strict=True)]
        current = [w - 0.1 * h for w, h in zip(current, g, strict=True)]
    directions = [torch.randn_like(f) for f in simulated]
    (ours,) = torch.autograd.grad(simulated, x, directions)
    (theirs,) = torch.autograd.grad(total, x, [d[0] for d in directions])
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("kind", ["l2", "cosine"])
def test_the_closed_form_of_a_distance_is_its_derivative(kind):
    g = [
        torch.randn(2, 3, 2, 2, 2, dtype=torch.float64, requires_grad=True),
        torch.randn(2, 5).double().requires_grad_(),
    ]
    t, a = [torch.randn_like(x) for x in g], torch.rand(2, 2, dtype=torch.float64)
    value, slopes = distance(kind, [x.detach() for x in g], t, a)

    def inner(p, q):
        return sum(a[:, k] * (u * v).flatten(1).sum(1) for k, (u, v) in enumerate(zip(p, q, strict=True)))

    gap = [x - y for x, y in zip(g, t, strict=True)]
    expected = inner(gap, gap) if kind == "l2" else 1 - inner(g, t) / (inner(g, g) * inner(t, t)).sqrt()
    torch.testing.assert_close(value, expected)
    for ours, theirs in zip(slopes, torch.autograd.grad(expected.sum(), g), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert distance("cosine", [torch.zeros_like(x) for x in t], t, a)[0].tolist() == [1, 1]


def situation(n=2, size=1):
    model, (x, y) = tiny(), batch(n, size)
    return model, x, y, [fedsgd(model, a, b) for a, b in zip(x, y, strict=True)]


def test_reconstructions_together_are_those_alone_and_come_near_the_images():
    model, _x, y, updates = situation()
    early, together = (invg.invert_many(updates, model, y, iterations=n) for n in (10, 150))
    alone = invg.invert_many(updates[:1], model, y[:1], iterations=10)
    torch.testing.assert_close(early.images[:1], alone.images, atol=1e-6, rtol=0)
    assert (together.values < 0.4 * early.values).all()
    assert 0 <= together.images.min() <= together.images.max() <= 1
    assert torch.equal(early.images, invg.reconstruct(updates, model, labels=y, iterations=10))


def test_a_start_depends_on_its_seed_and_not_its_position():
    model, _, y, updates = situation(3)
    seeds = [7, 4, 2**63 - 1]  # as large as those of a sweep
    stack = invg.invert_many(updates, model, y, iterations=10, seed=seeds).images
    moved = invg.invert_many(updates[::-1], model, y.flip(0), iterations=10, seed=seeds[::-1]).images
    torch.testing.assert_close(moved.flip(0), stack, atol=1e-6, rtol=0)
    assert not torch.allclose(stack, invg.invert_many(updates, model, y, iterations=10, seed=7).images, atol=1e-2)


def test_a_normalising_models_box_is_that_of_its_pixels():
    model, (x, y) = build("resnet20-1", SHAPE, CLASSES, seed=0).eval(), batch(1, 2)
    problem = engine.Problem([View([fedsgd(model, x[0].float(), y[0])], model, y)], invg.INVG, SHAPE)
    for bound, pixel in ((problem.low, 0.0), (problem.high, 1.0)):
        torch.testing.assert_close(problem.pixels(bound), torch.full_like(bound, pixel))


def test_nan_is_said_and_stops_only_its_own_reconstruction():
    model, _, y, updates = situation()
    wild = dataclasses.replace(dlg.DLG_ADAM, lr=1e308)
    with pytest.warns(UserWarning, match=r"[12] of 2 reconstructions met NaN, the first after \d+ iterations"):
        result = engine.invert([engine.View(updates, model, y)], wild, iterations=30)
    assert torch.isfinite(result.images).all()
    assert (result.diverged > 0).any()
    assert (invg.invert_many(updates, model, y, iterations=2).diverged == -1).all()


def test_invg_follows_the_steps_where_there_are_several_and_may(monkeypatch):
    model, (x, y) = tiny(), batch(2, 1)
    views = []
    monkeypatch.setattr(invg, "invert", lambda new_views, *_, **__: views.extend(new_views))
    for update, simulate in ((fedavg(model, x, y, 0.1), True), (fedavg(model, x, y, 0.1), False)):
        invg.invert_many([update], model, y.view(1, 2), simulate=simulate)
    invg.invert_many([fedsgd(model, x[0], y[0])], model, y[:1])
    assert [bool(view.simulate) for view in views] == [True, False, False]


def test_bad_input():
    model, x, y, updates = situation()
    dense = nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES)).double()
    dense.input_shape = SHAPE
    flat = fedsgd(dense, x[0], y[0])
    for word, call in (
        ("convolutions", lambda: agic.reconstruct(flat, dense, labels=y[0], iterations=1)),
        ("2 images", lambda: agic.invert_many([updates], [model], [y], index=[[0, 1]], iterations=1)),
        ("labels", lambda: invg.invert_many(updates, model, y + 4, iterations=1)),
        ("beta", lambda: agic.layer_function("linear", 3, 0)),
        ("seed", lambda: invg.invert_many(updates, model, y, iterations=1, seed=[0])),
    ):
        with pytest.raises(ValueError, match=word):
            call()
