#!/usr/bin/env bash
# Version:  opacus 1.6.0, torch 2.11.0
# Expected: a checkpoint with a noise scheduler restores the noise multiplier, as one with a learning-rate scheduler
#           restores the rate.
# Seen:     load_checkpoint restores the scheduler's epoch, but the optimizer keeps the multiplier it was made with:
#           a multiplier of 4 that two steps had halved to 1 is 4 again, and its next step gives 2, not 0.5.
# Hurts:    who resumes a private training with scheduled noise: too much noise here, and too little with a scheduler
#           that raises it: the noise is not the plan's, and the final epsilon is another one.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check opacus==1.6.0 torch==2.11.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import torch
from opacus import PrivacyEngine
from opacus.schedulers import ExponentialNoise
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 4), torch.arange(64) % 3)


def private():
    engine, model = PrivacyEngine(), torch.nn.Linear(4, 3)
    module, optimizer, _ = engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), data_loader=DataLoader(data, 16),
        noise_multiplier=4.0, max_grad_norm=1.0)
    return engine, module, optimizer, ExponentialNoise(optimizer, gamma=0.5)


engine, module, optimizer, scheduler = private()
scheduler.step(), scheduler.step()
engine.save_checkpoint(path="checkpoint.pt", module=module, optimizer=optimizer, noise_scheduler=scheduler)
engine, module, resumed, restored = private()
engine.load_checkpoint(path="checkpoint.pt", module=module, optimizer=resumed, noise_scheduler=restored)
print(f"before: epoch {scheduler.last_epoch}, noise {optimizer.noise_multiplier}; "
      f"resumed: epoch {restored.last_epoch}, noise {resumed.noise_multiplier}")
assert (scheduler.last_epoch, restored.last_epoch, optimizer.noise_multiplier) == (2, 2, 1.0)
assert resumed.noise_multiplier == 4.0, "changed: the noise multiplier is restored"
scheduler.step(), restored.step()
print(f"after one more step: {optimizer.noise_multiplier} without the interruption, {resumed.noise_multiplier} with it")
assert (optimizer.noise_multiplier, resumed.noise_multiplier) == (0.5, 2.0)
END
