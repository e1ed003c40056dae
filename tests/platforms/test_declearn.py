"""declearn's own client round, with the real package: `make test-platforms`."""

import pytest
import torch
from federation import RATE, ROUNDS, check_labels, digits, frozen, network, readers
from torch.utils.data import TensorDataset

pytest.importorskip("declearn")
from declearn.aggregator import AveragingAggregator, SumAggregator
from declearn.dataset.torch import TorchDataset
from declearn.messaging import Error, TrainRequest
from declearn.model.torch import TorchModel
from declearn.optimizer import Optimizer
from declearn.training import TrainingManager

AGGREGATORS = {
    "by steps": AveragingAggregator(),
    "plain mean": AveragingAggregator(steps_weighted=False),
    "sum": SumAggregator(),
}


def train(seed, steps, aggregator):
    """Return the network before and after, and the client's reply."""
    model, before = network(seed), frozen(network(seed))
    manager = TrainingManager(
        TorchModel(model, torch.nn.CrossEntropyLoss()),
        Optimizer(lrate=RATE),
        aggregator,
        TorchDataset(TensorDataset(*digits(seed, steps))),
        verbose=False,
    )
    reply = manager.training_round(
        TrainRequest(round_i=1, weights=None, aux_var={}, batches={"batch_size": 8, "shuffle": False}, n_epoch=1)
    )
    assert not isinstance(reply, Error), reply
    return before, model, reply


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize(("seed", "steps"), ROUNDS)
def test_labels_are_recovered_from_a_reply(seed, steps, aggregator):
    before, model, reply = train(seed, steps, AGGREGATORS[aggregator])
    update = readers().read_declearn(reply, 8 * steps, RATE)
    assert update.steps == steps
    sent = {name.removeprefix("module."): tensor for name, tensor in update.tensors.items()}
    assert sent.keys() == dict(network(0).named_parameters()).keys()
    for name, change in sent.items():
        torch.testing.assert_close(change, model.state_dict()[name] - before[name], atol=1e-6, rtol=1e-4)
    check_labels(update, seed)
