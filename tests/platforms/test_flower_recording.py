"""Recording Flower runs, with the real package: what is written is what clients and server really saw."""

import math
from contextlib import nullcontext

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
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg, Krum
from torch import nn

from fedleak.audit import Setup, audit_run, guard
from fedleak.platforms.flower import InProcess, read_mod_claim, recorded, secure_run
from fedleak.privacy.claim import gaussian_epsilon
from fedleak.recording import read, record
from fedleak.recording.contribution import OTHER_STATES

LR, BATCH, NODES = 0.1, 4, 3
SIZES = [8, 10, 11]  # the last batches are smaller, and the samples are weighted


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))


def samples(k):
    generator = torch.Generator().manual_seed(k)
    return torch.rand(SIZES[k], 3, generator=generator), torch.randint(3, (SIZES[k],), generator=generator)


def train(model, k, epochs=1, saw=lambda _: None, optimiser=None):
    x, y = samples(k)
    optimiser = optimiser or torch.optim.SGD(model.parameters(), lr=LR)
    for _ in range(epochs):
        for some, labels in zip(x.split(BATCH), y.split(BATCH), strict=True):
            saw(labels)
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(some), labels).backward()
            optimiser.step()
    return y


TRAINED = {}


def client_app(*mods, folder=None, epochs=1, privacy=None):
    app = ClientApp(mods=list(mods))
    TRAINED.clear()

    @app.train()
    def _train(message, context):
        k = context.node_config["partition-id"]
        model = network()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimiser = torch.optim.SGD(model.parameters(), lr=LR)
        number = message.content["config"]["server-round"]
        about = {"round": number, "node": str(context.node_id), "privacy": privacy}
        recording = record(folder, model, optimiser, **about) if folder else nullcontext(lambda _: None)
        with recording as saw:
            labels = train(model, k, epochs, saw, optimiser)
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


def test_client_and_server_record_one_round_that_is_measured(tmp_path):
    strategy = recorded(all_nodes(), tmp_path, lr=LR, batch_size=BATCH)
    start(strategy, client_app(folder=tmp_path, epochs=2))
    run = read(tmp_path)
    assert [(part.round, part.node) for part in run] == [(r, str(n)) for r in (1, 2) for n in (1, 2, 3)]
    for part in run:
        k = int(part.node) - 1
        assert (part.seen_by, part.failed) == ("server", "")
        assert part.samples == 2 * SIZES[k]
        assert part.steps == 2 * -(-SIZES[k] // BATCH)
        assert part.counts == (2 * samples(k)[1].bincount(minlength=0)).tolist()
        assert part.optimiser == "sgd"
        assert part.lr == pytest.approx(LR, rel=1e-3)
    before, after = run[3].states()
    assert all(torch.equal(after[name], TRAINED[0][name]) for name in after), "the second round's, as it left"
    assert list(before) == list(network().state_dict())
    assert run[3].update().tensors.keys() == dict(network().named_parameters()).keys(), "no buffers"


def test_the_mod_for_local_privacy_is_checked(tmp_path):
    noise = LocalDpMod(clipping_norm=1.0, sensitivity=0.1, epsilon=1.0, delta=0.1)
    app = client_app(noise, folder=tmp_path, privacy=read_mod_claim(noise))
    start(recorded(all_nodes(), tmp_path, lr=LR), app, rounds=1)
    for part in read(tmp_path):
        privacy = part.privacy
        assert part.failed == OTHER_STATES
        assert (privacy.claimed, privacy.delta, privacy.by) == (1.0, 0.1, "LocalDpMod")
        assert privacy.epsilon == pytest.approx(gaussian_epsilon(2 / (0.1 * (2 * math.log(12.5)) ** 0.5), 0.1))
        assert "the noise is too small" in privacy.wrong()[0], "two clipped updates lie up to 2 apart, not 0.1"
    enough = read_mod_claim(LocalDpMod(clipping_norm=1.0, sensitivity=2.0, epsilon=0.5, delta=1e-5))
    assert enough.epsilon < 0.5
    assert not enough.wrong()


def private(noise=0.1):
    return DifferentialPrivacyServerSideFixedClipping(all_nodes(), noise, 1.0, NODES)


@pytest.mark.parametrize("make", [lambda: all_nodes(Krum), private])
def test_any_strategy_records_what_the_server_sees(tmp_path, make):
    plain, recording = make(), recorded(make(), tmp_path, lr=LR, batch_size=BATCH)
    assert type(recording) is type(plain)
    start(recording, client_app())
    assert {record.seen_by for record in read(tmp_path)} == {"server"}
    run = read(tmp_path)
    assert len(run) == 2 * NODES
    assert [record.samples for record in run] == SIZES * 2
    assert all(record.counts is None for record in run), "a server has no labels"
    assert all(torch.equal(run[3 + k].states()[1]["3.bias"], TRAINED[k]["3.bias"]) for k in range(NODES))


class Legacy(NumPyClient):
    def __init__(self, context, folder):
        self.k, self.node, self.folder = context.node_config["partition-id"], str(context.node_id), folder

    def fit(self, parameters, config):
        model = network()
        model.load_state_dict(dict(zip(model.state_dict(), map(torch.tensor, parameters), strict=True)))
        optimiser = torch.optim.SGD(model.parameters(), lr=LR)
        recording = record(self.folder, model, optimiser, round=1, node=self.node) if self.folder else nullcontext(None)
        with recording as saw:
            train(model, self.k, 1, saw or (lambda _: None), optimiser)
        TRAINED[self.k] = model.state_dict()
        return [t.numpy() for t in model.state_dict().values()], SIZES[self.k], {}


def legacy_app(*mods, folder=None):
    return ClientApp(lambda context: Legacy(context, folder).to_client(), mods=list(mods))


def legacy_strategy():
    start = ndarrays_to_parameters([t.numpy() for t in network().state_dict().values()])
    return LegacyFedAvg(
        initial_parameters=start, min_fit_clients=NODES, min_available_clients=NODES, fraction_evaluate=0
    )


TOLD = {"names": list(network().state_dict()), "lr": LR, "batch_size": BATCH, "optimiser": "sgd"}


def test_the_legacy_interface_is_recorded(tmp_path):
    context = LegacyContext(
        Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={}),
        config=ServerConfig(num_rounds=2),
        strategy=recorded(legacy_strategy(), tmp_path, **TOLD),
    )
    DefaultWorkflow()(InProcess(legacy_app(), NODES), context)
    run = read(tmp_path)
    expected = [(r, str(k + 1), SIZES[k]) for r in (1, 2) for k in range(NODES)]
    assert [(part.round, part.node, part.samples) for part in run] == expected
    assert list(run[0].states()[0]) == TOLD["names"]
    assert all(torch.equal(run[3 + k].states()[1]["0.bias"], TRAINED[k]["0.bias"]) for k in range(NODES))


def test_a_secure_rounds_sum_carries_labels_and_is_guarded(tmp_path):
    strategy = recorded(legacy_strategy(), tmp_path, **TOLD)
    secure_run(InProcess(legacy_app(secaggplus_mod, folder=tmp_path), NODES), strategy)
    (total,) = read(tmp_path)
    labels = torch.cat([samples(k)[1] for k in range(NODES)])
    assert total.counts == labels.bincount(minlength=3).tolist()
    assert (total.node, total.seen_by, total.clients, total.steps) == ("sum", "server", NODES, 3)
    assert total.batch_size == NODES * BATCH, "in parallel, not one after another"
    mean = sum(n * TRAINED[k]["3.weight"] for k, n in enumerate(SIZES)) / sum(SIZES)
    torch.testing.assert_close(total.states()[1]["3.weight"].float(), mean, atol=2e-3, rtol=0)
    report = audit_run(tmp_path, Setup(model=network, shape=(3,), remedy_trials=0))
    assert "the mean over up to 3 clients in parallel" in report.to_markdown()
    (verdict,) = guard.verdicts(report, guard.Limits(mean=0.0))
    assert (verdict.case, verdict.status) == ("round 1", "leak")
