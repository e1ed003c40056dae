#!/usr/bin/env bash
# Version:  appfl 1.12.0
# Expected: after the first round of secure aggregation the server's model is the initial model plus the mean update.
# Seen:     it is the mean update alone: the aggregator has no state yet, and takes the sum of the updates for the model. The
#           initial weights, pretrained or not, are gone; later rounds add to that. Without secure aggregation it is right.
# Hurts:    everyone who trains with use_secure_agg, most of all from a pretrained model: nothing is said.
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

for secure in (False, True):
    clients = {name: client(name, use_secure_agg=secure) for name in ("a", "b")}
    start = {name: tensor.clone() for name, tensor in clients["a"].model.state_dict().items()}
    model = nn.Linear(4, 3)
    model.load_state_dict(start)
    server = FedAvgAggregator(model, OmegaConf.create({"use_secure_agg": secure}), Quiet())
    for trainer in clients.values():
        trainer.runtime_context = {"all_client_ids": ["a", "b"], "round_id": 0, "secure_agg_secret": b"secret"}
        trainer.load_parameters(server.get_parameters())
        trainer.train()
    trained = clients["a"].model.weight.detach()  # both have the same data
    server.aggregate({name: trainer.get_parameters()[0] for name, trainer in clients.items()})
    weight = server.model.weight.detach()
    print(f"secure aggregation {secure}: distance to the clients' model {(weight - trained).norm():.4f}, "
          f"to their update alone {(weight - (trained - start['weight'])).norm():.4f}, size of the weights {trained.norm():.2f}")
    expected = trained - start["weight"] if secure else trained
    assert (weight - expected).norm() < 1e-5, "changed"
END
