"""Both sides of a Flower app: clients that train honestly under SecAgg+, and a server whose strategy fishes."""

import json
from pathlib import Path

import torch
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from torch import nn

SHAPE, CLASSES, BATCH, LR, CLIENTS = (1, 8, 8), 4, 16, 0.1, 3


def network():
    """The network that all agree on."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, CLASSES)
    )


def batch_of(k):
    """The batch of client k: images and labels."""
    generator = torch.Generator().manual_seed(k)
    return torch.rand(BATCH, *SHAPE, generator=generator), torch.randint(CLASSES, (BATCH,), generator=generator)


class Honest(NumPyClient):
    """One step of SGD on one batch, from the parameters that come in."""

    def __init__(self, k):
        self.x, self.y = batch_of(k)

    def fit(self, parameters, config):
        """Train."""
        model = network()
        names = list(model.state_dict())
        model.load_state_dict(dict(zip(names, map(torch.tensor, parameters), strict=True)))
        optimiser = torch.optim.SGD(model.parameters(), lr=config["lr"])
        nn.functional.cross_entropy(model(self.x), self.y).backward()
        optimiser.step()
        return [tensor.numpy() for tensor in model.state_dict().values()], len(self.y), {}


client = ClientApp(lambda context: Honest(context.node_config["partition-id"]).to_client(), mods=[secaggplus_mod])
server = ServerApp()


@server.main()
def main(grid, context):
    """Fish, and leave what was found in a file."""
    from fedleak.attacks.labels import lia_sa  # here: a client's process, one for each message, starts sooner without
    from fedleak.flower import Fishing, secure_run

    models = [lia_sa.fishing_model(network(), "vector", u, CLIENTS, seed=0) for u in range(CLIENTS)]
    strategy = Fishing(models, SHAPE, LR, BATCH)
    secure_run(grid, strategy)
    found = sorted(counts.tolist() for counts in strategy.counts.values())
    out = Path(context.run_config["out"])
    out.with_suffix(".part").write_text(json.dumps(found))
    out.with_suffix(".part").rename(out)
