#!/usr/bin/env bash
# Version:  opacus 1.6.0, torch 2.11.0
# Expected: make_private(poisson_sampling=False) trains on shuffled batches; epsilon is then computed for these, or a
#           warning says that it is not.
# Seen:     get_epsilon gives the same number to the last digit as with Poisson sampling, without a word. Its accountant
#           amplifies by sampling, which shuffled batches do not provide.
# Hurts:    who turns Poisson sampling off for batches of equal size, and publishes the epsilon.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check opacus==1.6.0 torch==2.11.0 numpy==2.4.6
env/bin/python - <<'END'
import warnings

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(256, 4), torch.arange(256) % 3)
epsilons, messages = [], []
for poisson_sampling in (True, False):
    engine, model = PrivacyEngine(), torch.nn.Linear(4, 3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, optimizer, loader = engine.make_private(
            module=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), data_loader=DataLoader(data, 16, shuffle=True),
            noise_multiplier=1.0, max_grad_norm=1.0, poisson_sampling=poisson_sampling)
        for x, y in (batch for _ in range(3) for batch in loader):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        epsilons.append(engine.get_epsilon(1e-5))
    messages += [str(warning.message).lower() for warning in caught if not poisson_sampling]
print(f"epsilon with Poisson sampling {epsilons[0]:.4f}, with shuffled batches {epsilons[1]:.4f}")
assert epsilons[0] == epsilons[1], "changed: epsilon depends on the sampling"
assert not any("poisson" in m or "shuffl" in m or "amplif" in m for m in messages), "changed: a warning says so"
END
