"""Run fl4health's clients in their own interpreter: `IN OUT KIND BOUND ROUNDS`.

IN (npz) has the rate, and for each run images and labels, `SEED.STEPS.x`. OUT (npz) has the arrays that the client
sends, `SEED.STEPS.ROUND.POSITION`, and the number beside them. Every round begins at the same weights.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from fl4health.clients.basic_client import BasicClient
from fl4health.clients.clipping_client import NumpyClippingClient
from network import network
from torch.utils.data import DataLoader, TensorDataset


def make(kind, x, y, rate):
    class Client({"basic": BasicClient, "clipping": NumpyClippingClient}[kind]):
        def get_model(self, config):
            return network(100)

        def get_data_loaders(self, config):
            data = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
            return DataLoader(data, 8), DataLoader(data, 8)

        def get_optimizer(self, config):
            return torch.optim.SGD(self.model.parameters(), rate)

        def get_criterion(self, config):
            return torch.nn.CrossEntropyLoss()

    return Client(Path(), [], torch.device("cpu"))


def main(source, target, kind, bound, rounds):
    given, out = dict(np.load(source)), {}
    for run in [name.removesuffix(".x") for name in given if name.endswith(".x")]:
        seed, steps = map(int, run.split("."))
        client = make(kind, given[f"{run}.x"], given[f"{run}.y"], float(given["rate"]))
        start = [tensor.numpy() for tensor in network(seed).state_dict().values()]
        for number in range(1, int(rounds) + 1):
            received = [array.copy() for array in start] + [np.array(float(bound))] * (kind == "clipping")
            config = {"current_server_round": number, "local_steps": steps, "adaptive_clipping": True}
            arrays, out[f"{run}.samples"], _ = client.fit(received, config)
            out |= {f"{run}.{number}.{i}": np.array(array) for i, array in enumerate(arrays)}
    np.savez(target, **out)


main(*sys.argv[1:])
