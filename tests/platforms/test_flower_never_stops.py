"""Whatever a Flower run holds, recording it ends no round."""

import logging

import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

from fedleak.platforms.flower import InProcess, recorded
from fedleak.recording import read

FACTS = {"lr": 0.1, "batch_size": 16, "optimiser": "sgd"}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def own_serialisation():
    """Arrays as somebody sends bfloat16, which Flower's ArrayRecord does not take."""
    state = network().bfloat16().state_dict()
    raw = {k: t.view(torch.int16).numpy().tobytes() for k, t in state.items()}
    return ArrayRecord({k: Array("bfloat16", tuple(state[k].shape), "raw.bfloat16", data) for k, data in raw.items()})


def run(folder, arrays=None, reply=None, metrics=None, rounds=2, shift=0):
    """Record some rounds of two clients; return how often one trained, and whether replies were aggregated."""
    trained, aggregated = [], []
    app = ClientApp()

    @app.train()
    def _train(message, context):
        trained.append(message.metadata.dst_node_id)
        sent = reply() if reply else {"arrays": message.content["arrays"]}
        content = RecordDict({**sent, "metrics": MetricRecord(metrics or {"num-examples": 16})})
        return Message(content, reply_to=message)

    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=2)
    strategy.aggregate_train = lambda _, replies: aggregated.extend(r.has_error() for r in replies) or (None, None)
    recorded(strategy, folder, **FACTS)
    configure, aggregate = strategy.configure_train, strategy.aggregate_train
    strategy.configure_train = lambda number, *rest: configure(number + shift, *rest)
    strategy.aggregate_train = lambda number, replies: aggregate(number + shift, replies)
    start = arrays() if arrays else ArrayRecord(network().state_dict())
    strategy.start(InProcess(app, 2), start, num_rounds=rounds)
    return len(trained), aggregated


def two_records():
    record = ArrayRecord(network().state_dict())
    return {"arrays": record, "control": record}


CASES = {
    "serialisation of one's own": {"arrays": own_serialisation},
    "reply of one's own serialisation": {"reply": lambda: {"arrays": own_serialisation()}},
    "two array records": {"reply": two_records},
    "no array record": {"reply": dict},
    "other names": {"reply": lambda: {"arrays": ArrayRecord(nn.Linear(2, 2).state_dict())}},
    "a key of another name": {"metrics": {"images": 16}},
    "infinitely many examples": {"metrics": {"num-examples": float("inf")}},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_no_round_ends_for_want_of_a_record(tmp_path, case, caplog):
    with caplog.at_level(logging.WARNING, "fedleak.platforms.flower"):
        assert run(tmp_path, **case) == (4, [False] * 4)
    assert caplog.text


def test_a_round_that_could_not_be_read_is_a_gap(tmp_path):
    run(tmp_path, rounds=1)
    run(tmp_path, arrays=own_serialisation, rounds=1, shift=1)
    with pytest.raises(ValueError, match=r"round 2, node 1 is not recorded: .*raw\.bfloat16"):
        read(tmp_path)
    assert len(read(tmp_path, gaps=True)) == 2
    run(tmp_path, arrays=own_serialisation, rounds=1)
    with pytest.raises(ValueError, match="no recorded round"):
        read(tmp_path, gaps=True)  # what an earlier run left there is not that round
