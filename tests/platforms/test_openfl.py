"""openfl's own training task and pipelines, with the real package: `make test-platforms`."""

import pytest
import torch
from federation import RATE, ROUNDS, check_labels, digits, labels_right, network, readers
from torch import nn

pytest.importorskip("openfl")
from openfl.federated.task.runner_pt import PyTorchTaskRunner
from openfl.pipelines import NoCompressionPipeline, STCPipeline
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


def received(seed, steps, pipeline, *, delta=True):
    """Return what the aggregator has of a collaborator, after decompression, and the state before."""
    runner, before = Runner(seed, steps), {}
    tensors = runner.get_tensor_dict(with_opt_vars=False)
    before = {name: array.copy() for name, array in tensors.items() if hasattr(array, "copy")}
    trained, _ = runner.train_task("hospital", 0, tensors, epochs=1)
    codec, out = TensorCodec(pipeline), {}
    for key, array in trained.items():
        if "trained" not in key.tags or not delta:
            key, array, metadata = codec.compress(key, array, require_lossless=True)
            key, array = codec.decompress(key, array, metadata, require_lossless=True)
        else:
            key, array = codec.generate_delta(key, array, before[key.tensor_name])
            key, array, metadata = codec.compress(key, array)
            key, array = codec.decompress(key, array, metadata)
        out[key] = array
    return out, before


def read(seed, steps, pipeline, **options):
    tensors, before = received(seed, steps, pipeline, **options)
    update = readers().read_openfl(tensors, before, 8 * steps, steps, RATE)
    return update.replace({name.removeprefix("inner."): tensor for name, tensor in update.tensors.items()})


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize(("seed", "steps"), ROUNDS)
def test_labels_are_recovered_from_tensors(seed, steps, delta):
    update = read(seed, steps, NoCompressionPipeline(), delta=delta)
    assert update.tensors.keys() == dict(network(0).named_parameters()).keys()
    check_labels(update, seed)


def test_ternary_compression_makes_updates_too_small():
    """Its size is the mean over all entries, not over those that are left: a tenth at its default sparsity."""
    for seed, steps in ROUNDS:
        exact, ternary = read(seed, steps, NoCompressionPipeline()), read(seed, steps, STCPipeline())
        sizes = [u.tensors["9.weight"].abs() for u in (exact, ternary)]
        surviving = sizes[1] > 0
        assert sizes[1][surviving].mean() < 0.25 * sizes[0][surviving].mean()
        assert labels_right(ternary, seed)["iLRG"] <= 6 * steps
