"""What is measured is SGD on the mean cross-entropy, and nothing else is."""

import copy

import loops_by_model  # noqa: F401, adds its loops
import pytest
import torch
from loops import CLASSES, LOOPS, RATE, mlp, plain, samples
from torch.nn import functional as F

from fedleak.models import head
from fedleak.recording import read, record

UNCLEAR_OUTPUTS = (
    *("batch norm and dropout", "a bias in front of batch norm", "data parallel"),
    *("a scale that is never taken off", "a tied head", "features, projection, logits", "adversarial inputs"),
    "a step by a closure",
)
"""Loops of which the mean probabilities are not those of a pass over all samples before."""


def recorded(folder, loop):
    model, (x, y) = loop.network(), samples()
    optimiser = loop.optimiser(model)
    with record(folder, model, optimiser, round=1) as saw:
        loop.run(model, optimiser, x, y, saw)
    (part,) = read(folder)
    return part


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LOOPS)
def test_a_round_is_measured_and_shows_its_labels_if_it_is_sgd_on_the_cross_entropy(name, tmp_path):
    part = recorded(tmp_path, LOOPS[name])
    assert (not part.failed) == LOOPS[name].measured, part.failed
    assert (part.scheme is not None) == LOOPS[name].measured
    before, after = part.states()
    moved = {n for n, _ in LOOPS[name].network().named_parameters() if not before[n].equal(after[n])}
    assert part.failed or moved <= part.scales.keys()

    if part.failed or name in UNCLEAR_OUTPUTS:
        return
    # counts follow from the bias' gradient, which is the mean of p - y; p hardly moves
    model, (x, y) = LOOPS[name].network(), samples()
    bias = head(model).bias
    if bias not in part.update().tensors:
        return
    used = torch.isin(y, torch.tensor([k for k, n in enumerate(part.counts) if n]))
    p = model(x.to(next(model.parameters()))).softmax(1)[used].mean(0)
    estimate = part.samples * (p - part.update().gradient(bias))
    assert (estimate - part.truth(CLASSES)).abs().max() < 0.08 * part.samples


def test_a_model_that_fits_its_samples_is_measured(tmp_path):
    model, (x, y) = mlp(), samples()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(1000):
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
    x[::4] *= 30  # so certain of these that their gradient is 0
    with record(tmp_path, model, optimiser, round=1) as saw:
        plain(splits=4)(model, optimiser, x, y, saw)
    assert not read(tmp_path)[0].failed


def test_training_is_the_same_with_and_without_a_recorder(tmp_path):
    loop, (x, y) = LOOPS["batch norm and dropout"], samples()
    model = loop.network()
    alone = copy.deepcopy(model)
    torch.manual_seed(1)
    optimiser = loop.optimiser(model)
    with record(tmp_path, model, optimiser, round=1) as saw:
        loop.run(model, optimiser, x, y, saw)
    torch.manual_seed(1)
    loop.run(alone, loop.optimiser(alone), x, y, lambda _: None)
    assert all(a.equal(b) for a, b in zip(model.state_dict().values(), alone.state_dict().values(), strict=True))


def test_each_parameter_has_its_own_rate_and_decay_taken_off(tmp_path):
    model, (x, y) = mlp(), samples()
    groups = [{"params": model[0].parameters(), "lr": 0.001, "weight_decay": 0.5}, {"params": model[2].parameters()}]
    optimiser = torch.optim.SGD(groups, lr=0.1, weight_decay=0.1)
    gradients = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    with record(tmp_path, model, optimiser, round=1) as saw:
        plain(splits=1)(model, optimiser, x, y, saw)
    update = read(tmp_path)[0].update()
    for name, gradient in zip(dict(model.named_parameters()), gradients, strict=True):
        torch.testing.assert_close(update.gradient(name), gradient, rtol=1e-3, atol=1e-4)


def test_skipped_steps_leave_no_labels(tmp_path):
    part = recorded(tmp_path, LOOPS["GradScaler that skips steps in float16"])
    assert part.steps < 4
    assert part.samples == 6 * part.steps == sum(part.counts)


@pytest.mark.parametrize("name", ["momentum", "Nesterov"])
def test_the_rate_of_a_scheme_is_that_of_its_optimiser(name, tmp_path):
    part = recorded(tmp_path, LOOPS[name])
    assert (part.momentum, part.lr) == (0.9, pytest.approx(RATE, rel=1e-3))
