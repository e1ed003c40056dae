#!/usr/bin/env bash
# Version:  opacus 1.6.0, torch 2.11.0
# Expected: make_private refuses every BatchNorm, because samples of a batch then depend on each other.
# Seen:     validators look at layers with trainable parameters alone. BatchNorm2d(affine=False), and a frozen BatchNorm2d
#           in training mode, are accepted. Replacing one sample then changes the sum of the clipped gradients by more than
#           twice the clipping bound, which the epsilon rests on, and running statistics follow private data without noise.
# Hurts:    who fine-tunes with frozen norms, or uses networks with affine=False: the stated epsilon does not hold.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check opacus==1.6.0 torch==2.11.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from opacus import PrivacyEngine

torch.manual_seed(0)
for name, norm in (("affine=False", nn.BatchNorm2d(4, affine=False)), ("frozen", nn.BatchNorm2d(4).requires_grad_(False))):
    network = nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    x, y = torch.randn(8, 1, 8, 8), torch.randint(3, (8,))
    model, optimizer, _ = PrivacyEngine().make_private(
        module=network, optimizer=torch.optim.SGD(network.parameters(), 0.1), data_loader=DataLoader(TensorDataset(x, y), 8),
        noise_multiplier=1.0, max_grad_norm=1.0, poisson_sampling=False)

    def clipped_sum(inputs):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), y).backward()
        optimizer.clip_and_accumulate()
        return torch.cat([p.summed_grad.flatten() for p in optimizer.params])

    other = x.clone()
    other[0] = 100 * torch.randn(1, 8, 8)  # one sample, of another scale
    start = norm.running_mean.clone()
    change = (clipped_sum(x) - clipped_sum(other)).norm().item()
    moved = (norm.running_mean - start).abs().max().item()
    print(f"{name}: accepted; one sample changes the clipped sum by {change:.2f} (bound 2), running mean moved by {moved:.2f}")
    assert change > 2.2 and moved > 0.01, "changed"
END
