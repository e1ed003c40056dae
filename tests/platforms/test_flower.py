"""Flower's own client round in one process: what its strategy receives, and SecAgg+'s quantisation of small clients."""

import logging
import os

import pytest
import torch
from federation import RATE, ROUNDS, check_labels, digits, network

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
pytest.importorskip("flwr")
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from fedleak.federated import Update
from fedleak.platforms.flower import InProcess


class Receiving(FedAvg):
    """FedAvg that keeps what it receives."""

    def aggregate_train(self, server_round, replies):
        self.received = [reply.content["arrays"].copy() for reply in replies]
        return None, None


def client(seed, steps):
    app = ClientApp()

    @app.train()
    def train(message, context):
        model = network(seed)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimiser = torch.optim.SGD(model.parameters(), RATE)
        x, y = digits(seed, steps)
        for batch, labels in zip(x.split(8), y.split(8), strict=True):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), labels).backward()
            optimiser.step()
        arrays, metrics = ArrayRecord(model.state_dict()), MetricRecord({"num-examples": len(y)})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


@pytest.mark.parametrize(("seed", "steps"), ROUNDS)
def test_labels_are_recovered_from_what_the_strategy_receives(seed, steps):
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    strategy, sent = Receiving(fraction_evaluate=0.0), ArrayRecord(network(seed).state_dict())
    strategy.start(grid=InProcess(client(seed, steps), 2), initial_arrays=sent.copy(), num_rounds=1)
    for received in strategy.received:
        assert received["1.num_batches_tracked"].numpy() == steps
        check_labels(Update.from_states(sent, received, 8 * steps, steps, RATE), seed)


def test_secagg_rounds_the_weights_of_small_clients_coarsely():
    """At its defaults, and with eight examples, by 1000 / 8 times the step of its range."""
    from flwr.common.secure_aggregation.quantization import dequantize, quantize

    ratio, clip, levels = 8 / 1000, 8.0, 2**22
    weights = torch.linspace(-0.1, 0.1, 1001).numpy()
    values = dequantize(quantize([weights * ratio], clip, levels), clip, levels)[0] / ratio
    error = abs(values - weights)
    assert 100e-6 < error.mean() < 300e-6
    assert error.max() <= 2 * clip / levels / ratio * 1.001
