#!/usr/bin/env bash
# Version:  fl4health 0.4.2, torch 2.6.0, Python 3.10 (the only one that it allows)
# Expected: A client of client-level differential privacy sends its weights after training minus those before, clipped.
# Seen:     in its first round on a CPU it sends zeros. NumpyClippingClient keeps the initial weights as
#           tensor.cpu().numpy() of the model itself: they share its memory, and training changes them too. On a GPU
#           .cpu() makes a copy. From the second round on the update is right.
# Hurts:    who simulates client-level privacy on CPUs: the first round adds noise alone, the clipping bit says that every
#           norm is within the bound (adaptive clipping lowers it), and the accountant charges for the round.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON310:-python3.10}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check --no-deps fl4health==0.4.2
env/bin/python -m pip install -q --disable-pip-version-check torch==2.6.0 torchvision==0.21.0 torchmetrics==1.9.0 flwr==1.18.0 \
    numpy==1.26.4 pandas==2.3.3 scikit-learn==1.5.0 opacus==1.6.0 dp-accounting==0.4.4 wandb==0.31.0 peft==0.21.2
env/bin/python -W ignore - <<'END'
from pathlib import Path

import numpy as np
import torch
from fl4health.clients.clipping_client import NumpyClippingClient
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = DataLoader(TensorDataset(torch.randn(32, 5), torch.arange(32) % 3), 8)


class Client(NumpyClippingClient):
    get_model = lambda self, config: torch.nn.Linear(5, 3)
    get_data_loaders = lambda self, config: (data, data)
    get_optimizer = lambda self, config: torch.optim.SGD(self.model.parameters(), 0.1)
    get_criterion = lambda self, config: torch.nn.CrossEntropyLoss()


client = Client(Path(), [], torch.device("cpu"))
received = [tensor.numpy().copy() for tensor in torch.nn.Linear(5, 3).state_dict().values()]
norms = []
for number in (1, 2):
    config = {"current_server_round": number, "local_steps": 4, "adaptive_clipping": True}
    *update, bit = client.fit([*received, np.array(10.0)], config)[0]
    moved = [tensor.numpy() - old for tensor, old in zip(client.model.state_dict().values(), received)]
    norms.append([sum(float((array**2).sum()) for array in arrays) ** 0.5 for arrays in (update, moved)])
    print(f"round {number}: norm of the sent update {norms[-1][0]:.4f}, of the weights' change {norms[-1][1]:.4f}, bit {bit}")
assert norms[0][0] == 0 < norms[0][1], "changed: the first update is no longer zero"
assert abs(norms[1][0] - norms[1][1]) < 1e-5, "changed: the second update differs"
END
