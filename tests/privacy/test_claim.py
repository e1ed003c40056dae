"""What a mechanism gives is what Opacus' accountant says; what does not follow is named."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from fedleak.privacy.claim import DPSGD, Privacy, account_epsilon, gaussian_epsilon

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("history", [((1.0, 1.0, 1),), ((0.3, 1.0, 5),), ((10.0, 1.0, 1), (2.0, 1.0, 3))])
def test_without_sampling_epsilon_is_just_below_opacus_bound(history):
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = list(history)
    assert accountant.get_epsilon(1e-5) - 0.03 < account_epsilon(history, 1e-5) < accountant.get_epsilon(1e-5)


def test_sampling_is_left_to_opacus():
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(1.0, 0.1, 10)]
    assert account_epsilon(((1.0, 0.1, 10),), 1e-5) == pytest.approx(accountant.get_epsilon(1e-5))
    assert account_epsilon(((0.0, 0.1, 10),), 1e-5) == math.inf


SAMPLED = {"neighbours": "sample", "history": ((1.0, 0.01, 10),)}


@pytest.mark.parametrize(
    ("privacy", "reason"),
    [
        (Privacy(**SAMPLED), None),
        (Privacy(**SAMPLED, poisson=False), "not drawn by Poisson sampling"),
        (Privacy(**SAMPLED, stated=0.1), "noise is too small"),
        (Privacy(**SAMPLED, stated=1.0), None),
        (Privacy(**SAMPLED, aggregated=True), "added after aggregation"),
        (Privacy(neighbours="client", clipped=False), "nothing bounds the norm"),
        (Privacy(neighbours="client", stated=1.0), None),
    ],
)
def test_what_does_not_follow_is_named(privacy, reason):
    assert [reason in problem for problem in privacy.wrong()] == [True] * (reason is not None)


@pytest.mark.parametrize("mechanism", [(-1.0, 0.5, 1), (math.inf, 0.5, 1), (1.0, 0.0, 1), (1.0, 1.1, 1), (1.0, 0.5, 0)])
def test_a_mechanism_out_of_range_is_refused(mechanism):
    with pytest.raises(ValueError, match="mechanism"):
        Privacy(neighbours="sample", history=(mechanism,))


def test_shuffled_batches_are_accounted_once_an_epoch():
    shuffled = Privacy(neighbours="sample", history=((1.0, 0.1, 20),), poisson=False)
    assert shuffled.epsilon == pytest.approx(gaussian_epsilon(math.sqrt(2), 1e-5))
    assert shuffled.claimed < shuffled.epsilon


@pytest.fixture
def batch():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    return model, 3 * torch.randn(6, 5), torch.tensor([0, 0, 1, 2, 2, 2])


def clipped(model, x, y, norm):
    """The mean of the clipped gradients, by hand."""

    def loss(parameters, x, y):
        return nn.functional.cross_entropy(functional_call(model, parameters, (x[None],)), y[None])

    gradients = vmap(grad(loss), (None, 0, 0))(dict(model.named_parameters()), x, y)
    size = torch.stack([t.flatten(1).norm(dim=1) for t in gradients.values()]).norm(dim=0)
    factor = (norm / size).clamp(max=1)
    assert (factor < 1).any()
    return {name: torch.einsum("b,b...->...", factor, t) / len(x) for name, t in gradients.items()}


def test_dp_sgd_gradients_are_the_clipped_mean_with_fresh_noise(batch):
    model, x, y = batch
    state = copy.deepcopy(model.state_dict())
    releases = DPSGD(noise_multiplier=0.5, max_grad_norm=1.0).releases(model, x, y, seed=1)
    many = [next(releases).tensors for _ in range(1000)]
    for name, expected in clipped(model, x, y, 1.0).items():
        stacked = torch.stack([gradient[name] for gradient in many])
        torch.testing.assert_close(stacked.mean(0), expected, atol=5 * 0.5 / 6 / 1000**0.5, rtol=0)
        assert stacked.std().item() == pytest.approx(math.hypot(0.5 / 6, expected.std(correction=0).item()), rel=0.1), (
            "noise on the sum, divided by the batch"
        )
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    again = next(DPSGD(noise_multiplier=0.5, max_grad_norm=1.0).releases(model, x, y, seed=1))
    assert torch.equal(again.tensors["0.bias"], many[0]["0.bias"])


@pytest.mark.parametrize(("batches", "epochs"), [(7, 1), (113, 3), (399, 7)])
def test_whole_epochs_are_not_rounded_up(batches, epochs):
    claim = Privacy(neighbours="sample", history=((1.0, 1 / batches, epochs * batches),), poisson=False)
    assert claim.mechanisms == ((1.0, 1.0, epochs),)
