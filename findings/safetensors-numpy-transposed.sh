#!/usr/bin/env bash
# Version:  safetensors 0.8.0, numpy 2.4.6
# Expected: safetensors.numpy.save_file saves a transposed array as it looks, or refuses it; safetensors.torch refuses a
#           transposed tensor ("non contiguous").
# Seen:     it writes the array's memory beside the view's shape: the file holds the entries in another order, without an error.
# Hurts:    who stores updates, or weights that another framework keeps as [in, out], as weight.T: they come back
#           scrambled, and an attack, an average or a fine-tuning goes on with them.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check safetensors==0.8.0 numpy==2.4.6
env/bin/python - <<'END'
import numpy as np
from safetensors.numpy import load_file, save_file

weight = np.arange(6, dtype=np.float32).reshape(2, 3)
for name, array in {"as it is": weight, "transposed": weight.T, "copied": np.ascontiguousarray(weight.T)}.items():
    save_file({"weight": array}, "update.safetensors")
    back = load_file("update.safetensors")["weight"]
    print(f"{name}: {array.tolist()} comes back as {back.tolist()}")
    assert array.shape == back.shape
    assert np.array_equal(array, back) == (name != "transposed"), f"changed: {name}"
END
