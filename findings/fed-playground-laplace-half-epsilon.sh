#!/usr/bin/env bash
# Version:  fed-playground 0.2.1
# Expected: LaplaceDPEncryption(epsilon, clip=True), "so the DP guarantee is actually met", changes the chance of what a party sends by a
#           factor of exp(ε) at most when its update is replaced by any other.
# Seen:     updates are cut to the L1 norm `sensitivity`, so that two of them can be twice as far apart, and the noise is that of one
#           `sensitivity`: the factor is exp(2 ε).
# Hurts:    who plots accuracy against ε, or compares it with a library that counts the distance: each ε is half the true one.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check fed-playground==0.2.1 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import math
import numpy as np
from fed_playground.src.encryption import LaplaceDPEncryption

for epsilon in (0.5, 1.0, 2.0):
    scheme = LaplaceDPEncryption(epsilon, sensitivity=1.0, clip=True, seed=0)
    sent = {update: np.array([scheme.encrypt(np.array([update, 0.0]))[0] for _ in range(200000)]) for update in (-5.0, 5.0)}
    share = {update: (values > 1).mean() for update, values in sent.items()}
    loss = math.log(share[5.0] / share[-5.0])
    print(f"epsilon {epsilon}: more than 1 is sent with chance {share[5.0]:.4f} for 5, {share[-5.0]:.4f} for -5: loss {loss:.2f}")
    assert abs(loss - 2 * epsilon) < 0.1, "changed"
END
