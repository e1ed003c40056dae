"""The mod that refuses crafted models, with Flower's own apps, messages and strategies."""

import logging

import pytest
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from torch import nn

from fedleak.attacks.labels import lia_sa
from fedleak.platforms.flower import Fishing, InProcess, InspectionMod, honest, secure_run

NODES = 3


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def crafted():
    return lia_sa.fishing_model(network(), "vector", 0, 2, 0)


def muted():
    """A model whose weights alone look honest: its ReLUs give 0."""
    model = network()
    nn.init.constant_(model[1].bias, -8)
    return model


def samples(context):
    generator = torch.Generator().manual_seed(context.node_config["partition-id"])
    return torch.rand(6, 3, generator=generator)


def client_app(*mods):
    """An app that sends back what it got, and the list of the clients that it trained on."""
    app, trained = ClientApp(mods=list(mods)), []

    @app.train()
    def _train(message, context):
        trained.append(context.node_config["partition-id"])
        content = {"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 6})}
        return Message(RecordDict(content), reply_to=message)

    @app.evaluate()
    def _evaluate(message, context):
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 6})}), reply_to=message)

    return app, trained


def run(model, *mods, records=("arrays",)):
    """Send each node a model, to be trained on and then evaluated; return the replies, and how many trained."""
    app, trained = client_app(*mods)
    grid = InProcess(app, NODES)
    content = RecordDict({name: ArrayRecord(model.state_dict()) for name in records})
    train, evaluate = (
        list(grid.send_and_receive([grid.create_message(content, kind, n, "1") for n in grid.get_node_ids()]))
        for kind in ("train", "evaluate")
    )
    assert not any(reply.has_error() for reply in evaluate), "what does not train is not looked at"
    assert sum(not reply.has_error() for reply in train) == len(trained)
    return train, len(trained)


def test_crafted_models_get_an_error_and_honest_ones_are_trained(caplog):
    assert run(network(), InspectionMod())[1] == NODES
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING, "fedleak.platforms.flower"):
        replies, trained = run(crafted(), InspectionMod())
        assert trained == 0
        assert {reply.error.code for reply in replies} == {ErrorCode.MOD_FAILED_PRECONDITION}
        assert all("dead" not in reply.error.reason for reply in replies), "the server does not learn the findings"
        assert "node 1: dead units: 1.weight has 1" in caplog.text
        caplog.clear()
        assert run(crafted(), InspectionMod(warn=True))[1] == NODES
    assert caplog.text.count("dead units") == NODES


def test_the_clients_samples_show_what_the_weights_do_not():
    assert run(muted(), InspectionMod())[1] == NODES
    assert run(muted(), InspectionMod(network, samples))[1] == 0
    assert run(network(), InspectionMod(network, samples))[1] == NODES
    with pytest.raises(ValueError, match="say which"):
        InspectionMod(samples=samples)


@pytest.mark.parametrize("honest_ones", [NODES, 2, 0])
def test_under_secure_aggregation_who_refuses_has_dropped_out(honest_ones):
    models = [network() if u < honest_ones else crafted() for u in range(NODES)]
    x, y = torch.rand(NODES, 6, 3), torch.arange(6).remainder(3).expand(NODES, 6)
    app, guard = honest(network(), x, y), InspectionMod(names=list(network().state_dict()))
    strategy = Fishing(models, (3,), 0.1, 6)
    seen = []
    strategy.aggregate_fit = lambda number, results, failures: seen.extend(p.node_id for p, _ in results) or (None, {})
    secure_run(InProcess(lambda *message: guard(*message, app), NODES), strategy, reconstruction_threshold=0.5)
    assert sorted(seen) == list(range(1, honest_ones + 1))


def test_arrays_without_names_take_the_clients():
    model = crafted()
    numbered = nn.Module()
    numbered.state_dict = lambda: {str(k): t for k, t in enumerate(model.state_dict().values())}
    assert run(numbered, InspectionMod())[1] == 0
    model = network()
    assert run(numbered, InspectionMod())[1] == 0, "nothing says which are weights"
    assert run(numbered, InspectionMod(names=list(model.state_dict())))[1] == NODES
