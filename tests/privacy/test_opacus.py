"""Poisson sampling is claimed where Opacus' engine draws the batches so, and nowhere else; buffers get no noise."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedleak.privacy.claim import account_epsilon, gaussian_epsilon
from fedleak.privacy.opacus import MIN_POISSON_PROBABILITY, _bound_chance_of_shuffled, _may_be_shuffled
from fedleak.recording import read, record

pytestmark = pytest.mark.filterwarnings("ignore")


class Counting(nn.Module):
    """A classifier with a buffer of its own, which Opacus cannot protect."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("largest", torch.zeros(()))

    def forward(self, x):
        self.largest = torch.maximum(self.largest, x.detach().abs().max()) if len(x) else self.largest
        return self.layer(x)


def privacy(folder, samples, epochs, poisson, size=32, *, physical=None, model=None, accountant=True, **options):
    """The privacy of a recorded round: `steps` at most, split into physical batches."""
    steps = options.pop("steps", None)
    from opacus import PrivacyEngine
    from opacus.utils.batch_memory_manager import BatchMemoryManager

    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    data = DataLoader(TensorDataset(torch.rand(samples, 4), torch.randint(3, (samples,))), size, shuffle=True)
    private, optimiser, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=data,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=poisson,
        **options,
    )
    if physical:
        loader = BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=physical, optimizer=optimiser
        ).__enter__()
    optimiser.step_hook = optimiser.step_hook if accountant else None
    trained = private if options.get("wrap_model", True) else model
    with record(folder, trained, optimiser, round=1) as saw:
        for _ in range(epochs):
            for step, (x, y) in enumerate(loader):
                if step == steps:
                    break
                saw(y)
                optimiser.zero_grad()
                nn.functional.cross_entropy(trained(x), y).backward()
                optimiser.step()
    (part,) = read(folder)
    assert "ε" in part.failed
    return part.privacy


@pytest.mark.parametrize(
    ("poisson", "accountant", "rate", "epsilon"),
    [
        (True, True, 0.2, account_epsilon(((1.0, 0.2, 10),), 1e-5)),
        (False, True, 0.2, gaussian_epsilon(math.sqrt(2), 1e-5)),  # of two epochs, each with every sample once
        (True, False, 1.0, account_epsilon(((1.0, 1.0, 10),), 1e-5)),
    ],
    ids=["as Opacus accounts", "shuffled batches", "without an accountant no sampling is claimed"],
)
def test_a_recorded_loop_knows_opacus_noise_and_rate(tmp_path, poisson, accountant, rate, epsilon):
    claim = privacy(tmp_path, 40, 2, poisson, size=8, accountant=accountant)
    assert claim.history == ((1.0, rate, 10),)
    assert claim.epsilon == pytest.approx(epsilon)


SHUFFLED = [
    {"samples": 96, "epochs": 1},
    {"samples": 330, "epochs": 1, "wrap_model": False},
    {"samples": 330, "epochs": 2, "grad_sample_mode": "functorch"},
    {"samples": 330, "epochs": 2, "physical": 13},
]


@pytest.mark.parametrize("case", SHUFFLED)
def test_shuffled_batches_are_never_taken_for_poisson_sampling(tmp_path, case):
    claim = privacy(tmp_path, poisson=False, **case)
    assert not claim.poisson
    reasons = ["not drawn by Poisson sampling" in why for why in claim.wrong()]
    assert reasons == [True] * (claim.epsilon > claim.claimed), "few batches an epoch cost no more than is claimed"


@pytest.mark.parametrize(
    "case",
    [
        {"samples": 330, "size": 32, "epochs": 2},
        {"samples": 208, "size": 52, "epochs": 2, "physical": 16},
        {"samples": 64, "size": 1, "epochs": 1, "steps": 20, "rand_on_empty": True},
        {"samples": 330, "size": 32, "epochs": 1, "wrap_model": False},
    ],
    ids=["two epochs", "BatchMemoryManager", "rand_on_empty", "hooks alone"],
)
def test_poisson_sampling_is_never_called_shuffled(tmp_path, case):
    claim = privacy(tmp_path, poisson=True, **case)
    assert claim.poisson
    assert not claim.wrong()


@pytest.mark.parametrize(("samples", "rate", "steps"), [(320, 0.1, 20), (64, 1 / 64, 1), (208, 0.25, 3)])
def test_sizes_drawn_by_poisson_sampling_are_not_judged_impossible(samples, rate, steps):
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.rand(2000, steps, samples, generator=generator) < rate).sum(2).tolist()
    assert sum(_bound_chance_of_shuffled(sizes, [rate] * steps) <= MIN_POISSON_PROBABILITY for sizes in drawn) == 0


def test_the_bound_is_the_chance_of_equal_poisson_sizes():
    """By hand: binomial sizes are narrower than Poisson's, and an empty batch may count as one sample."""
    chances = [math.exp(-2) * 2**k / math.factorial(k) / math.sqrt(0.8) for k in range(40)]
    chances[1] += chances[0]
    assert _bound_chance_of_shuffled([2, 2, 2], [0.2] * 3) == pytest.approx(sum(p**3 for p in chances))
    chances = [math.exp(-1.75) * 1.75**k / math.factorial(k) / math.sqrt(0.75) for k in range(40)]
    chances[1] += chances[0]
    assert _bound_chance_of_shuffled([2, 2, 2, 1], [0.25] * 4) == pytest.approx(4 * sum(p**3 for p in chances))


def test_sizes_of_epochs_may_have_one_smaller_batch_each():
    epoch = [32] * 10 + [10]
    assert _may_be_shuffled(epoch * 2, [1 / 11] * 22)
    assert not _may_be_shuffled([*epoch, *epoch[:-1], 11], [1 / 11] * 22), "the remainder is always the same"
    assert not _may_be_shuffled([32, 10, 32, 10, 32], [1 / 11] * 5), "two remainders in half an epoch"


def test_what_opacus_puts_no_noise_on_is_named(tmp_path):
    claim = privacy(tmp_path, samples=64, size=8, epochs=1, poisson=True, model=Counting())
    assert claim.unprotected == ("largest",)
    assert "passes on 'largest' without noise" in claim.wrong()[-1]
