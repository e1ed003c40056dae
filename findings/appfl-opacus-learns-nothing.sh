#!/usr/bin/env bash
# Version:  appfl 1.12.0, opacus 1.6.0
# Expected: clients with dp_mechanism "opacus" train privately, and the server's model moves.
# Seen:     Opacus wraps the model, and the client sends its weights as "_module.weight". The server knows no such name: it
#           aggregates an empty state, its model never changes, and clients load nothing (strict=False). Epsilon is spent.
# Hurts:    who turns on the recommended mechanism: no error, no warning, clients' own accuracies rise, the model is as it was.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check appfl==1.12.0 torch==2.11.0 opacus==1.6.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import torch
from appfl.algorithm.aggregator import FedAvgAggregator
from appfl.algorithm.trainer import VanillaTrainer
from omegaconf import OmegaConf
from torch import nn
from torch.utils.data import TensorDataset

class Quiet:
    def __getattr__(self, name):
        return lambda *args, **kwargs: None

def client(name, samples=8, **options):
    torch.manual_seed(0)
    data = TensorDataset(torch.rand(samples, 4), torch.arange(samples) % 3)
    configs = {"mode": "step", "num_local_steps": 4, "train_batch_size": 8, "optim": "SGD", "optim_args": {"lr": 0.1}}
    return VanillaTrainer(
        model=nn.Linear(4, 3), loss_fn=nn.CrossEntropyLoss(), metric=lambda *_: 0.0, train_dataset=data, client_id=name,
        train_configs=OmegaConf.create(configs | options), logger=Quiet())

options = {"use_dp": True, "dp_mechanism": "opacus", "dp_config": {"noise_multiplier": 0.5, "max_grad_norm": 1.0}}
clients = {name: client(name, 64, **options) for name in ("a", "b")}
model = nn.Linear(4, 3)
start = model.weight.detach().clone()
server = FedAvgAggregator(model, OmegaConf.create({}), Quiet())
for number in range(3):
    for trainer in clients.values():
        trainer.load_parameters(server.get_parameters())
        trainer.train()
    sent = {name: trainer.get_parameters()[0] for name, trainer in clients.items()}
    aggregated = server.aggregate(sent)
    moved = (server.model.weight - start).norm().item()
    epsilon = clients["a"].privacy_engine.get_epsilon(1e-5)
    print(f"round {number + 1}: sent {list(sent['a'])}, aggregated {list(aggregated)}, server moved by {moved}, epsilon {epsilon:.1f}")
assert not aggregated and moved == 0.0 and epsilon > 1, "changed: the server learns now"
END
