"""Inversions say when inputs are no pixels in [0, 1] and no range was given."""

import warnings

import pytest
import torch
from torch import nn

from fedleak.attacks.images import agic, dlg, invg, mandrake
from fedleak.attacks.images.ranges import UNCHECKED, contradiction
from fedleak.federated import fedavg, fedsgd

SHAPE, LABELS = (1, 6, 6), torch.tensor([2, 0])


def pixels(n=2):
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(1))


def connected():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 24), nn.Sigmoid(), nn.Linear(24, 3))
    model.input_shape = SHAPE
    return model


def normed(x):
    """A convolution and a batch norm with the running statistics of these inputs."""
    torch.manual_seed(0)
    head = [nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)]
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), *head)
    model.input_shape = SHAPE
    for _ in range(50):
        model(x)
    return model.eval()


def invert(model, x, attack=invg.reconstruct, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        attack(fedsgd(model, x, LABELS), model, labels=LABELS, iterations=2, **options)
    return [str(w.message) for w in caught if "no pixels" in str(w.message)]


@pytest.mark.parametrize("attack", [invg.reconstruct, dlg.reconstruct_adam])
def test_a_first_layers_gradient_excludes_pixels(attack):
    model, x = connected(), 4 * pixels() - 2
    assert len(invert(model, x, attack)) == 1
    assert not invert(model, x, attack, box=(-2, 2))
    assert not invert(model, x, attack, box=None)
    assert not invert(model, pixels(), attack)
    for withheld in ("1.weight", "1.bias"):
        assert not contradiction(fedsgd(model, x, LABELS).without(withheld), model, SHAPE, *torch.tensor([0.0, 1.0]))


def test_local_steps_exclude_pixels_as_one_does():
    model, x = connected(), 4 * pixels() - 2
    update = fedavg(model, x[:, None], LABELS[:, None], 0.1, "delta")
    with pytest.warns(UserWarning, match="no pixels"):
        invg.reconstruct(update, model, labels=LABELS, iterations=1)


def test_running_statistics_exclude_pixels():
    spread = 40 * pixels(64) - 20
    assert len(invert(normed(spread), spread[:2], agic.reconstruct)) == 1
    assert not invert(normed(pixels(64)), pixels(), agic.reconstruct)


def test_noted_example_inputs_exclude_pixels():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(32, 3))
    model.input_shape, model.example_inputs = SHAPE, 3 * pixels() - 1
    assert len(invert(model, pixels())) == 1


def test_an_assumed_range_is_in_the_inversion():
    model, update = connected(), fedsgd(connected(), pixels(), LABELS)
    inverted = invg.invert_many([update], model, LABELS[None], iterations=1)
    assert inverted.unchecked == (UNCHECKED,)
    assert not invg.invert_many([update], model, LABELS[None], iterations=1, box=(0, 1)).unchecked


@pytest.mark.filterwarnings("ignore")
def test_values_pressed_against_the_range_exclude_pixels():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(128, 3)).eval()
    model.input_shape = SHAPE
    for x, is_outside in ((4 * pixels(1) - 2, True), (pixels(1), False)):
        update = fedsgd(model, x, LABELS[:1])
        inverted = invg.invert_many([update], model, LABELS[None, :1], iterations=100)
        assert bool(inverted.unchecked) != is_outside


def test_mandrake_excludes_pixels():
    spread = torch.tensor([-0.5, 1.5]).repeat(18).view(1, *SHAPE)
    model = mandrake.fronted_model(connected(), SHAPE, 0, 1, torch.linspace(0.1, 0.9, 4))
    update = fedsgd(model, spread, LABELS[:1])
    with pytest.warns(UserWarning, match="no pixels"):
        mandrake.reconstruct(update, model, client=0)
