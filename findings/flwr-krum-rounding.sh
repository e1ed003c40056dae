#!/usr/bin/env bash
# Version:  flwr 1.42.0 (the same in 1.41.0)
# Expected: Krum selects the client whose distances to its nearest neighbours are smallest.
# Seen:     with 10 million float32 weights of deviation 0.05 and updates a thousandth of that, distances are computed as
#           |x|^2 + |y|^2 - 2xy in float32: their rounding error is as large as they are. Of five rounds Krum selects the
#           right one of ten clients in few, and some squared distances are negative.
# Hurts:    who fine-tunes a ResNet or a transformer with Krum, Multi-Krum or Bulyan: the selection is rounding noise.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check flwr==1.42.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy.multikrum import compute_distances, select_multikrum

right = negative = 0
for seed in range(5):
    rng = np.random.default_rng(seed)
    weights = rng.normal(0, 0.05, 10**7).astype(np.float32)
    # Client k strays from a common direction by 1 + 0.3 k: client 0 is the most central by far.
    common = rng.normal(0, 1, 10**7).astype(np.float32)
    updates = [5e-5 * (common / 2 + rng.normal(0, 1 + 0.3 * k, 10**7).astype(np.float32)) for k in range(10)]
    models = [weights + update for update in updates]
    exact = np.array([[float(np.square(a - b, dtype=np.float64).sum()) for b in models] for a in models])
    scores = np.sort(exact, axis=1)[:, 1:8].sum(axis=1)  # n - f - 2 = 7 nearest others
    contents = [RecordDict({"arrays": ArrayRecord([m]), "metrics": MetricRecord({"num-examples": 1})}) for m in models]
    (chosen,) = select_multikrum(contents, num_malicious_nodes=1, num_nodes_to_select=1)
    number = next(k for k, content in enumerate(contents) if content is chosen)
    distances = compute_distances([content["arrays"] for content in contents])
    right += number == scores.argmin()
    negative += int((distances < 0).sum())
    print(f"exact scores {np.sort(scores)[:3].round(3)}, best client {scores.argmin()}, Krum selects {number}; "
          f"largest error of a squared distance {np.abs(distances - exact).max():.3f} of {np.median(exact):.3f}")
assert right <= 3 and negative > 0, f"changed: {right} of 5 right, {negative} negative squared distances"
END
