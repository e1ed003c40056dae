#!/usr/bin/env bash
# Version:  fluke-fl 0.8.1
# Expected: DataSplitter.label_dirichlet_skew(..., balanced=True) shares the samples out: each to one client, as without balancing and
#           in its other partitions, and each client gets the same number.
# Seen:     the numbers are the same, but what large clients have too many is thrown away, and small ones are filled up with
#           samples that other clients hold, or that they hold themselves: an eighth of the samples is lost, and as many are
#           there more than once.
# Hurts:    who compares federated with central training, or tests what a client's update says of samples that only it should have.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check fluke-fl==0.8.1 torch==2.11.0 numpy==2.3.5
env/bin/python -W ignore - <<'END'
import numpy as np
import torch
from fluke.data import DataSplitter

torch.manual_seed(0)
labels = torch.randint(10, (3000,))
for balanced in (False, True):
    np.random.seed(0)
    clients, _ = DataSplitter.label_dirichlet_skew(torch.zeros(3000, 1), labels, None, None, 5, beta=0.5, balanced=balanced)
    held = np.bincount(np.concatenate(clients), minlength=3000)
    shared = sum(sum(sample in client for client in map(set, clients)) > 1 for sample in range(3000))
    within = sum(len(client) - len(set(client)) for client in clients)
    print(f"balanced={balanced}: sizes {[len(client) for client in clients]}, lost {(held == 0).sum()}, "
          f"in two clients or more {shared}, repeated within a client {within}")
    assert ((held == 0).sum() > 200 and shared > 100) if balanced else (held == 1).all(), "changed"
END
