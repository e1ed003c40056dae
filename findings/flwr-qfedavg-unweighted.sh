#!/usr/bin/env bash
# Version:  flwr 1.42.0 (the same in 1.41.0)
# Expected: "When set to 0, q-FedAvg is equivalent to FedAvg" (docstring of QFedAvg), whose mean is weighted by examples.
# Seen:     QFedAvg(q=0) ignores the numbers of examples: of models 1 (900 examples) and 0 (100) it makes 0.5, FedAvg 0.9.
# Hurts:    who compares fairness at q > 0 with the baseline q = 0: the baseline is another algorithm on unbalanced clients.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check flwr==1.42.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import logging
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, QFedAvg
from flwr.supercore.task_identity import TaskIdentity

logging.disable(logging.CRITICAL)
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1  # a deployed app has these
class Grid:
    def get_node_ids(self):
        return [1, 2]

def model(value):
    return ArrayRecord({"weight": Array(np.full(3, value, np.float32))})

def reply(node, value, examples, loss):
    sent = Message(content=RecordDict({"arrays": model(0.0)}), dst_node_id=node, message_type="train")
    metrics = MetricRecord({"num-examples": examples, "train_loss": loss})
    return Message(content=RecordDict({"arrays": model(value), "metrics": metrics}), reply_to=sent)

means = []
for strategy in (FedAvg(), QFedAvg(client_learning_rate=0.1, q=0.0)):
    strategy.configure_train(1, model(0.0), ConfigRecord(), Grid())
    arrays, _ = strategy.aggregate_train(1, [reply(1, 1.0, 900, 1.0), reply(2, 0.0, 100, 2.0)])
    means.append(float(arrays["weight"].numpy()[0]))
print(f"FedAvg {means[0]:.2f}, QFedAvg(q=0) {means[1]:.2f}")
assert abs(means[0] - 0.9) < 1e-6 and abs(means[1] - 0.5) < 1e-6, "changed"
END
