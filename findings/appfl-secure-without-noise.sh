#!/usr/bin/env bash
# Version:  appfl 1.12.0
# Expected: use_dp with dp_mechanism "laplace" or "gaussian" adds its noise to what a client sends, with secure aggregation too.
# Seen:     with use_secure_agg the payload is made from the model before the noise: the masked update of a lone client, whose
#           masks are empty, is the trained change to the last digit. Without it, the noise is there.
# Hurts:    who turns both on for more protection: the sum that the server opens has no differential privacy at all.
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

private = {"use_dp": True, "dp_mechanism": "laplace", "epsilon": 0.1, "clip_grad": True, "clip_value": 1.0, "clip_norm": 2}
distance = {}
for secure in (False, True):
    trainer = client("a", use_secure_agg=secure, **private)
    trainer.runtime_context = {"all_client_ids": ["a"], "round_id": 0, "secure_agg_secret": b"secret"}
    before = nn.utils.parameters_to_vector(trainer.model.parameters()).detach()
    trainer.train()
    change = nn.utils.parameters_to_vector(trainer.model.parameters()).detach() - before
    sent = trainer.get_parameters()[0]
    sent = sent["flat"] if secure else torch.cat([sent[name].flatten() for name in ("weight", "bias")]) - before
    distance[secure] = (sent - change).abs().mean().item()
    print(f"secure aggregation {secure}: mean size of the noise in what is sent {distance[secure]:.2g}")
assert distance[False] > 0.5, "no noise at all (its scale is 2)"
assert distance[True] < 1e-6, "changed: the noise is in the masked update now"
END
