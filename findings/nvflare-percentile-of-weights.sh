#!/usr/bin/env bash
# Version:  nvflare 2.9.0
# Expected: PercentilePrivacy, "only abs diff greater than this percentile is updated", refuses a client that sends its whole
#           weights, or takes their difference to the model received.
# Seen:     it takes the weights themselves for differences (data kind WEIGHTS, which it filters if nothing else is asked
#           for): after four steps every weight is cut to at most 4 x 0.01, and the smallest tenth is set to 0.
# Hurts:    who adds the filter to a client that sends whole models: the global model is ruined, not made private.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check nvflare==2.9.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy

weights = np.random.default_rng(0).normal(0, 0.3, (10, 64)).astype(np.float32)
sent = DXO(DataKind.WEIGHTS, data={"fc.weight": weights.copy()})
sent.set_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND, 4)
filtered = PercentilePrivacy().process_dxo(sent, Shareable(), FLContext()).data["fc.weight"]
print(f"largest weight {np.abs(weights).max():.2f} -> {np.abs(filtered).max():.2f}, "
      f"mean size {np.abs(weights).mean():.3f} -> {np.abs(filtered).mean():.3f}, zeros {np.mean(filtered == 0):.0%}")
assert np.abs(weights).max() > 1 and np.isclose(np.abs(filtered).max(), 0.04), "changed"
END
