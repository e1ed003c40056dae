"""fluke's own client round, with the real package: `make test-platforms`."""

import pytest
import torch
from federation import RATE, ROUNDS, check_labels, digits, frozen, network

from fedleak.federated import Update

pytest.importorskip("fluke")
from fluke import FlukeENV
from fluke.client import Client
from fluke.comm import Channel, Message
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.evaluation import ClassificationEval


def message(seed, steps):
    """Return the state before, and the message that the server receives."""
    FlukeENV().set_evaluator(ClassificationEval(1, 10))
    loader = FastDataLoader(*digits(seed, steps), num_labels=10, batch_size=8, shuffle=False)
    client = Client(
        0, loader, loader, OptimizerConfigurator({"name": "SGD", "lr": RATE}), torch.nn.CrossEntropyLoss(), 1
    )
    channel = Channel()
    client.set_channel(channel)
    model = network(seed)
    channel.send(Message(model, "model", "server"), 0)
    client.local_update(1)
    return frozen(network(seed)), channel.receive("server", 0, msg_type="model")


@pytest.mark.parametrize(("seed", "steps"), ROUNDS)
def test_labels_are_recovered_from_the_sent_model(seed, steps):
    before, sent = message(seed, steps)
    assert isinstance(sent.payload, torch.nn.Module)
    update = Update.from_states(before, sent.payload.state_dict(), 8 * steps, steps, RATE)
    check_labels(update, seed)
