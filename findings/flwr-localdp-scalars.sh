#!/usr/bin/env bash
# Version:  flwr 1.42.0 (the same in 1.41.0)
# Expected: LocalDpMod clips a client's update to norm 1 and adds noise to every parameter.
# Seen:     a parameter of shape (), such as a learned temperature, leaves the client exactly as it was trained: its change
#           of 4 is neither clipped nor noised. The same number as an array of shape (1,) is clipped, and gets noise.
# Hurts:    who states an epsilon for the whole model (CLIP's logit_scale, temperatures, gates, nn.PReLU-like scalars).
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check flwr==1.42.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import logging
import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.supercore.task_identity import TaskIdentity

logging.disable(logging.CRITICAL)
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1  # a deployed app has these
def record(weight, scalar):
    arrays = {"weight": np.full(1000, weight), "scalar": np.asarray(scalar), "row": np.full(1, scalar)}
    return ArrayRecord({name: Array(a.astype(np.float32)) for name, a in arrays.items()})

def train(message, context):
    return Message(content=RecordDict({"arrays": record(0.5, 5.0)}), reply_to=message)

sent = Message(content=RecordDict({"arrays": record(0.0, 1.0)}), dst_node_id=1, message_type="train")
mod = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=1.0, delta=1e-5)
reply = mod(sent, None, train).content["arrays"]
weight, scalar, row = (reply[name].numpy() for name in ("weight", "scalar", "row"))
print(f"trained 1.0 -> 5.0; sent as shape (): {float(scalar)}, as shape (1,): {row[0]:.2f}; noise elsewhere {weight.std():.2f}")
assert weight.std() > 4 and row[0] != 5.0, "the mod adds no noise at all"
assert float(scalar) == 5.0, "changed: the scalar is clipped or noised now"
END
