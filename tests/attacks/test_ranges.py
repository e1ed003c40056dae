"""Inversions say when inputs are no pixels in [0, 1] and no range was given."""

import warnings

import pytest
import torch
from torch import nn

from fedleak.attacks.images import agic, dlg, eluding_sa, invg
from fedleak.attacks.images.ranges import UNCHECKED, clip, contradiction
from fedleak.federated import fedsgd

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


def messages(call):
    """Return which words on the range a call gives: that it is excluded, or that it was not checked."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    words = {"no pixels": "excluded", UNCHECKED: "unchecked"}
    return [kind for w in caught for part, kind in words.items() if part in str(w.message)]


def invert(model, x, attack=invg.reconstruct, **options):
    update = fedsgd(model, x, LABELS)
    heard = messages(lambda: attack(update, model, labels=LABELS, iterations=2, **options))
    return [word for word in heard if word == "excluded"]


@pytest.mark.parametrize("attack", [invg.reconstruct, dlg.reconstruct_adam])
def test_a_first_layers_gradient_excludes_pixels(attack):
    model, x = connected(), 4 * pixels() - 2
    assert len(invert(model, x, attack)) == 1
    assert not invert(model, x, attack, box=(-2, 2))
    assert not invert(model, x, attack, box=None)
    assert not invert(model, pixels(), attack)
    for withheld in ("1.weight", "1.bias"):
        assert not contradiction(fedsgd(model, x, LABELS).without(withheld), model, SHAPE, *torch.tensor([0.0, 1.0]))


def test_running_statistics_exclude_pixels():
    spread = 40 * pixels(64) - 20
    assert len(invert(normed(spread), spread[:2], agic.reconstruct)) == 1
    assert not invert(normed(pixels(64)), pixels(), agic.reconstruct)


def test_noted_example_inputs_exclude_pixels():
    model = convolutional()
    model.example_inputs = 3 * pixels() - 1
    assert len(invert(model, pixels())) == 1


@pytest.mark.filterwarnings("ignore")
def test_values_pressed_against_the_range_exclude_pixels():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(128, 3)).eval()
    model.input_shape = SHAPE
    for x, is_outside in ((4 * pixels(1) - 2, True), (pixels(1), False)):
        update = fedsgd(model, x, LABELS[:1])
        inverted = invg.invert_many([update], model, LABELS[None, :1], iterations=100)
        assert bool(inverted.unchecked) != is_outside


def convolutional():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(32, 3))
    model.input_shape = SHAPE
    return model


@pytest.mark.parametrize(
    "attack",
    [
        lambda u, m, **o: invg.reconstruct(u, m, labels=LABELS, iterations=1, **o),
        lambda u, m, **o: dlg.reconstruct_adam(u, m, labels=LABELS, iterations=1, **o),
        lambda u, m, **o: dlg.reconstruct(u, m, iterations=1, **o),
        lambda u, m, **o: eluding_sa.reconstruct(u, m, samples=2, iterations=1, **o),
        lambda u, m, **o: agic.reconstruct(u, m, labels=LABELS, iterations=1, **o),
    ],
)
def test_an_inversion_says_that_pixels_were_assumed(attack):
    model = convolutional()
    update = fedsgd(model, pixels(), LABELS)
    assert messages(lambda: attack(update, model)) == ["unchecked"]
    assert messages(lambda: attack(update, model, box=(0, 1))) == []
    model.example_inputs = pixels(8)
    assert messages(lambda: attack(update, model)) == []


def test_rows_have_no_assumed_range():
    model = nn.Sequential(nn.Linear(5, 24), nn.Sigmoid(), nn.Linear(24, 3))
    model.input_shape = (5,)
    update = fedsgd(model, 3 * torch.randn(2, 5), LABELS)
    assert messages(lambda: dlg.reconstruct(update, model, iterations=1)) == []


def test_a_match_without_clipping_shows_the_range():
    model = convolutional().double()
    update = fedsgd(model, pixels(1).double(), LABELS[:1])
    assert messages(lambda: dlg.reconstruct(update, model, iterations=60, seed=1)) == []


def test_exact_images_show_the_range_unless_some_leave_it():
    outside = torch.full(SHAPE, 1.5)
    kinds = [(pixels(3), []), (torch.stack([*pixels(2), outside]), ["unchecked"]), (outside[None], ["excluded"])]
    for images, expected in kinds:
        assert messages(lambda images=images: clip("exact", images, "pixels")) == expected


def test_a_match_that_fewer_equations_than_pixels_allow_shows_no_range():
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 2, 5, 4), nn.Sigmoid(), nn.Flatten(), nn.Linear(2 * 6 * 6, 2)]
    model, y = nn.Sequential(*layers), torch.tensor([1])
    assert sum(p.numel() for p in model.parameters()) < 28 * 28
    update = fedsgd(model, torch.rand(1, 1, 28, 28), y)
    with pytest.warns(UserWarning, match="not checked"):
        dlg.reconstruct(update, model, iterations=30)
