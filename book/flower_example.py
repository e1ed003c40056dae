"""A Flower app: five clients with skewed digits train a small network for four rounds, and record what leaves them."""

import sys

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

from fedleak import data
from fedleak.audit import Setup
from fedleak.platforms.flower import InProcess, recorded
from fedleak.recording import record

NODES, BATCH, LR = 5, 16, 0.1
digits = data.load("mnist5k")


def network() -> nn.Module:
    """Return the network that server and clients agree on."""
    torch.manual_seed(0)
    convolutions = (nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.Flatten())
    return nn.Sequential(*convolutions, nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))


app = ClientApp()


@app.train()
def train(message: Message, context) -> Message:
    """One epoch of SGD on the client's own digits, most of them from two classes."""
    k, model = context.node_config["partition-id"], network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    mine = ((digits.y % NODES == k) | (torch.arange(len(digits)) % 7 == k)).nonzero().flatten()[:: 20 + k]
    optimiser = torch.optim.SGD(model.parameters(), lr=LR)
    about = {"round": message.content["config"]["server-round"], "node": str(context.node_id)}
    with record(sys.argv[-1], model, optimiser, **about) as saw:  # 1. around the steps, once the weights are loaded
        for batch in mine[torch.randperm(len(mine))].split(BATCH):
            saw(digits.y[batch])  # 2. the truth, which stays with the client
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(digits.x[batch]), digits.y[batch]).backward()
            optimiser.step()
    metrics = MetricRecord({"num-examples": len(mine)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


setup = Setup(model=network, data=digits)  # for the audit: the model, and digits that an adversary may have

if __name__ == "__main__":
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=NODES, min_available_nodes=NODES)
    strategy = recorded(strategy, sys.argv[-1], lr=LR, batch_size=BATCH, optimiser="sgd")  # 3. the server's view
    strategy.start(InProcess(app, NODES), ArrayRecord(network().state_dict()), num_rounds=4)
