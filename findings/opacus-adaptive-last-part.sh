#!/usr/bin/env bash
# Version:  opacus 1.6.0, torch 2.11.0
# Expected: with clipping="adaptive", the bound follows the share of unclipped samples of the whole batch, also where
#           BatchMemoryManager splits it into parts that fit into memory.
# Seen:     zero_grad(), called for each part, sets the counts to 0: of a batch of 32 in four parts the bound follows the last 8
#           samples alone, while the noise on the count is still that for 32.
# Hurts:    who tunes a private training on a small GPU: the clipping bound becomes a random walk.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check opacus==1.6.0 torch==2.11.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager

torch.manual_seed(0)
counted = {}
for part in (32, 8):
    network = nn.Linear(5, 3)
    data = DataLoader(TensorDataset(torch.randn(32, 5), torch.randint(3, (32,))), 32)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=network, optimizer=torch.optim.SGD(network.parameters(), 0.1), data_loader=data, noise_multiplier=1.0,
        max_grad_norm=1.0, poisson_sampling=False, clipping="adaptive", target_unclipped_quantile=0.5,
        clipbound_learning_rate=0.2, max_clipbound=10.0, min_clipbound=0.01, unclipped_num_std=1.6)
    update = optimizer.update_max_grad_norm

    def noted():
        counted[part] = optimizer.sample_size
        update()

    optimizer.update_max_grad_norm = noted
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=part, optimizer=optimizer) as parts:
        for x, y in parts:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    print(f"batch of 32 in parts of {part}: the bound follows {counted[part]} samples")
assert counted == {32: 32, 8: 8}, "changed"
END
