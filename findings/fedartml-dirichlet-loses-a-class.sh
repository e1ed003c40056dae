#!/usr/bin/env bash
# Version:  fedartml 0.1.34
# Expected: create_clients with method "dirichlet", the default, gives each sample to one client, whatever integers the labels are:
#           "summing the number of examples of each client results in the same number of total examples".
# Seen:     classes are looked up as 0 to (number of classes - 1). With labels 1 to 10, as in EMNIST's letters, which begin at 1, or
#           a table's own codes, all samples of class 10 are in no client; with -1 and 1, those of -1. "percent_noniid" keeps them.
# Hurts:    who partitions such data: a tenth or half of it is gone without a word, and no client has ever seen the class.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check fedartml==0.1.34 scikit-learn==1.8.0 numpy==2.4.6 pandas==3.0.0
env/bin/python -W ignore - <<'END'
import numpy as np
from fedartml import SplitAsFederatedData

rng, lost = np.random.default_rng(0), {}
inputs = rng.random((3000, 2))
for name, classes in {"0 to 9": range(10), "1 to 10": range(1, 11), "-1 and 1": (-1, 1)}.items():
    labels = rng.choice(list(classes), 3000)
    for option in ({"method": "dirichlet", "alpha": 10}, {"method": "percent_noniid", "percent_noniid": 50}):
        split = SplitAsFederatedData(random_state=0)
        samples = split.create_clients(image_list=inputs, label_list=labels, num_clients=4, **option)[1]["without_class_completion"]
        missing = np.setdiff1d(np.arange(3000), np.concatenate(samples))
        lost[name, option["method"]] = len(missing), sorted(set(labels[missing].tolist()))
        print(f"labels {name}, {option['method']}: in no client {len(missing)} of 3000, "
              f"all of the classes {lost[name, option['method']][1]}")
assert all(count == 0 for (name, method), (count, _) in lost.items() if name == "0 to 9" or method == "percent_noniid")
assert lost["1 to 10", "dirichlet"][1] == [10] and lost["-1 and 1", "dirichlet"][1] == [-1], "changed"
END
