#!/usr/bin/env bash
# Version:  dp-accelerator 0.1.0, dp-accounting 0.6.0
# Expected: DPSGDAccountant.get_rdp_curve gives the Rényi divergences behind get_epsilon, which agrees with dp-accounting.
# Seen:     the curve is order x rate² / (2 noise²), the formula of the Gaussian mechanism with the rate squared, which is no
#           bound: without sampling it is right, but at noise 1 and rate .01 the true values are 2.2 times the curve's at order 8,
#           and 7,000 times at order 32. The ε that the curve gives, 1.3, is below the exact one, 1.8.
# Hurts:    who adds the curve to other mechanisms' or converts it to ε by another formula: the reported budget is too small.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check dp-accelerator==0.1.0 dp-accounting==0.6.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import dp_accounting
from dp_accounting import pld, rdp
from dp_accelerator import DPSGDAccountant

noise, steps, delta = 1.0, 1000, 1e-5
for batch in (60000, 600):
    fast = DPSGDAccountant(noise, batch, 60000)
    curve = fast.get_rdp_curve(steps)
    orders = [order for order in curve if order == int(order)]
    event = dp_accounting.PoissonSampledDpEvent(batch / 60000, dp_accounting.GaussianDpEvent(noise))
    right, usual, exact = rdp.RdpAccountant(orders), rdp.RdpAccountant(), pld.PLDAccountant()
    for accountant in (right, usual, exact):
        accountant.compose(event, steps)
    factors = dict(zip(orders, right._rdp / [curve[order] for order in orders]))
    said = rdp.compute_epsilon(list(curve), list(curve.values()), delta)[0]
    print(f"rate {batch / 60000}: dp-accounting's curve over this one at order 8: {factors[8]:.3f}, at 32: {factors[32]:.1f}; "
          f"epsilon of its curve {said:.3f}, get_epsilon {fast.get_epsilon(steps, delta):.3f}, "
          f"dp-accounting {usual.get_epsilon(delta):.3f}, exact {exact.get_epsilon(delta):.3f}")
    if batch == 60000:
        assert all(abs(factor - 1) < 1e-6 for factor in factors.values())
    else:
        assert said < 0.9 * exact.get_epsilon(delta) and factors[32] > 1000, "changed"
END
