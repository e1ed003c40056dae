#!/usr/bin/env bash
# Version:  appfl 1.12.0
# Expected: secure aggregation with client_weights_mode "sample_size" gives the mean weighted by samples, as it does without.
# Seen:     the server multiplies what is masked by each client's weight, after which the pairwise masks, of size 1, no longer
#           cancel. With 24 and 8 samples a random vector is added to the model, tens of times larger than the update.
# Hurts:    federations of uneven clients, which are all real ones: with even samples, as in examples, nothing is wrong.
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

error = {}
for samples in ((8, 8), (24, 8)):
    clients = {name: client(name, n, use_secure_agg=True) for name, n in zip("ab", samples)}
    updates = []
    for trainer in clients.values():
        trainer.runtime_context = {"all_client_ids": ["a", "b"], "round_id": 0, "secure_agg_secret": b"secret"}
        before = trainer.model.weight.detach().clone()
        trainer.train()
        updates.append(trainer.model.weight.detach() - before)
    server = FedAvgAggregator(None, OmegaConf.create({"use_secure_agg": True, "client_weights_mode": "sample_size"}), Quiet())
    mean = server.aggregate({name: trainer.get_parameters()[0] for name, trainer in clients.items()})["weight"]
    weighted = sum(n * update for n, update in zip(samples, updates)) / sum(samples)
    error[samples] = (mean - weighted).norm().item()
    print(f"samples {samples}: size of the mean update {weighted.norm():.3f}, error {error[samples]:.2g}")
assert error[8, 8] < 1e-5, "wrong with even samples too"
assert error[24, 8] > 5 * weighted.norm(), "changed: the masks cancel now"
END
