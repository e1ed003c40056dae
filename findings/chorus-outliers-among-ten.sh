#!/usr/bin/env bash
# Version:  chorus-fl 0.1.0
# Expected: filter_outlier_deltas, at its threshold of 3 (the documented `--outlier-threshold 3.0`), drops the one client of ten
#           whose update is a thousand times as large as the others.
# Seen:     among ten clients or fewer nothing is ever dropped: the outlier is part of the mean and of the deviation, so that its
#           score cannot exceed (n - 1) / sqrt(n), 2.85 for ten. From eleven on it is dropped; two such clients of twenty are not.
# Hurts:    small federations, or rounds of few clients: the protection is switched on and can do nothing, whatever is sent.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check chorus-fl==0.1.0 torch==2.11.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import torch
from chorus.server.aggregation import filter_outlier_deltas

torch.manual_seed(0)
kept = {}
for clients, outliers in ((5, 1), (8, 1), (10, 1), (11, 1), (20, 1), (20, 2)):
    sizes = [1000.0 if k < outliers else 1.0 for k in range(clients)]
    updates = [{"0.lora_A.weight": size * torch.randn(4, 50), "0.lora_B.weight": size * torch.randn(50, 4)} for size in sizes]
    kept[clients, outliers] = len(filter_outlier_deltas(updates))
    print(f"{clients} clients, {outliers} of them a thousand times too large: {clients - kept[clients, outliers]} dropped")
assert all(kept[n, 1] == (n if n <= 10 else n - 1) for n in (5, 8, 10, 11, 20)) and kept[20, 2] == 20, "changed"
END
