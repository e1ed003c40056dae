"""openfl's own training task and pipelines, with the real package: `make test-platforms`."""

import pytest
import torch
from federation import RATE, ROUNDS, check_labels, digits, network, readers
from torch import nn

pytest.importorskip("openfl")
from openfl.federated.task.runner_pt import PyTorchTaskRunner
from openfl.pipelines import NoCompressionPipeline
from openfl.pipelines.tensor_codec import TensorCodec
from openfl.utilities.types import Metric


class Loader:
    """The two methods of openfl's data loaders that training needs."""

    def __init__(self, seed, steps):
        x, y = digits(seed, steps)
        self.batches = list(zip(x.split(8), y.split(8), strict=True))

    def get_train_loader(self):
        return self.batches

    def get_feature_shape(self):
        return [1, 28, 28]


class Runner(PyTorchTaskRunner):
    def __init__(self, seed, steps):
        super().__init__(device="cpu", data_loader=Loader(seed, steps))
        self.inner = network(seed)
        self.optimizer = torch.optim.SGD(self.parameters(), lr=RATE)
        self.loss_fn = nn.CrossEntropyLoss()
        self.set_optimizer_treatment("RESET")
        self.initialize_tensorkeys_for_functions()

    def forward(self, x):
        return self.inner(x)

    def train_(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            loss = self.loss_fn(self(x), y)
            loss.backward()
            self.optimizer.step()
        return Metric("loss", loss.detach().numpy())


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize(("seed", "steps"), ROUNDS)
def test_labels_are_recovered_from_what_the_aggregator_has(seed, steps, delta):
    runner, codec, tensors = Runner(seed, steps), TensorCodec(NoCompressionPipeline()), {}
    received = runner.get_tensor_dict(with_opt_vars=False)
    before = {name: array.copy() for name, array in received.items() if hasattr(array, "copy")}
    for key, array in runner.train_task("hospital", 0, received, epochs=1)[0].items():
        if is_delta := delta and "trained" in key.tags:
            key, array = codec.generate_delta(key, array, before[key.tensor_name])
        key, array, metadata = codec.compress(key, array, require_lossless=not is_delta)
        key, array = codec.decompress(key, array, metadata, require_lossless=not is_delta)
        tensors[key] = array
    update = readers().read_openfl(tensors, before, 8 * steps, steps, RATE)
    plain = {name.removeprefix("inner."): tensor for name, tensor in update.tensors.items()}
    assert plain.keys() == dict(network(0).named_parameters()).keys()
    check_labels(update.replace(plain), seed)
