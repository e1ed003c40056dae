"""Head splitting: samples that were made for it, updates of a network, and everything that must be refused."""

import contextlib

import numpy as np
import pytest
import torch
from scipy.optimize import check_grad
from torch import nn
from updates import changed, noisy

from fedleak.attacks.labels.exact import head_splitting, joint
from fedleak.data import Images
from fedleak.federated import Softening, fedavg, fedsgd

N, WIDTH = 12, 30


def samples(count, seed=0):
    """Head, inputs and labels, two of one class, and their mean gradient."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(N, WIDTH + 1, generator=generator, dtype=torch.double) / 3
    inputs = torch.randn(count, WIDTH, generator=generator, dtype=torch.double).relu()
    inputs, labels = nn.functional.pad(inputs, (0, 1), value=1.0), torch.randint(N, (count,), generator=generator)
    labels[-1] = labels[0]
    gradient = ((inputs @ weight.T).softmax(1) - torch.eye(N, dtype=torch.double)[labels]).T @ inputs / count
    return weight, inputs, labels, gradient


def network(precision=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(20, WIDTH), nn.Tanh(), nn.Linear(WIDTH, N)).to(precision)


def batch(count, precision=torch.float32, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 1, 4, 5, generator=generator, dtype=torch.double).to(precision)
    return x, torch.randint(N, (count,), generator=generator)


@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_every_sample_is_recovered_with_its_input(count):
    weight, inputs, labels, gradient = samples(count)
    x, y = head_splitting.split(gradient, weight, count)
    place = torch.cdist(inputs, x).argmin(1)
    assert place.unique().numel() == count
    assert torch.allclose(x[place], inputs, rtol=1e-6, atol=1e-7)
    assert torch.equal(y[place], labels)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_all_labels_are_proven_for_a_network_without_relu(precision):
    model, (x, y) = network(precision), batch(5, precision)
    result = head_splitting.prepare(model).recover(fedsgd(model, x, y))
    assert torch.equal(result.counts, y.bincount(minlength=N))
    assert torch.equal(result.proven, result.counts)


def test_many_samples_of_many_classes_are_refused_with_the_time():
    model = nn.Linear(2000, 1000)
    update = fedsgd(model, torch.rand(128, 2000), torch.arange(128))
    with pytest.raises(ValueError, match=r"128 samples of 1,000 classes would take \d+ minutes"):
        head_splitting.prepare(model).recover(update)
    assert not head_splitting.has_few_samples(model, None, 128)


def images(count=20):
    """Images of every class."""
    generator = torch.Generator().manual_seed(5)
    x = torch.rand(N * count, 1, 4, 5, generator=generator)
    return Images(x, torch.arange(N).repeat(count))


def rectified(seed=0):
    """A network whose head's inputs are not negative: signs tell the classes."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(20, WIDTH), nn.ReLU(), nn.Linear(WIDTH, N))


@pytest.mark.parametrize(("count", "least"), [(4, 6), pytest.param(8, 5, marks=pytest.mark.slow)])
def test_with_images_more_samples_than_half_the_classes_are_read(count, least):
    """A rate over six networks and batches: a search that starts at random may end beside the solution."""
    y = torch.tensor([1, 1, 3, 3, 3, 7, 7, 7])[:count]
    answers = []
    for seed in range(6):
        model, (x, _) = rectified(seed), batch(count, seed=seed)
        with contextlib.suppress(ValueError):
            answers.append(head_splitting.prepare(model, images()).recover(fedsgd(model, x, y)))
    assert len(answers) >= least
    for result in answers:
        assert torch.equal(result.counts, y.bincount(minlength=N))
        assert torch.equal(result.proven, result.counts)


def test_the_last_bit_of_a_gradient_decides_nothing():
    model, (x, _) = rectified(), batch(8)
    update = fedsgd(model, x, y := torch.tensor([1, 1, 3, 3, 3, 7, 7, 7]))
    attack, draws = head_splitting.prepare(model, images()), torch.Generator().manual_seed(0)
    signs = {k: torch.randint(-1, 2, t.shape, generator=draws) for k, t in update.tensors.items()}
    moved = {k: t * (1 + torch.finfo(t.dtype).eps * signs[k]) for k, t in update.tensors.items()}
    assert torch.equal(attack.recover(update.replace(moved)).counts, y.bincount(minlength=N))


def test_counts_nearest_to_a_solution_are_searched_further(monkeypatch):
    """The first searches all end in local minima; then the leading counts alone are searched, until one is solved."""
    weight, inputs, labels, gradient = samples(4)
    searched = []

    def solve(self, start):
        searched.append(tuple(self.labels))
        right = sorted(self.labels) == sorted(labels.tolist())
        number = len(searched)
        return start, (0.0 if right and number > 60 else 1.0 if right else 2.0 + len(set(self.labels)))

    monkeypatch.setattr(joint.SampleEquations, "solve", solve)
    tried = list(joint.iterate_label_vectors((4 * gradient).numpy(), 4))
    recovered = joint.recover_labels((4 * gradient).numpy(), weight.numpy(), 4, 1e-9, 1e-9, [inputs.numpy()] * N)
    assert sorted(recovered) == sorted(labels.tolist())
    assert len(set(searched[joint.SEARCHES_OF_ALL * len(tried) :])) <= joint.N_LEADING


def test_the_derivative_of_all_samples_equations_is_that_of_differences():
    weight, inputs, labels, gradient = samples(7)
    equations = joint.SampleEquations(weight.numpy(), labels.numpy(), 7 * gradient.numpy())
    at = equations.project_inputs(inputs.numpy())
    assert abs(equations.residual(at)).max() < 1e-12
    assert abs(equations.inputs_of(at) - inputs.numpy()).max() < 1e-12
    assert check_grad(lambda v: equations.residual(v).sum(), lambda v: equations.jacobian(v).sum(0), at + 0.1) < 1e-4


def test_labels_that_signs_name_are_shared_out_in_every_way():
    total = np.array([[1.0, -1], [2, 3], [-1, 5], [-2, 2]])
    tried = [list(labels) for labels in joint.iterate_label_vectors(total, 4)]
    assert sorted(tried) == [[0, 0, 2, 3], [0, 2, 2, 3], [0, 2, 3, 3]]


REFUSED = {
    "more samples than half the classes": lambda m, x, y: fedsgd(m, x, y),
    "one sample twice": lambda m, x, y: fedsgd(m, x[[0, 0, 1, 2]], y[[0, 0, 1, 2]]),
    "two local steps": lambda m, x, y: fedavg(m, x[:4].unflatten(0, (2, 2)), y[:4].view(2, 2), 0.1),
    "noise": lambda m, x, y: changed(fedsgd(m, x[:4], y[:4]), noisy(0.01)),
    "eight bits": lambda m, x, y: changed(fedsgd(m, x[:4], y[:4]), lambda t: (t * 128 / t.max()).round()),
    "smoothed labels": lambda m, x, y: fedsgd(m, x[:4], y[:4], Softening(smoothing=0.1)),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_whatever_the_equations_do_not_hold_for_is_refused(make):
    model = network()
    with pytest.raises(ValueError, match=r"head splitting reads|tells \d+ samples apart|finds \d+ of \d+ samples"):
        head_splitting.recover(make(model, *batch(7)), model)


@pytest.mark.parametrize("count", [N, joint.MAX_SAMPLES + 1])
def test_as_many_samples_as_classes_are_too_many_with_images(count):
    with pytest.raises(ValueError, match="samples"):
        head_splitting.recover(fedsgd(rectified(), *batch(count)), rectified(), aux=images())


def test_without_a_bias_an_input_has_no_scale():
    model = nn.Sequential(nn.Flatten(), nn.Linear(20, N, bias=False))
    with pytest.raises(ValueError, match="no bias"):
        head_splitting.prepare(model)
