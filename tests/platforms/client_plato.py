"""Run plato's clients in their own interpreter: `IN OUT`.

IN (npz) has the rate, and for each run images and labels, `SEED.STEPS.x`. OUT (npz) has the arrays that the client
sends, `SEED.STEPS.payload.NAME`, and the fields of its report.
"""

import asyncio
import os
import sys
from pathlib import Path

import numpy as np
import torch
from network import network

CONFIG = """
[clients]
type = "simple"
total_clients = 1
per_round = 1
do_test = false
[server]
address = "127.0.0.1"
port = 8000
simulate_wall_time = false
[data]
datasource = "MNIST"
sampler = "all_inclusive"
random_seed = 1
[trainer]
type = "basic"
rounds = 1
epochs = 1
batch_size = 8
optimizer = "SGD"
model_name = "lenet5"
[algorithm]
type = "fedavg"
[parameters.optimizer]
lr = {rate}
"""


def sent_by(x, y, seed):
    """Return a client's report and payload; plato reads its configuration where it is imported."""
    from plato.clients import simple
    from plato.datasources import base

    class Digits(base.DataSource):
        def __init__(self):
            super().__init__()
            self.trainset = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))

    client = simple.Client(model=lambda: network(100), datasource=Digits)
    for holder in (client, client._context):
        holder.client_id, holder.current_round = 1, 1
    client._load_data()
    client.configure()
    client._allocate_data()
    client._load_payload(network(seed).state_dict())
    return asyncio.run(client._train())


def main(source, target):
    given, out = dict(np.load(source)), {}
    os.chdir(Path(target).parent)
    Path("config.toml").write_text(CONFIG.format(rate=float(given["rate"])))
    sys.argv = ["plato", "-c", "config.toml"]
    for run in [name.removesuffix(".x") for name in given if name.endswith(".x")]:
        report, payload = sent_by(given[f"{run}.x"], given[f"{run}.y"], int(run.split(".")[0]))
        out |= {f"{run}.payload.{name}": tensor.numpy().copy() for name, tensor in payload.items()}
        out |= {f"{run}.report.{name}": value for name, value in vars(report).items()}
    np.savez(target, **out)


main(*sys.argv[1:])
