#!/usr/bin/env bash
# Version:  flexclash 0.0.3 (with flexible-fl 0.7.0)
# Expected: trimmed_mean(trim_proportion=.2) of five clients leaves out the smallest and the largest value of each entry, and median
#           of four is the mean of the middle two.
# Seen:     the smallest is left out, the largest is not: of 1, 2, 3, 4, 5 the "trimmed mean" is 3.5. The median of an even number
#           is the larger of the middle two. Both are too large on average: ten clients around 0 give .18 and .13.
# Hurts:    who averages by it, or reports in a paper how well it works: every round shifts all weights upwards.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check flexclash==0.0.3 flexible-fl==0.7.0 tensorly==0.10.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import numpy as np
from flexclash.pool.defences import median, trimmed_mean

def aggregated(rule, values, **options):
    model = {"weights": [[np.array([value])] for value in values]}  # what an aggregator of FLEXible holds: a list of layers a client
    rule(model, None, **options)
    return float(model["aggregated_weights"][0][0])

seen = aggregated(trimmed_mean, [1.0, 2.0, 3.0, 4.0, 5.0], trim_proportion=0.2)
print(f"1, 2, 3, 4, 5 without 20% at each end: mean {seen}")
assert seen == 3.5, "changed"
rng = np.random.default_rng(0)
draws = rng.normal(size=(2000, 10))  # ten clients around 0
means = {rule.__name__: np.mean([aggregated(rule, draw) for draw in draws]) for rule in (trimmed_mean, median)}
print("ten clients around 0, mean of 2,000 rounds:", {name: round(float(mean), 3) for name, mean in means.items()})
assert aggregated(median, [1.0, 2.0, 3.0, 4.0]) == 3.0 and all(mean > 0.05 for mean in means.values()), "changed"
END
