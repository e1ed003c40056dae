#!/usr/bin/env bash
# Version:  torchmetrics 1.9.0, torch 2.11.0
# Expected: merge_state puts another client's counts into a metric, and the next compute() gives the value of both, as after
#           update().
# Seen:     if compute() was called before, for a client's own log, the next one repeats that value: the merged counts are there,
#           but merge_state does not discard the stored result. Without the first compute() the value is that of both.
# Hurts:    who evaluates federated clients by merging their metrics: the federation's accuracy is that of the first client.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check torchmetrics==1.9.0 torch==2.11.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import torch
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC

def client(metric, right):
    labels = torch.arange(100) % 2
    guesses = labels.float()
    guesses[right:] = 1 - guesses[right:]
    metric.update(guesses, labels)
    return metric

for kind in (BinaryAccuracy, BinaryAUROC):
    values = {}
    for logs in (False, True):
        first, second = client(kind(), 90), client(kind(), 10)
        if logs:
            alone = first.compute().item(), second.compute().item()
        first.merge_state(second)
        values[logs] = first.compute().item()
    fresh = kind()
    fresh.merge_state(first)  # the counts of both are in it
    print(f"{kind.__name__}: clients {alone[0]:.2f} and {alone[1]:.2f}, merged {values[False]:.2f}, merged after their own logs "
          f"{values[True]:.2f}, that one merged into a fresh metric {fresh.compute().item():.2f}")
    assert values[True] == alone[0] != values[False] == fresh.compute().item(), "changed"
END
