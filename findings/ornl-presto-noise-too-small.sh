#!/usr/bin/env bash
# Version:  ornl-presto 0.1.29 (with dp-accounting 0.6.0)
# Expected: applyDPGaussian adds noise of √(2 ln(1.25/δ)) sensitivity / ε, as the library's own metrics compute it, and hadamard_response
#           reports a category with chances that differ by a factor of exp(ε) at most.
# Seen:     the first takes √(ln(1.25/δ) sensitivity) / ε: without the 2, and the root of the sensitivity. At ε = 1 a query of sensitivity
#           10 costs 4, one of 100 costs 16. The second keeps the value with exp(ε) / (exp(ε) + 1), the chance of two categories,
#           whatever their number, and draws from all otherwise: with ten categories ε = 1 costs 3.3, ε = .5 costs 2.9.
# Hurts:    who privatises data by them, or follows its recommendation: "gaussian" looks more useful than "laplace", as it has less noise.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check ornl-presto==0.1.29 dp-accounting==0.6.0 opacus==1.6.0 torch==2.11.0 \
    gpytorch==1.15.2 bayesian-optimization==3.4.0 scikit-learn==1.8.0 numpy==2.4.6 scipy==1.17.1 pandas==3.0.0 matplotlib==3.10.8 seaborn==0.13.2
env/bin/python -W ignore - <<'END'
import math
import dp_accounting
import numpy as np
import torch
from dp_accounting import pld
from ornl_presto import applyDPGaussian, hadamard_response
from ornl_presto.metrics import estimate_noise_scale

np.random.seed(0)
torch.manual_seed(0)
delta, spent = 1e-5, {}
for sensitivity in (1.0, 10.0, 100.0):
    noise = np.std(applyDPGaussian(np.zeros(100000), sensitivity=sensitivity, epsilon=1.0, delta=delta))
    accountant = pld.PLDAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(noise / sensitivity))
    spent[sensitivity] = accountant.get_epsilon(delta)
    print(f"Gaussian, epsilon 1, sensitivity {sensitivity:g}: noise {noise:.2f}, by the library's own estimate "
          f"{estimate_noise_scale(sensitivity, 1.0, 'gaussian', delta):.2f}: epsilon {spent[sensitivity]:.2f}")
values, loss = torch.arange(400000) % 10, {}
for epsilon in (0.5, 1.0):
    kept = float((hadamard_response(values, epsilon) == values).float().mean())
    loss[epsilon] = math.log(kept / ((1 - kept) / 9))
    print(f"Hadamard response, ten categories, epsilon {epsilon}: value kept in {kept:.1%}, epsilon {loss[epsilon]:.2f}")
assert spent[10.0] > 3 and spent[100.0] > 15, "changed"
assert loss[0.5] > 2.5 and loss[1.0] > 3, "changed"
END
