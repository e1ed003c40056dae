#!/usr/bin/env bash
# Version:  flexclash 0.0.3 (with flexible-fl 0.7.0)
# Expected: trimmed_mean(trim_proportion=.2) of five clients leaves out the smallest and the largest value of each entry, and median
#           of four is the mean of the middle two.
# Seen:     the smallest is left out, the largest never is: of 1, 1, 1, 1, 100 the "trimmed mean" is 25.75, farther off than the
#           plain mean. The median of an even number is the larger of the middle two. So both are too large for honest clients, too.
# Hurts:    who defends a federation by it, or reports in a paper how well it defends: it holds against one sign alone.
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

for outlier in (-100.0, 100.0):
    for honest, share in ((4, 0.2), (9, 0.1)):
        seen = aggregated(trimmed_mean, [outlier] + [1.0] * honest, trim_proportion=share)
        print(f"{honest} clients with 1 and one with {outlier:g}: mean without {share:.0%} at each end {seen:.2f}")
        assert seen == (1.0 if outlier < 0 else (3.0 + 100) / 4 if honest == 4 else 12.0), "changed"
rng = np.random.default_rng(0)
draws = rng.normal(size=(2000, 10))  # ten honest clients around 0
means = {rule.__name__: np.mean([aggregated(rule, draw) for draw in draws]) for rule in (trimmed_mean, median)}
print("ten honest clients around 0, mean of 2,000 rounds:", {name: round(float(mean), 3) for name, mean in means.items()})
assert aggregated(median, [1.0, 2.0, 3.0, 4.0]) == 3.0 and all(mean > 0.05 for mean in means.values()), "changed"
END
