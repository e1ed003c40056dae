#!/usr/bin/env bash
# Version:  opacus 1.6.0, torch 2.11.0
# Expected: two calls of backward() before one step() accumulate, in mode "ghost" as in mode "hooks": both batches count.
# Seen:     in mode "ghost", backward() itself clears what an earlier one left: the step is made of the last batch alone, and
#           the accountant notes the sampling rate of one batch. In mode "hooks" both batches are in it.
# Hurts:    who accumulates gradients by hand to save memory, which is what ghost clipping is for: all but the last batch are
#           read, and thrown away, without a word.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check opacus==1.6.0 torch==2.11.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from opacus import PrivacyEngine

def step(mode, batches):
    torch.manual_seed(1)
    network, x, y = nn.Linear(5, 3), torch.randn(16, 5), torch.randint(3, (16,))
    engine = PrivacyEngine()
    prepared = engine.make_private(
        module=network, optimizer=torch.optim.SGD(network.parameters(), 1.0), criterion=nn.CrossEntropyLoss(),
        data_loader=DataLoader(TensorDataset(x, y), 8), noise_multiplier=0.0, max_grad_norm=1e6, grad_sample_mode=mode,
        poisson_sampling=False)
    model, optimizer = prepared[:2]
    criterion = prepared[2] if mode == "ghost" else nn.CrossEntropyLoss()
    before = network.weight.detach().clone()
    optimizer.zero_grad()
    for batch in batches:
        criterion(model(x[batch]), y[batch]).backward()
    optimizer.step()
    return (before - network.weight).detach(), engine.accountant.history[0][1]

first, second = slice(0, 8), slice(8, 16)
for mode in ("hooks", "ghost"):
    (both, rate), (last, _) = step(mode, [first, second]), step(mode, [second])
    same = torch.allclose(both, last, atol=1e-6)
    print(f"{mode}: change {both.norm():.3f} of two batches, {last.norm():.3f} of the last alone; noted sampling rate {rate}")
    assert same == (mode == "ghost") and rate == (0.5 if mode == "ghost" else 1.0), "changed"
END
