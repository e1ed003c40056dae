"""The claims of Flower's mods and strategies, with the real package: what a round bears out, and nothing more."""

import logging
import math

import pytest
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp import strategy as flower
from torch import nn

from fedleak.platforms.flower import InProcess, recorded
from fedleak.privacy.claim import gaussian_epsilon
from fedleak.recording import read

FACTS = {"lr": 0.1, "batch_size": 8, "optimiser": "sgd"}


def claimed(parts):
    """The one ε that all contributions claim."""
    (epsilon,) = {part.privacy.claimed for part in parts}
    return epsilon


def run(folder, make, numbers=(8, 8), mods=(), rounds=1, key="num-examples", state=None, lost=(), **facts):
    """Let clients with these numbers of examples train, and return the records; messages to `lost` never arrive."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def _train(message, context):
        sent = message.content["arrays"].to_torch_state_dict()
        moved = {name: tensor + (1 if tensor.dim() == 0 else 0.1) for name, tensor in sent.items()}
        number = numbers[context.node_config["partition-id"]]
        content = {"arrays": ArrayRecord(moved), "metrics": MetricRecord({key: number})}
        return Message(RecordDict(content), reply_to=message)

    grid = InProcess(app, len(numbers), lambda message: message.metadata.dst_node_id in lost)
    options = {"fraction_evaluate": 0.0, "min_train_nodes": len(numbers), "min_available_nodes": len(numbers)}
    strategy = make(options, len(numbers))
    strategy = recorded(strategy, folder, **{**FACTS, **facts}) if folder else strategy
    strategy.start(grid, ArrayRecord(state or nn.Linear(4, 3).state_dict()), num_rounds=rounds)
    return read(folder) if folder else []


def fixed(options, clients, inner=flower.FedAvg, kind=flower.DifferentialPrivacyServerSideFixedClipping):
    return kind(inner(**options), 1.0, 1.0, clients)


@pytest.mark.parametrize(("side", "clients"), [("Server", 12), ("Client", 20)])
def test_adaptive_clipping_claims_the_multiplier_that_was_asked_for(tmp_path, side, clients):
    kind = getattr(flower, f"DifferentialPrivacy{side}SideAdaptiveClipping")
    mods = [adaptiveclipping_mod] if side == "Client" else []
    parts = run(tmp_path, lambda options, n: kind(flower.FedAvg(**options), 1.0, n, 1.0), (8,) * clients, mods)
    assert claimed(parts) == pytest.approx(4.377, abs=0.001)


@pytest.mark.parametrize(("examples", "key"), [((900, 100), "num-examples"), ((1, 1, 1, 7), "weight")])
def test_the_client_with_the_largest_weight_bounds_the_claim(tmp_path, examples, key):
    parts = run(tmp_path, lambda o, n: fixed({**o, "weighted_by_key": key}, n), examples, key=key)
    most = len(examples) * max(examples) / sum(examples)
    assert claimed(parts) == pytest.approx(gaussian_epsilon(most, 1e-5))


@pytest.mark.parametrize("inner", [flower.FedMedian, flower.FedAdam])
def test_what_is_no_weighted_mean_bounds_no_client(tmp_path, inner):
    (claim,) = {part.privacy for part in run(tmp_path, lambda o, n: fixed(o, n, inner), (8,) * 5)}
    assert math.isinf(claim.claimed)
    assert inner.__name__ in claim.by


@pytest.mark.parametrize("mods", [[fixedclipping_mod], []], ids=["clipped", "not clipped"])
def test_clients_that_do_not_clip_have_no_bound(tmp_path, mods):
    kind = flower.DifferentialPrivacyClientSideFixedClipping
    parts = run(tmp_path, lambda o, n: kind(flower.FedAvg(**o), 1.0, 0.05, n), mods=mods)
    assert {part.privacy.clipped for part in parts} == {bool(mods)}
    assert {math.isinf(part.privacy.claimed) for part in parts} == {not mods}


@pytest.mark.parametrize(
    ("key", "named", "examples"), [("samples", None, 9), ("n", "n", 9), ("n", 5, 5), ("num_examples", None, 9)]
)
def test_samples_are_the_metric_that_weights_or_the_one_named(tmp_path, key, named, examples):
    facts = {} if named is None else {"examples": named}
    parts = run(tmp_path, lambda o, _: flower.FedAvg(**o, weighted_by_key=key), (9, 9), key=key, **facts)
    assert [part.samples for part in parts] == [examples] * 2


def test_an_invalid_sample_weight_is_a_gap_in_the_record(tmp_path, caplog):
    with (
        caplog.at_level(logging.WARNING, "fedleak.platforms.flower"),
        pytest.raises(ValueError, match="is not recorded"),
    ):
        run(tmp_path, lambda o, _: flower.FedAvg(**o, weighted_by_key="loss"), (2.5, 0.5), key="loss")
    assert "the metric 'loss', 2.5, is no number of samples: pass examples=..." in caplog.text
