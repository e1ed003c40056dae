"""Recording Flower runs, with the real package: what is written is what clients and server really saw."""

import math
from contextlib import nullcontext

import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg, Krum
from networks import normed as network
from torch import nn

from fedleak.platforms.flower import InProcess, recorded
from fedleak.privacy.claim import Privacy, gaussian_epsilon
from fedleak.recording import read, record
from fedleak.recording.contribution import OTHER_STATES
from fedleak_book import paths

LR, BATCH, NODES = 0.1, 4, 3
SIZES = [8, 10, 11]  # the last batches are smaller, and the samples are weighted


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


def test_the_pages_claim_of_the_local_mod_is_checked(tmp_path):
    page = (paths.root() / "book" / "privacy.md").read_text(encoding="utf-8")
    mod = LocalDpMod(clipping_norm=1.0, sensitivity=0.1, epsilon=1.0, delta=0.1)
    scope = {"math": math, "Privacy": Privacy, "mod": mod}
    exec("deviation = " + page.partition("deviation = ")[2].partition("\n\n")[0], scope)
    start(recorded(all_nodes(), tmp_path, lr=LR), client_app(mod, folder=tmp_path, privacy=scope["claim"]), rounds=1)
    for part in read(tmp_path):
        assert (part.failed, part.privacy.claimed, part.privacy.delta) == (OTHER_STATES, 1.0, 0.1)
        assert part.privacy.epsilon == pytest.approx(gaussian_epsilon(2 / (0.1 * (2 * math.log(12.5)) ** 0.5), 0.1))
        assert "the noise is too small" in part.privacy.wrong()[0], "two clipped updates lie up to 2 apart, not 0.1"


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


@pytest.mark.parametrize(("examples", "samples"), [("n", 9), (5, 5)])
def test_samples_are_the_metric_that_is_named_or_the_number(tmp_path, examples, samples):
    app = ClientApp()

    @app.train()
    def _train(message, context):
        arrays = ArrayRecord([t.numpy() for t in network().state_dict().values()])
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"n": 9})}), reply_to=message)

    names = list(network().state_dict())
    strategy = recorded(
        all_nodes(weighted_by_key="n"), tmp_path, lr=LR, batch_size=BATCH, examples=examples, names=names
    )
    start(strategy, app, rounds=1)
    assert [(part.samples, part.steps) for part in read(tmp_path)] == [(samples, -(-samples // BATCH))] * NODES
    assert list(read(tmp_path)[0].states()[1]) == names


def bfloat16():
    """Arrays as somebody sends bfloat16, which Flower's ArrayRecord does not take."""
    state = network().bfloat16().state_dict().items()
    return ArrayRecord({k: Array("bfloat16", tuple(t.shape), "raw.bfloat16", bytes(2 * t.numel())) for k, t in state})


def arrays():
    return ArrayRecord(network().state_dict())


UNREADABLE = {
    "serialisation of one's own": (bfloat16, {"arrays": arrays()}, {"num-examples": 16}),
    "two array records": (arrays, {"arrays": arrays(), "control": arrays()}, {"num-examples": 16}),
    "other names": (arrays, {"arrays": ArrayRecord(nn.Linear(2, 2).state_dict())}, {"num-examples": 16}),
    "a key of another name": (arrays, {"arrays": arrays()}, {"images": 16}),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_no_round_ends_for_want_of_a_record_and_a_gap_is_left(tmp_path, case):
    sent, reply, metrics = UNREADABLE[case]
    app, strategy, aggregated = ClientApp(), all_nodes(), []

    @app.train()
    def _train(message, context):
        return Message(RecordDict({**reply, "metrics": MetricRecord(metrics)}), reply_to=message)

    strategy.aggregate_train = lambda _, replies: aggregated.extend(r.has_error() for r in replies) or (None, None)
    recorded(strategy, tmp_path, lr=LR, batch_size=BATCH).start(InProcess(app, NODES), sent(), num_rounds=1)
    assert aggregated == [False] * NODES
    with pytest.raises(ValueError, match="round 1, node 1 is not recorded"):
        read(tmp_path)
