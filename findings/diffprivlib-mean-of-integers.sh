#!/usr/bin/env bash
# Version:  diffprivlib 0.6.6
# Expected: tools.mean(table, axis=0) of whole numbers gives real numbers with noise, as its documentation says ("for integer
#           inputs, the default is float64"), and as it does for the same table with a decimal point.
# Seen:     each column's mean is cut to the whole number below, or to 0 if the table is of truth values; dtype=float changes
#           nothing. So is the variance (the deviation is the root of what is left). Without axis the results are right.
# Hurts:    who releases private means of counts, ages or yes-or-no answers: the error is up to 1, however large ε is.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check diffprivlib==0.6.6 scikit-learn==1.5.2 numpy==2.3.5
env/bin/python -W ignore - <<'END'
import numpy as np
from diffprivlib import tools

table = np.random.default_rng(0).integers(0, 5, (20000, 3))
private = {"epsilon": 100.0, "axis": 0, "random_state": 0}
seen = {}
tables = {"whole numbers": (table, 4), "with a decimal point": (table.astype(float), 4), "larger than 1": (table > 1, 1)}
for name, (entries, top) in tables.items():
    seen[name] = tools.mean(entries, bounds=(0, top), dtype=float, **private)
    print(f"{name}: mean {entries.mean(0).round(3)}, private mean {seen[name].round(3)}")
deviation = tools.std(table, bounds=(0, 4), **private)
print(f"whole numbers: deviation {table.std(0).round(3)}, private deviation {deviation.round(3)}")
assert np.allclose(seen["with a decimal point"], table.mean(0), atol=0.01)
assert seen["whole numbers"].dtype == int and (seen["whole numbers"] == 1).all(), "changed"  # not 2.00
assert not seen["larger than 1"].any(), "changed"  # not 0.60
END
