#!/usr/bin/env bash
# Version:  flwr 1.42.0, xgboost 3.2.0 (as xgboost-cpu)
# Expected: FedXgbBagging puts all new trees of all clients into the global model, each in its class: of ten digits, ten trees a
#           client and round; of two classes and three boosting rounds a client, three trees.
# Seen:     it takes one tree a client and round and drops the others without a word (the very first reply alone is kept whole).
#           With ten digits these are the trees of digit 0: all others have one tree each, from one client, whatever the round.
# Hurts:    who boosts federated trees of more than two classes, or several trees a round: nearly all that clients learn is lost,
#           and the global model is worse than what a client gets on its own (65 % against 77 % of digits).
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check flwr==1.42.0 xgboost-cpu==3.2.0 scikit-learn==1.8.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import json
import logging
import numpy as np
import xgboost
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedXgbBagging
from flwr.supercore.task_identity import TaskIdentity
from sklearn.datasets import load_digits

logging.disable(logging.CRITICAL)
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1  # a deployed app has these
images, digits = load_digits(return_X_y=True)  # in a random order already

def reply(node, model):
    arrays = ArrayRecord([np.frombuffer(model, np.uint8)])
    sent = Message(content=RecordDict({"arrays": arrays}), dst_node_id=node, message_type="train")
    return Message(content=RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 400})}), reply_to=sent)

def federation(labels, boosts, rounds, settings):
    settings = {"max_depth": 3, "nthread": 1} | settings
    clients = [xgboost.DMatrix(images[k:k + 400], labels[k:k + 400]) for k in (0, 400, 800)]
    strategy, model = FedXgbBagging(), None
    strategy.current_bst = b""  # the empty model of the start, as configure_train notes it
    for number in range(1, rounds + 1):
        replies = []
        for node, data in enumerate(clients, 1):
            trained = xgboost.train(settings, data, boosts, xgb_model=model)
            replies.append(reply(node, bytes(trained[trained.num_boosted_rounds() - boosts:].save_raw("json"))))  # new trees
        arrays, _ = strategy.aggregate_train(number, replies)
        model = xgboost.Booster(settings, model_file=bytearray(arrays["0"].numpy().tobytes()))
    trees = np.bincount(json.loads(model.save_raw("json"))["learner"]["gradient_booster"]["model"]["tree_info"])
    shares = []
    for judged in (model, xgboost.train(settings, clients[0], boosts * rounds)):
        guesses = judged.predict(xgboost.DMatrix(images[1200:]))
        shares.append(np.mean((guesses.argmax(1) if guesses.ndim > 1 else guesses > 0.5) == labels[1200:]))
    print(f"trees of each class {trees.tolist()}, right {shares[0]:.0%}; a client on its own {shares[1]:.0%}")
    return trees.tolist(), *shares

trees, shared, alone = federation(digits, 1, 10, {"objective": "multi:softprob", "num_class": 10})
assert trees == [30] + [1] * 9 and shared < alone - 0.1, "changed"  # not 30 each
trees, *_ = federation(digits > 4, 3, 10, {"objective": "binary:logistic"})
assert trees == [32], "changed"  # not 90
END
