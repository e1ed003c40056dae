#!/usr/bin/env bash
# Version:  opacus 1.6.0, torch 2.11.0
# Expected: ModuleValidator.fix of a trained network keeps the scale and the shift of each BatchNorm, which GroupNorm has as
#           well, in the same shape (of an nn.LSTM, which it also replaces, it copies all weights).
# Seen:     the GroupNorm starts at scale 1 and shift 0: the trained values are gone, and nothing is said.
# Hurts:    who takes a pretrained network for private fine-tuning: part of the pretraining is lost without a word.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check opacus==1.6.0 torch==2.11.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import torch
from torch import nn
from opacus.validators import ModuleValidator

torch.manual_seed(0)
network = nn.Sequential(nn.Conv2d(1, 64, 3), nn.BatchNorm2d(64), nn.Flatten(), nn.Linear(64 * 36, 3))
with torch.no_grad():  # as training leaves them
    network[1].weight.uniform_(0.1, 3)
    network[1].bias.uniform_(-2, 2)
norm = ModuleValidator.fix(network)[1]
lstm = nn.LSTM(4, 8)
fixed = ModuleValidator.fix(lstm).state_dict()
copied = all(torch.equal(tensor, fixed[name]) for name, tensor in lstm.state_dict().items())
print(f"{norm}: scale {norm.weight.unique().tolist()}, shift {norm.bias.unique().tolist()}; the LSTM's weights are copied: {copied}")
assert copied and norm.weight.shape == network[1].weight.shape
assert (norm.weight == 1).all() and (norm.bias == 0).all(), "changed: the trained values are kept now"
END
