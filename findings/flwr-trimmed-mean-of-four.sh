#!/usr/bin/env bash
# Version:  flwr 1.42.0 (the same in 1.41.0)
# Expected: FedTrimmedAvg, with its beta of 0.2 "cut off of both tails", leaves out the one of four models that diverged.
# Seen:     0.2 x 4 is rounded down to 0: nothing is cut, the strategy is the plain, unweighted mean, and says nothing.
#           With five clients the diverged model is cut. (beta "too large" is an error; too small for the round is not.)
# Hurts:    small federations (four hospitals), and rounds in which a fifth client drops out: the protection is off.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check flwr==1.42.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import logging
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedTrimmedAvg
from flwr.supercore.task_identity import TaskIdentity

logging.disable(logging.CRITICAL)
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1  # a deployed app has these
def reply(node, value):
    arrays = ArrayRecord({"weight": Array(np.full(3, value, np.float32))})
    sent = Message(content=RecordDict({"arrays": arrays}), dst_node_id=node, message_type="train")
    return Message(content=RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 10})}), reply_to=sent)

means = {}
for clients in (4, 5):
    replies = [reply(k, 100.0 if k == clients else 1.0) for k in range(1, clients + 1)]
    arrays, _ = FedTrimmedAvg().aggregate_train(1, replies)
    means[clients] = float(arrays["weight"].numpy()[0])
print(f"models 1, ..., 1 and 100; trimmed mean of four: {means[4]:.2f}, of five: {means[5]:.2f}")
assert means == {4: 25.75, 5: 1.0}, "changed"
END
