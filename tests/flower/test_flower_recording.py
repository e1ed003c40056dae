"""Recording Flower runs, with the real package: what is written is what clients and server really saw."""

import logging
import math

import pytest
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerConfig
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.server.workflow import DefaultWorkflow
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAdam, FedAvg, Krum
from torch import nn

from fedleak.audit import Setup, audit_run, guard
from fedleak.federated import Update
from fedleak.federated.privacy import gaussian_epsilon
from fedleak.federated.recording import read
from fedleak.flower import InProcess, RecordingMod, note, recorded, secure_run
from fedleak.flower.recording import read_mod_claim

LR, BATCH, NODES = 0.1, 4, 3
SIZES = [8, 10, 11]  # the last batches are smaller, and the samples are weighted


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))


def samples(k):
    generator = torch.Generator().manual_seed(k)
    return torch.rand(SIZES[k], 3, generator=generator), torch.randint(3, (SIZES[k],), generator=generator)


def train(model, k, epochs=1):
    x, y = samples(k)
    optimiser = torch.optim.SGD(model.parameters(), lr=LR)
    for _ in range(epochs):
        for some, labels in zip(x.split(BATCH), y.split(BATCH), strict=True):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(some), labels).backward()
            optimiser.step()
    return y


TRAINED = {}


def client_app(*mods, epochs=1, tell=True):
    app = ClientApp(mods=list(mods))
    TRAINED.clear()

    @app.train()
    def _train(message, context):
        k = context.node_config["partition-id"]
        model = network()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        labels = train(model, k, epochs)
        if tell:
            optimiser = torch.optim.SGD(model.parameters(), lr=LR)
            note(context, labels=labels, optimiser=optimiser, batch_size=BATCH, epochs=epochs)
        TRAINED[k] = model.state_dict()
        content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(labels)})}
        return Message(RecordDict(content), reply_to=message)

    return app


def start(strategy, app, rounds=2):
    grid = InProcess(app, NODES)
    strategy.start(grid, ArrayRecord(network().state_dict()), num_rounds=rounds)
    return grid


def all_nodes(kind=FedAvg, **more):
    return kind(fraction_evaluate=0.0, min_train_nodes=NODES, min_available_nodes=NODES, **more)


def test_the_mod_records_what_a_client_really_sent_and_its_labels(tmp_path):
    grid = start(all_nodes(), client_app(RecordingMod(tmp_path), epochs=2))
    run = read(tmp_path)
    assert [(record.round, record.node) for record in run] == [(r, str(n)) for r in (1, 2) for n in (1, 2, 3)]
    for record in run:
        k = int(record.node) - 1
        assert record.samples == 2 * SIZES[k]
        assert record.steps == 2 * -(-SIZES[k] // BATCH)
        assert record.counts == (2 * samples(k)[1].bincount(minlength=0)).tolist()
        assert (record.optimiser, record.lr) == ("sgd", LR)
    before, after = run[3].states()
    assert all(torch.equal(after[name], TRAINED[0][name]) for name in after), "the second round's, as it left"
    assert list(before) == list(network().state_dict())
    assert run[3].update().tensors.keys() == dict(network().named_parameters()).keys(), "no buffers"
    assert not any("fedleak.note" in c.state.config_records for c in grid.contexts.values()), "the note is gone"


def test_the_update_is_the_one_of_the_states(tmp_path):
    start(all_nodes(), client_app(RecordingMod(tmp_path)), rounds=1)
    model = network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    train(model, 1)
    update, by_hand = read(tmp_path)[1].update(), Update.from_states(before, model.state_dict(), 10, 3, LR)
    records = Update.from_states(ArrayRecord(before), ArrayRecord(model.state_dict()), 10, 3, LR)
    for name in by_hand.tensors:
        torch.testing.assert_close(update.gradient(name), by_hand.gradient(name))
        assert torch.equal(records.gradient(name), by_hand.gradient(name))


@pytest.mark.parametrize("outside", [True, False])
def test_the_mods_place_decides_whether_it_sees_the_noise(tmp_path, outside):
    noise = LocalDpMod(clipping_norm=1.0, sensitivity=0.1, epsilon=1.0, delta=0.1)
    mods = [RecordingMod(tmp_path), noise] if outside else [noise, RecordingMod(tmp_path)]
    start(all_nodes(), client_app(*mods), rounds=1)
    untouched = [
        torch.equal(record.states()[1]["0.weight"], TRAINED[k]["0.weight"]) for k, record in enumerate(read(tmp_path))
    ]
    assert untouched == [not outside] * NODES


def test_the_mod_for_local_privacy_is_taken_at_its_word_and_checked(tmp_path):
    noise = LocalDpMod(clipping_norm=1.0, sensitivity=0.1, epsilon=1.0, delta=0.1)
    start(all_nodes(), client_app(RecordingMod(tmp_path, privacy=noise), noise), rounds=1)
    for privacy in (record.privacy for record in read(tmp_path)):
        assert (privacy.claimed, privacy.delta, privacy.by) == (1.0, 0.1, "LocalDpMod")
        assert privacy.epsilon == pytest.approx(gaussian_epsilon(2 / (0.1 * (2 * math.log(12.5)) ** 0.5), 0.1))
        assert "the noise is too small" in privacy.wrong()[0], "two clipped updates lie up to 2 apart, not 0.1"
    enough = read_mod_claim(LocalDpMod(clipping_norm=1.0, sensitivity=2.0, epsilon=0.5, delta=1e-5))
    assert enough.epsilon < 0.5
    assert not enough.wrong()


def test_a_strategys_noise_is_after_aggregation_and_no_clients_own(tmp_path):
    start(recorded(private(0.5), tmp_path, lr=LR), client_app())
    (privacy,) = {record.privacy for record in read(tmp_path)}
    most = max(SIZES) / sum(SIZES)  # the weight of the client that moves the mean most
    assert privacy.claimed == pytest.approx(gaussian_epsilon(2.0 * NODES * most, 1e-5))
    assert privacy.by == "DifferentialPrivacyServerSideFixedClipping"
    assert "added after aggregation" in privacy.wrong()[0]


def private(noise=0.1):
    return DifferentialPrivacyServerSideFixedClipping(all_nodes(), noise, 1.0, NODES)


@pytest.mark.parametrize("make", [all_nodes, lambda: all_nodes(FedAdam), lambda: all_nodes(Krum), private])
def test_any_strategy_records_what_the_server_sees_and_goes_on_as_before(tmp_path, make):
    plain, recording = make(), recorded(make(), tmp_path, lr=LR, batch_size=BATCH)
    assert type(recording) is type(plain)
    start(recording, client_app())
    assert {record.seen_by for record in read(tmp_path)} == {"server"}
    run = read(tmp_path)
    assert len(run) == 2 * NODES
    assert [record.samples for record in run] == SIZES * 2
    assert all(record.counts is None for record in run), "a server has no labels"
    assert all(torch.equal(run[3 + k].states()[1]["3.bias"], TRAINED[k]["3.bias"]) for k in range(NODES))


def test_recording_does_not_change_a_run(tmp_path):
    ends = []
    for strategy, mods in ((all_nodes(), []), (recorded(all_nodes(), tmp_path, lr=LR), [RecordingMod(tmp_path)])):
        start(strategy, client_app(*mods))
        ends.append(TRAINED[2].copy())
    for name, tensor in ends[0].items():
        torch.testing.assert_close(ends[1][name], tensor)  # Flower sums the clients in any order
    assert {(record.seen_by, record.counts is None) for record in read(tmp_path)} == {("server", False)}


def test_what_cannot_be_recorded_is_a_warning_and_the_run_goes_on(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "fedleak.flower"):
        start(all_nodes(), client_app(RecordingMod(tmp_path / "none"), tell=False), rounds=1)
    assert len(TRAINED) == NODES
    assert "nothing recorded of round 1, node 1: nobody told the learning rate" in caplog.text
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING, "fedleak.flower"):
        start(all_nodes(), client_app(RecordingMod(tmp_path / "file")), rounds=1)
        assert "cannot write" in caplog.text
        start(all_nodes(), client_app(RecordingMod(tmp_path / "run", lr=LR), tell=False), rounds=1)
    assert "nobody told the optimiser of round 1, node 1: pass optimiser='sgd'" in caplog.text
    assert {record.optimiser for record in read(tmp_path / "run")} == {"unknown"}


class Legacy(NumPyClient):
    def __init__(self, context, tell):
        self.k, self.context, self.tell = context.node_config["partition-id"], context, tell

    def fit(self, parameters, config):
        model = network()
        model.load_state_dict(dict(zip(model.state_dict(), map(torch.tensor, parameters), strict=True)))
        train(model, self.k)
        TRAINED[self.k] = model.state_dict()
        if self.tell:
            note(self.context, labels=samples(self.k)[1])
        return [t.numpy() for t in model.state_dict().values()], SIZES[self.k], {}


def legacy_app(*mods, tell=False):
    return ClientApp(lambda context: Legacy(context, tell).to_client(), mods=list(mods))


def legacy_strategy():
    start = ndarrays_to_parameters([t.numpy() for t in network().state_dict().values()])
    return LegacyFedAvg(
        initial_parameters=start, min_fit_clients=NODES, min_available_clients=NODES, fraction_evaluate=0
    )


TOLD = {"names": list(network().state_dict()), "lr": LR, "batch_size": BATCH, "optimiser": "sgd"}


def test_the_legacy_interface_is_recorded_on_both_sides(tmp_path):
    context = LegacyContext(
        Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={}),
        config=ServerConfig(num_rounds=2),
        strategy=recorded(legacy_strategy(), tmp_path / "server", **TOLD),
    )
    DefaultWorkflow()(InProcess(legacy_app(RecordingMod(tmp_path / "client", **TOLD)), NODES), context)
    for side in ("server", "client"):
        run = read(tmp_path / side)
        assert [(record.round, record.node, record.samples) for record in run] == [
            (r, str(k + 1), SIZES[k]) for r in (1, 2) for k in range(NODES)
        ]
        assert list(run[0].states()[0]) == TOLD["names"]
        assert all(torch.equal(run[3 + k].states()[1]["0.bias"], TRAINED[k]["0.bias"]) for k in range(NODES))


def test_secure_aggregation_records_client_updates_and_the_servers_mean(tmp_path, caplog):
    inside, outside = (RecordingMod(tmp_path / name, **TOLD) for name in ("inside", "outside"))
    strategy = recorded(legacy_strategy(), tmp_path / "server", **TOLD)
    with caplog.at_level(logging.WARNING, "fedleak.flower"):
        secure_run(InProcess(legacy_app(outside, secaggplus_mod, inside), NODES), strategy)
    run = read(tmp_path / "inside")
    assert [record.samples for record in run] == SIZES
    assert "masked by SecAgg+?" in caplog.text
    assert not list((tmp_path / "outside").glob("round-*"))
    with pytest.raises(ValueError, match=r"no recorded round.*round 1, node 1 is not recorded: what came back is no"):
        read(tmp_path / "outside")
    (record,) = read(tmp_path / "server")
    assert (record.node, record.samples, record.counts) == ("sum", sum(SIZES), None)
    assert (record.clients, record.steps, record.batch_size) == (NODES, 3, NODES * BATCH), (
        "in parallel, not one after another"
    )
    mean = sum(n * TRAINED[k]["3.weight"] for k, n in enumerate(SIZES)) / sum(SIZES)
    torch.testing.assert_close(record.states()[1]["3.weight"].float(), mean, atol=2e-3, rtol=0)


def test_the_sum_of_a_secure_round_carries_labels_and_is_guarded(tmp_path):
    strategy = recorded(legacy_strategy(), tmp_path, **TOLD)
    secure_run(InProcess(legacy_app(secaggplus_mod, RecordingMod(tmp_path, **TOLD), tell=True), NODES), strategy)
    (record,) = read(tmp_path)
    labels = torch.cat([samples(k)[1] for k in range(NODES)])
    assert record.counts == labels.bincount(minlength=3).tolist()
    assert (record.node, record.seen_by, record.clients) == ("sum", "server", NODES)
    report = audit_run(tmp_path, Setup(model=network, shape=(3,), remedy_trials=0))
    assert "the mean over up to 3 clients in parallel" in report.to_markdown()
    (verdict,) = guard.verdicts(report, guard.Limits(mean=0.0))
    assert (verdict.case, verdict.status) == ("round 1", "leak")
