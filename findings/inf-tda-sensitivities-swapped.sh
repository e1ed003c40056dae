#!/usr/bin/env bash
# Version:  inf-tda 0.1 (with opendp 0.12.1)
# Expected: noise by the table of its documentation: for users with m tuples the L2 sensitivity under substitution is √2 m, which is
#           the change of a count when all m are the same tuple, and √(2 m) if the tuples of a user are distinct.
# Seen:     the two are exchanged: with distinct_tuples=False the noise is that of √(2 m), so that at m = 16 it is four times too
#           small, and the zero-concentrated ρ behind ε sixteen times as large: ε = 1 becomes 4.2. Whoever says that tuples are
#           distinct gets too much noise. At m = 1 the two are the same.
# Hurts:    who publishes trips or visits of people who can make the same one often, and says so: they get a quarter of the noise.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check inf-tda==0.1 opendp==0.12.1 numpy==2.4.6 pandas==3.0.0
env/bin/python -W ignore - <<'END'
import math
import numpy as np
import pandas as pd
from InfTDA.differential_privacy import get_rho_from_budget
from InfTDA.mechanism import inf_tda

index = pd.MultiIndex.from_product([range(4), range(5)])
data, epsilon, delta = pd.Series(np.full(20, 100000), index=index), 1.0, 1e-6
rho, spread = get_rho_from_budget((epsilon, delta)), {}
for m in (1, 16):
    for distinct in (True, False):
        noise = [inf_tda(data, (epsilon, delta), m, distinct_tuples=distinct).reindex(index) - data for _ in range(200)]
        # within a group of five the noise is shifted so that the group's total is kept: no shift in differences
        spread[m, distinct] = np.diff(np.array(noise).reshape(-1, 5), axis=1).std() / math.sqrt(2)
        documented = (math.sqrt(2 * m) if distinct else math.sqrt(2) * m) / math.sqrt(2 * rho / 2)  # half of ρ for each level
        spent = rho * (documented / spread[m, distinct]) ** 2
        print(f"m = {m}, distinct {distinct}: noise {spread[m, distinct]:.1f}, by the documentation {documented:.1f}: "
              f"epsilon {spent + 2 * math.sqrt(spent * math.log(1 / delta)):.2f}")
        assert m > 1 or abs(spread[m, distinct] / documented - 1) < 0.15
assert documented / spread[16, False] > 3.6 and spread[16, True] / spread[16, False] > 3.6, "changed"
END
