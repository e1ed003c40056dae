#!/usr/bin/env bash
# Version:  opacus 1.6.0, torch 2.11.0
# Expected: ModuleValidator.fix replaces BatchNorm1d behind a linear layer by a layer that normalises, as it does for images.
# Seen:     it becomes GroupNorm with gcd(32, width) groups. Rows have no positions to normalise over: with 16 or 32
#           features each group is one number, and the output is 0 for every input (the network's outputs do not depend
#           on its inputs at all); with 64, each group is a pair, and every feature is +1 or -1.
# Hurts:    who trains a tabular network or an MLP head privately: it cannot learn, and noise gets the blame.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check opacus==1.6.0 torch==2.11.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import torch
from torch import nn
from opacus.validators import ModuleValidator

torch.manual_seed(0)
for width in (16, 32, 64, 128):
    network = nn.Sequential(nn.Linear(10, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 3))
    fixed = ModuleValidator.fix(network)
    assert ModuleValidator.is_valid(fixed)
    inputs = torch.randn(1000, 10)
    features, outputs = fixed[:2](inputs), fixed(inputs)
    plus_or_minus_one = ((features.abs() - 1).abs() < 0.01).float().mean().item()
    print(f"width {width}: {fixed[1]}; largest feature {features.abs().max():.4f}, features within 0.01 of +1 or -1: "
          f"{plus_or_minus_one:.0%}, deviation of the outputs over 1,000 inputs {outputs.std(0).mean():.1e}")
    if width <= 32:
        assert outputs.std(0).max() < 1e-4, "changed: the outputs depend on the inputs now"
    if width == 64:
        assert plus_or_minus_one > 0.9, "changed: features of pairs are no longer signs"
END
