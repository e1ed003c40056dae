"""pfl's own simulated client, with the real package: `make test-platforms`."""

import pytest
import torch
from federation import RATE, ROUNDS, check_labels, digits, network, readers

pytest.importorskip("pfl")
from pfl.aggregate.weighting import WeightByDatapoints, WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.common_types import Population
from pfl.context import CentralContext, UserContext
from pfl.data.dataset import Dataset
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel

WEIGHTS = {"none": None, "by user": WeightByUser(), "by samples": WeightByDatapoints()}


class Network(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        self.inner = network(seed)

    def forward(self, x):
        return self.inner(x)

    def loss(self, x, y, is_eval=False):
        self.train(not is_eval)
        return torch.nn.functional.cross_entropy(self(x), y)

    def metrics(self, x, y):
        return {}


def statistics(seed, steps, weighting):
    module = Network(seed)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    parameters = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=RATE, local_batch_size=8)
    context = CentralContext(
        current_central_iteration=0,
        do_evaluation=False,
        cohort_size=1,
        population=Population.TRAIN,
        model_train_params=parameters,
        model_eval_params=NNEvalHyperParams(local_batch_size=8),
        algorithm_params=NNAlgorithmParams(1, 1, 1, 0),
        seed=0,
    )
    data = Dataset(digits(seed, steps), user_id="a")
    sent, _ = FederatedAveraging().simulate_one_user(model, data, context)
    if weighting is not None:
        user = UserContext(num_datapoints=8 * steps, seed=0, user_id="a", metrics=None)
        sent, _ = weighting.postprocess_one_user(stats=sent, user_context=user)
    return sent


@pytest.mark.parametrize("weighting", WEIGHTS)
@pytest.mark.parametrize(("seed", "steps"), ROUNDS)
def test_labels_are_recovered_from_statistics(seed, steps, weighting):
    sent = statistics(seed, steps, WEIGHTS[weighting])
    update = readers().read_pfl(sent, 8 * steps, steps, RATE)
    plain = {name.removeprefix("inner."): tensor for name, tensor in update.tensors.items()}
    assert plain.keys() == dict(network(0).named_parameters()).keys()
    check_labels(update.replace(plain), seed)
