#!/usr/bin/env bash
# Version:  eeprivacy 0.0.5
# Expected: PrivateClampedMean(lower_bound, upper_bound), "bounding sensitivity with clamping", brings values within the bounds before
#           it adds noise for them, as PrivateClampedSum and the vector means do.
# Seen:     values are taken as they are, only the result is cut to the bounds: one reading of 20 among 100, at bounds 0 and 1, moves
#           the private mean from .50 to .69, and one of 1,000 to the upper bound in each run. The noise is for a change of .01.
# Hurts:    households whose use is out of the bounds, for which the clamping is there: at ε = 1 it shows in every published mean
#           whether they are in it, and the mean is not the clamped one.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check eeprivacy==0.0.5 numpy==2.4.6 scipy==1.17.1
env/bin/python -W ignore - <<'END'
import numpy as np
from eeprivacy.operations import PrivateClampedMean, PrivateClampedSum

np.random.seed(0)
bounds = {"lower_bound": 0.0, "upper_bound": 1.0}
usual, answers = np.full(100, 0.5), {}
for reading in (0.5, 20.0, 1000.0):
    values = usual.copy()
    values[0] = reading
    for operation in (PrivateClampedMean(**bounds), PrivateClampedSum(**bounds)):
        name = type(operation).__name__
        answers[name, reading] = np.array([operation.execute(values=values, epsilon=1.0) for _ in range(2000)])
    mean, total = answers["PrivateClampedMean", reading], answers["PrivateClampedSum", reading]
    print(f"99 readings of 0.5 and one of {reading:g}: private mean {mean.mean():.3f} ± {mean.std():.3f}, "
          f"private sum / 100 {total.mean() / 100:.3f}; means above 0.6: {(mean > 0.6).mean():.1%}")
shares = [(answers["PrivateClampedMean", reading] > 0.6).mean() for reading in (0.5, 20.0)]
assert abs(answers["PrivateClampedSum", 1000.0].mean() / 100 - 0.505) < 0.005
assert shares[0] < 0.001 and shares[1] > 0.99 and (answers["PrivateClampedMean", 1000.0] == 1).all(), "changed"
END
