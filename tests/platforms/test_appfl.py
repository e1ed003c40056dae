"""appfl's own client round, with the real package: `make test-platforms`."""

import pytest
import torch
from federation import RATE, ROUNDS, check_labels, digits, frozen, network, readers
from torch.utils.data import TensorDataset

pytest.importorskip("appfl")
from appfl.algorithm.trainer import VanillaTrainer
from omegaconf import OmegaConf


class Quiet:
    """A logger that appfl's trainer can write to."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


def trainer(seed, steps, **options):
    configs = {"mode": "step", "num_local_steps": steps, "train_batch_size": 8, "train_data_shuffle": False}
    configs |= {"optim": "SGD", "optim_args": {"lr": RATE}, "device": "cpu", **options}
    return VanillaTrainer(
        model=network(seed),
        loss_fn=torch.nn.CrossEntropyLoss(),
        metric=lambda true, predicted: 0.0,
        train_dataset=TensorDataset(*digits(seed, steps)),
        train_configs=OmegaConf.create(configs),
        logger=Quiet(),
        client_id="a",
    )


def trained(seed, steps, **options):
    """Return the state before, the trainer, and its upload."""
    client = trainer(seed, steps, **options)
    client.load_parameters(before := frozen(network(seed)))
    client.train()
    return before, client, client.get_parameters()


@pytest.mark.parametrize("send_gradient", [True, False])
@pytest.mark.parametrize(("seed", "steps"), ROUNDS)
def test_labels_are_recovered_from_an_upload(seed, steps, send_gradient):
    before, client, upload = trained(seed, steps, send_gradient=send_gradient)
    update = readers().read_appfl(upload, before, 8 * steps, RATE, send_gradient)
    assert update.steps == steps
    assert update.tensors.keys() == dict(network(0).named_parameters()).keys()
    for name, change in update.tensors.items():
        torch.testing.assert_close(change, client.model.state_dict()[name] - before[name], atol=1e-6, rtol=1e-4)
    check_labels(update, seed)


def test_opacus_names_are_read_by_the_plain_models():
    """Opacus takes no batch norm, so that the network here has none."""
    client = trainer(
        0, 1, use_dp=True, dp_mechanism="opacus", dp_config={"noise_multiplier": 0.5, "max_grad_norm": 1.0}
    )
    torch.manual_seed(0)
    client.model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    before = frozen(client.model)
    client.train()
    state, _ = upload = client.get_parameters()
    assert all(name.startswith("_module.") for name in state)
    update = readers().read_appfl(upload, before, 8, RATE, False)
    assert update.tensors.keys() == before.keys()
    assert update.tensors["1.weight"].any()


def test_a_masked_upload_is_refused():
    client = trainer(0, 1, use_secure_agg=True)
    client.runtime_context = {"all_client_ids": ["a", "b"], "round_id": 0, "secure_agg_secret": b"secret"}
    client.model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    before = frozen(client.model)
    client.train()
    with pytest.raises(ValueError, match="only one of the two states"):
        readers().read_appfl(client.get_parameters(), before, 8, RATE, False)
