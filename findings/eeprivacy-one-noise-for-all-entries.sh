#!/usr/bin/env bash
# Version:  eeprivacy 0.0.5
# Expected: PrivateVectorClampedMeanLaplace adds noise of its own to each entry of the mean vector, as its Gaussian twin does.
# Seen:     one draw of Laplace noise is added to all entries: each difference of two of them is that of the exact means, to the last
#           digit, at every ε. A load shape is published exactly, shifted by one number.
# Hurts:    everyone whose hourly use is in such a mean: where the total, or one hour, is known from elsewhere, all of it is exact.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check eeprivacy==0.0.5 numpy==2.4.6 scipy==1.17.1
env/bin/python -W ignore - <<'END'
import numpy as np
from eeprivacy.operations import PrivateVectorClampedMeanGaussian, PrivateVectorClampedMeanLaplace

np.random.seed(0)
days = np.random.default_rng(0).random((500, 24))  # 24 hours of 500 households
exact, spread = days.mean(0), {}
for operation in (PrivateVectorClampedMeanLaplace, PrivateVectorClampedMeanGaussian):
    private = operation(lower_bound=0.0, upper_bound=1.0, k=24, N=500)
    noise = np.array([private.execute(vectors=days, epsilon=0.1, delta=1e-6) - exact for _ in range(500)])
    spread[operation] = noise[:, 0].std(), np.diff(noise, axis=1).std()
    print(f"{operation.__name__}, epsilon 0.1: noise of an hour {spread[operation][0]:.2g}, "
          f"of the difference of two hours {spread[operation][1]:.2g}")
assert spread[PrivateVectorClampedMeanGaussian][1] > spread[PrivateVectorClampedMeanGaussian][0] > 0.1
assert spread[PrivateVectorClampedMeanLaplace][0] > 0.1 and spread[PrivateVectorClampedMeanLaplace][1] < 1e-12, "changed"
END
