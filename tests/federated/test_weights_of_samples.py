"""What a recorder measures of single samples' weights, of parts of a model, and of the labels that were shown."""

import pytest
import torch
from loops import CLASSES, LOOPS, mlp, plain, samples
from torch import nn
from torch.nn import functional as F

from fedleak.federated.loop import class_labels, record
from fedleak.federated.recording import read
from fedleak.models import head


def plain_step(model, optimiser, x, y, saw):
    """Make one step of the usual loop."""
    saw(y)
    optimiser.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimiser.step()


def unequal_parts(model, optimiser, x, y, saw):
    """Accumulate parts of 20 and 4 samples, each halved."""
    saw(y)
    for part in torch.arange(len(y)).split([len(y) - 4, 4]):
        (F.cross_entropy(model(x[part]), y[part]) / 2).backward()
    optimiser.step()


def replayed(model, optimiser, x, y, saw):
    """Weigh half of the samples by a tenth."""
    saw(y)
    first, second = torch.arange(len(y)).chunk(2)
    loss = F.cross_entropy(model(x[first]), y[first]) + 0.1 * F.cross_entropy(model(x[second]), y[second])
    loss.backward()
    optimiser.step()


def pseudo_labelled(model, optimiser, x, y, saw):
    """Train half of the samples on labels that nobody showed."""
    first, second = torch.arange(len(y)).chunk(2)
    saw(y[first])
    labels = torch.cat([y[first], (y[second] + 1) % CLASSES])
    F.cross_entropy(model(x), labels).backward()
    optimiser.step()


@pytest.mark.parametrize(
    ("train", "reason"),
    [(unequal_parts, "do not weigh alike"), (replayed, "do not weigh alike"), (pseudo_labelled, "were not shown")],
)
def test_samples_that_weigh_unequally_or_were_not_shown_are_in_doubt(train, reason, tmp_path):
    model, (x, y) = mlp(), samples()
    optimiser = LOOPS["sgd"].optimiser(model)
    with record(tmp_path, model, optimiser, round=1) as saw:
        train(model, optimiser, x, y, saw)
    assert reason in " ".join(read(tmp_path)[0].doubts)


@pytest.mark.parametrize(
    ("rates", "momentum", "is_doubted"),
    [
        ((0.3, 0.09, 0.03), 0.0, True),  # of the biases alone
        ((0.03, 0.03, 0.03), 0.9, True),
        ((0.06, 0.06, 0.06), 0.0, False),
    ],
)
def test_steps_that_weigh_otherwise_in_the_biases_are_in_doubt(rates, momentum, is_doubted, tmp_path):
    model, (x, y) = mlp(), samples()
    weights, biases = ([p for n, p in model.named_parameters() if n.endswith(end)] for end in ("weight", "bias"))
    optimiser = torch.optim.SGD([{"params": weights}, {"params": biases, "momentum": momentum}], lr=0.03)
    with record(tmp_path, model, optimiser, round=1) as saw:
        for rate in rates:
            optimiser.param_groups[1]["lr"] = rate
            plain_step(model, optimiser, x, y, saw)
    (contribution,) = read(tmp_path)
    assert any("do not weigh alike" in doubt for doubt in contribution.doubts) == is_doubted


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_a_schedule_that_ends_at_zero_does_not_stop_a_run(kind, tmp_path):
    model, (x, y) = mlp().bfloat16(), samples()
    optimiser = kind(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / 2)
    with record(tmp_path, model, optimiser, round=1) as saw:
        for _ in range(2):
            plain_step(model, optimiser, x.bfloat16(), y, saw)
            schedule.step()
    assert read(tmp_path)[0].lr == pytest.approx(0.005)


def test_a_round_at_rate_zero_is_a_gap(tmp_path):
    model, (x, y) = mlp(), samples()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.0)
    with pytest.warns(UserWarning, match="the learning rate was 0"), record(tmp_path, model, optimiser, round=1) as saw:
        plain_step(model, optimiser, x, y, saw)


@pytest.mark.parametrize("given", [{"node": "hospital A"}, {"round": -1}, {"learning_rate": 0.1}])
def test_a_wrong_name_is_an_error_before_the_training(given, tmp_path):
    model = mlp()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        pytest.raises(ValueError, match=r"node|round|learning_rate"),
        record(tmp_path, model, optimiser, **{"round": 1, **given}),
    ):
        pytest.fail("the training began")


def test_a_step_by_a_closure_is_verified(tmp_path):
    model, (x, y) = mlp(), samples()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def closure():
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    with record(tmp_path, model, optimiser, round=1) as saw:
        for _ in range(2):
            saw(y)
            optimiser.step(closure)
    contribution = read(tmp_path)[0]
    assert (contribution.verified, contribution.doubts) == (["step", "loss", "labels"], [])


@pytest.mark.parametrize("clipped", ["head", "body"])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_partial_clipping_and_weight_decay_keep_the_recorded_gradient_right(clipped, decay, tmp_path):
    model, (x, y) = mlp(), samples()
    F.cross_entropy(model(x), y).backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=decay)
    parts = [p for name, p in model.named_parameters() if (name.startswith(head(model).name)) == (clipped == "head")]
    with record(tmp_path, model, optimiser, round=1) as saw:
        saw(y)
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(parts, 0.01)
        optimiser.step()
    contribution = read(tmp_path)[0]
    assert not contribution.doubts
    for name, gradient in expected.items():
        torch.testing.assert_close(
            contribution.update().gradient(name), gradient, rtol=1e-2, atol=1e-2 * float(gradient.norm())
        )


def test_ignored_samples_of_which_the_model_is_certain_do_not_count(tmp_path):
    model, (x, y) = mlp(), samples()
    with torch.no_grad():
        head(model).layer.bias[2] = 20.0
    y = torch.where(torch.arange(len(y)) < 5, -100, y)
    optimiser = LOOPS["sgd"].optimiser(model)
    with record(tmp_path, model, optimiser, round=1) as saw:
        plain()(model, optimiser, x, y, saw)
    contribution = read(tmp_path)[0]
    assert contribution.counts == class_labels(y).bincount().tolist()
    assert contribution.factor == 1


@pytest.mark.parametrize("norm", [1e-2, 1e6])
def test_clipping_of_single_samples_by_opacus_is_measured(norm, tmp_path):
    opacus = pytest.importorskip("opacus")
    x, y = samples()
    model = mlp()
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), len(y))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    private, optimiser, loader = opacus.PrivacyEngine().make_private(
        module=model, optimizer=optimiser, data_loader=data, noise_multiplier=1e-4, max_grad_norm=norm,
        poisson_sampling=False,
    )  # fmt: skip
    with record(tmp_path, private, optimiser, round=1) as saw:
        for part, labels in loader:
            saw(labels)
            optimiser.zero_grad()
            F.cross_entropy(private(part), labels).backward()
            optimiser.step()
    contribution = read(tmp_path)[0]
    assert (abs(contribution.factor - 1) < 1e-3) == (norm > 1)
    assert bool(contribution.doubts) == (norm < 1)


def test_samples_that_pass_twice_count_once(tmp_path):
    model, (x, y) = mlp(), samples()
    optimiser = LOOPS["sgd"].optimiser(model)
    with record(tmp_path, model, optimiser, round=1) as saw:
        saw(y)
        (F.cross_entropy(model(x), y) / 2 + F.cross_entropy(model(x + 0.01), y) / 2).backward()
        optimiser.step()
    contribution = read(tmp_path)[0]
    assert (contribution.samples, contribution.counts, contribution.doubts) == (len(y), y.bincount().tolist(), [])
