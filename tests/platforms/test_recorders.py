"""Recorded rounds of appfl and declearn, with the real packages: `make test-platforms` runs it in both environments."""

import importlib.util
import logging

import pytest
import torch
from federation import RATE, ROUNDS, check_labels, digits, frozen, network
from torch.utils.data import TensorDataset

from fedleak.audit.recorded import audit_run
from fedleak.audit.setup import Setup
from fedleak.federated.recording import read
from fedleak.platforms.recorders import record_appfl, record_declearn

PLATFORMS = [name for name in ("appfl", "declearn") if importlib.util.find_spec(name)]
if not PLATFORMS:
    pytest.skip("neither appfl nor declearn is installed", allow_module_level=True)


def appfl(seed, steps, folder, **options):
    from test_appfl import trainer

    client = record_appfl(trainer(seed, steps, **options), folder)
    client.load_parameters(frozen(network(seed)))
    return lambda round: client.train(), client


def declearn(seed, steps, folder, modules=(), rate=RATE, **options):
    from declearn.aggregator import AveragingAggregator
    from declearn.dataset.torch import TorchDataset
    from declearn.messaging import TrainRequest
    from declearn.model.torch import TorchModel
    from declearn.optimizer import Optimizer
    from declearn.training import TrainingManager

    manager = TrainingManager(
        TorchModel(network(seed), torch.nn.CrossEntropyLoss()),
        Optimizer(lrate=rate, modules=list(modules), **options),
        AveragingAggregator(),
        TorchDataset(TensorDataset(*digits(seed, steps))),
        verbose=False,
    )
    record_declearn(manager, folder, node="a")
    batches = {"batch_size": 8, "shuffle": False}
    return lambda round: manager.training_round(TrainRequest(round, None, {}, batches, n_epoch=1)), manager


CLIENTS = {name: client for name, client in {"appfl": appfl, "declearn": declearn}.items() if name in PLATFORMS}


@pytest.mark.parametrize("platform", CLIENTS)
@pytest.mark.parametrize(("seed", "steps"), ROUNDS)
def test_a_round_is_recorded_and_verified(seed, steps, platform, tmp_path):
    train, _ = CLIENTS[platform](seed, steps, tmp_path)
    train(1)
    (contribution,) = read(tmp_path)
    assert sorted(contribution.verified) == ["labels", "loss", "step"], contribution.doubts
    assert (contribution.round, contribution.node, contribution.samples, contribution.steps, contribution.lr) == (
        1,
        "a",
        8 * steps,
        steps,
        RATE,
    )
    assert contribution.counts == [steps, steps, 0, 4 * steps, 0, 0, 0, 2 * steps]
    assert contribution.optimiser == "sgd"
    check_labels(
        contribution.update().replace({n: contribution.update().tensors[n] for n, _ in network(0).named_parameters()}),
        seed,
    )


@pytest.mark.parametrize("platform", CLIENTS)
def test_rounds_follow_each_other_and_are_audited(platform, tmp_path):
    train, _ = CLIENTS[platform](0, 1, tmp_path)
    for number in (1, 2, 3):
        train(number)
    assert [contribution.round for contribution in read(tmp_path)] == [1, 2, 3]
    report = audit_run(tmp_path, Setup(model=network(0), adversary="white-box model", remedy_trials=0))
    assert "iLRG" in report.to_markdown()


@pytest.mark.parametrize("platform", CLIENTS)
def test_an_optimiser_other_than_sgd_is_doubted(platform, tmp_path):
    options = {"optim": "Adam", "optim_args": {"lr": 0.01}} if platform == "appfl" else {"modules": ["adam"]}
    train, _ = CLIENTS[platform](0, 4, tmp_path, **options)
    train(1)
    (contribution,) = read(tmp_path)
    assert "step" not in contribution.verified
    assert contribution.doubts


@pytest.mark.parametrize("platform", CLIENTS)
def test_momentum_is_measured(platform, tmp_path):
    options = (
        {"optim_args": {"lr": RATE, "momentum": 0.9}}
        if platform == "appfl"
        else {"modules": [("momentum", {"beta": 0.9})]}
    )
    train, _ = CLIENTS[platform](0, 4, tmp_path, **options)
    train(1)
    (contribution,) = read(tmp_path)
    assert (contribution.momentum, sorted(contribution.verified)) == (0.9, ["labels", "loss", "step"]), (
        contribution.doubts
    )


@pytest.mark.skipif("declearn" not in PLATFORMS, reason="needs declearn")
def test_declearns_decoupled_weight_decay_is_measured(tmp_path):
    train, _ = declearn(0, 1, tmp_path, w_decay=0.001)
    train(1)
    (contribution,) = read(tmp_path)
    assert "step" in contribution.verified, contribution.doubts
    assert contribution.weight_decay == pytest.approx(0.01)


@pytest.mark.skipif("declearn" not in PLATFORMS, reason="needs declearn")
def test_a_failed_round_of_declearn_leaves_no_record(tmp_path):
    train, manager = declearn(0, 1, tmp_path)
    manager.optim._lrate = float("nan")
    manager.model.apply_updates = lambda updates: 1 / 0
    from declearn.messaging import Error

    assert isinstance(train(1), Error)
    assert not list(tmp_path.glob("round-*/*.json"))


@pytest.mark.skipif("appfl" not in PLATFORMS, reason="needs appfl")
class TestAppfl:
    def test_a_gradient_is_recorded_like_weights(self, tmp_path):
        for folder, send_gradient in (("weights", False), ("gradient", True)):
            appfl(0, 4, tmp_path / folder, send_gradient=send_gradient)[0](1)
        weights, gradient = (read(tmp_path / folder)[0] for folder in ("weights", "gradient"))
        assert gradient.verified == weights.verified
        for name, tensor in weights.states()[1].items():
            torch.testing.assert_close(gradient.states()[1][name], tensor)

    def test_noise_is_in_the_record_and_unverifies_the_step(self, tmp_path):
        options = {"use_dp": True, "dp_mechanism": "laplace", "epsilon": 1, "clip_grad": True, "clip_value": 1}
        train, client = appfl(0, 1, tmp_path, clip_norm=2, **options)
        train(1)
        (contribution,) = read(tmp_path)
        assert contribution.verified == ["labels"]
        torch.testing.assert_close(contribution.states()[1]["9.weight"], client.get_parameters()[0]["9.weight"])

    def test_a_masked_upload_is_a_gap_and_the_round_goes_on(self, tmp_path, caplog):
        train, client = appfl(0, 1, tmp_path, use_secure_agg=True)
        client.runtime_context = {"all_client_ids": ["a"], "round_id": 0, "secure_agg_secret": b"secret"}
        with caplog.at_level(logging.WARNING):
            train(1)
        assert client.get_parameters()[0]["type"] == "masked_update_flat"
        assert "masked by secure aggregation" in caplog.text
        with pytest.raises(ValueError, match="masked by secure aggregation"):
            read(tmp_path)

    def test_labels_outside_the_classes_are_a_gap_in_the_record(self, tmp_path, caplog):
        train, client = appfl(0, 1, tmp_path)
        client.loss_fn = lambda output, y: (output.sum(1) - y.sum()).square().mean()
        client.train_dataloader = [(torch.rand(8, 1, 28, 28), torch.rand(8))]
        train(1)
        assert client.round == 1
        assert "labels are whole numbers" in caplog.text

    def test_training_that_fails_raises_its_own_error(self, tmp_path):
        train, client = appfl(0, 1, tmp_path)
        client.loss_fn = lambda output, y: 1 / 0
        with pytest.raises(ZeroDivisionError):
            train(1)
        assert not list(tmp_path.glob("round-*/*.json"))

    def test_another_trainer_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="not derived from appfl's VanillaTrainer"):
            record_appfl(object(), tmp_path)
