"""What leaves a client is recorded, and nothing that a recorder cannot do stops a training."""

import textwrap

import pytest
import torch
from loops import CLASSES, mlp, plain, samples
from torch.nn import functional as F

from fedleak.recording import read, record
from fedleak.recording.recorder import class_labels
from fedleak_book import paths


def recorded(folder, run, model=None, rate=0.1, **about):
    """Record a round in which `run` trains a model, and return the model."""
    model = model or mlp()
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    with record(folder, model, optimiser, **{"round": 1, **about}) as saw:
        run(model, optimiser, *samples(), saw)
    return model


def sent_by(folder, change, rate=0.1):
    """Record a round of which `change(before, after)` leaves the client."""
    model = mlp()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    recorded(folder, plain(splits=4), model, rate, sent=lambda: change(before, model.state_dict()))
    return read(folder)[0]


def scaled(factor):
    return lambda before, after: {n: before[n] + factor * (t - before[n]) for n, t in after.items()}


@pytest.mark.parametrize(
    ("change", "is_measured"),
    [
        (scaled(1 / 4), True),  # FedNova, q-FedAvg
        (lambda before, after: {n: t for n, t in after.items() if n.startswith("0")}, True),  # FedPer
        (lambda before, after: {n: t for n, t in after.items() if n.startswith("2")}, True),  # LG-FedAvg
        (scaled(-1.0), False),
        (lambda before, after: {n: t + 0.01 * torch.randn(t.shape) for n, t in after.items()}, False),
        (lambda before, after: {n: t.half() for n, t in after.items()}, False),
        (lambda before, after: {**after, "2.bias": before["2.bias"]}, False),
    ],
)
def test_what_leaves_is_measured_if_it_is_a_multiple_of_the_change(change, is_measured, tmp_path):
    part = sent_by(tmp_path, change, rate=0.01)
    assert (not part.failed) == is_measured, part.failed


def test_a_scaled_difference_gives_the_gradients_and_a_part_withholds_the_rest(tmp_path):
    first, second = (sent_by(tmp_path / str(k), scaled(k)).update() for k in (1.0, 0.25))
    torch.testing.assert_close(first.gradient("2.bias"), second.gradient("2.bias"), rtol=1e-3, atol=1e-5)
    part = sent_by(tmp_path / "part", lambda before, after: {n: t for n, t in after.items() if n.startswith("0")})
    assert set(part.update().tensors) == {"0.weight", "0.bias"}
    with pytest.warns(UserWarning, match="nothing recorded"), pytest.raises(ValueError, match="is none of them"):
        sent_by(tmp_path / "names", lambda before, after: {f"module.{name}": t for name, t in after.items()})


def gradient_alone(model, optimiser, x, y, saw):
    saw(y)
    F.cross_entropy(model(x), y).backward()


def test_a_gradient_without_a_step_is_recorded(tmp_path):
    model = recorded(tmp_path, gradient_alone)
    (part,) = read(tmp_path)
    assert (part.failed, part.steps) == ("", 1)
    torch.testing.assert_close(part.update().gradient("2.bias"), model[2].bias.grad, rtol=1e-3, atol=1e-5)


def no_labels(model, optimiser, x, y, saw):
    plain()(model, optimiser, x, y, lambda _: None)


def one_hot(model, optimiser, x, y, saw):
    plain(labels=lambda part: F.one_hot(part, CLASSES))(model, optimiser, x, y, saw)


def no_step(model, optimiser, x, y, saw):
    saw(y)


def at_rate_0(model, optimiser, x, y, saw):
    optimiser.param_groups[0]["lr"] = 0.0
    plain()(model, optimiser, x, y, saw)


@pytest.mark.parametrize("run", [no_labels, one_hot, no_step, at_rate_0])
def test_what_cannot_be_recorded_is_a_gap_and_no_error(run, tmp_path):
    with pytest.warns(UserWarning, match="nothing recorded"):
        recorded(tmp_path, run, round=3)
    with pytest.raises(ValueError, match="round 3, node 0 is not recorded"):
        read(tmp_path)


def test_a_full_disk_stops_no_training(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedleak.files.os.fsync", full)
    with pytest.warns(UserWarning, match="No space left"):
        recorded(tmp_path, plain())
    assert not list(tmp_path.glob("**/*.json"))


@pytest.mark.parametrize("given", [{"node": "hospital A"}, {"round": -1}])
def test_a_wrong_name_is_an_error_before_the_training(given, tmp_path):
    with pytest.raises(ValueError, match=r"node|round"):
        recorded(tmp_path, lambda *_: pytest.fail("the training began"), **given)


def test_a_block_that_raises_leaves_neither_record_nor_hooks(tmp_path):
    model = mlp()
    optimiser = torch.optim.SGD(model.parameters())
    with pytest.raises(KeyError), record(tmp_path, model, optimiser, round=1):
        raise KeyError
    assert not list(tmp_path.iterdir())
    assert not any(module._forward_hooks for module in model.modules())
    assert not optimiser._optimizer_step_pre_hooks
    assert not optimiser._optimizer_step_post_hooks


def test_a_later_record_of_the_round_closes_the_gap(tmp_path):
    for run in (no_labels, plain()):
        recorded(tmp_path, run)
    assert len(read(tmp_path)) == 1


@pytest.mark.parametrize("labels", [torch.rand(4), torch.ones(4, dtype=torch.bool), torch.tensor([0, -1]), [10**9]])
def test_labels_of_another_kind_are_refused(labels):
    with pytest.raises(ValueError, match="labels are"):
        class_labels(labels)


def test_ignored_labels_are_not_counted():
    assert class_labels([[3], [-100], [1]]).tolist() == [3, 1]


@pytest.mark.filterwarnings("ignore")
def test_the_examples_of_a_plain_loop_and_of_opacus_run():
    import doctest

    from fedleak.recording import recorder

    assert doctest.testmod(recorder, raise_on_error=True).attempted > 10


def test_the_pages_loader_shows_its_labels(tmp_path):
    page = (paths.root() / "book" / "flower.md").read_text(encoding="utf-8")
    scope = {}
    exec(textwrap.dedent("  class Showing:" + page.partition("  class Showing:")[2].partition("```")[0]), scope)

    def shown(model, optimiser, x, y, saw):
        for inputs, labels in scope["Showing"](list(zip(x.split(8), y.split(8), strict=True)), saw):
            plain(splits=1)(model, optimiser, inputs, labels, lambda _: None)

    recorded(tmp_path, shown)
    (part,) = read(tmp_path)
    assert (part.failed, part.counts) == ("", samples()[1].bincount(minlength=CLASSES).tolist())
