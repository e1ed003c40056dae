#!/usr/bin/env bash
# Version:  fedartml 0.1.34
# Expected: the "earth-movers" distance that create_clients reports of the clients' label distributions is 0 if all are the same, and
#           largest if no two clients share a class, as "jensen-shannon" and "hellinger" beside it.
# Seen:     SciPy's wasserstein_distance gets the shares of the classes as if they were samples, so that it compares the shares in
#           ascending order and forgets which class has which. Five clients without a common class: 0, less than for IID clients.
# Hurts:    who reports how far from IID a partition is, or orders partitions by it: the extreme one is called perfectly alike.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check fedartml==0.1.34 scikit-learn==1.8.0 numpy==2.4.6 pandas==3.0.0
env/bin/python -W ignore - <<'END'
import numpy as np
from fedartml import SplitAsFederatedData

labels, inputs = np.repeat(np.arange(10), 300), np.random.default_rng(0).random((3000, 2))
options = {"like IID": {"method": "dirichlet", "alpha": 1e6}, "skewed": {"method": "dirichlet", "alpha": 1},
           "no class in common": {"method": "percent_noniid", "percent_noniid": 100}}
earth, hellinger = {}, {}
for name, option in options.items():
    split = SplitAsFederatedData(random_state=0)
    _, samples, _, distances = split.create_clients(image_list=inputs, label_list=labels, num_clients=5, **option)
    held = [sorted(set(labels[client].tolist())) for client in samples["without_class_completion"]]
    distances = {key: float(value) for key, value in distances["without_class_completion"].items()}
    earth[name], hellinger[name] = distances["earth-movers"], distances["hellinger"]
    print(f"{name}: classes of the first two clients {held[:2]}, " + ", ".join(f"{k} {v:.3f}" for k, v in distances.items()))
assert hellinger["no class in common"] > 0.99 and hellinger["like IID"] < 0.02
assert earth["no class in common"] < 1e-6 < earth["like IID"] < earth["skewed"], "changed"
END
