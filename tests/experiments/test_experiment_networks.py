"""The one training loop, and data sets with fewer images or more classes."""

import copy

import pytest
import torch

from fedleak.data import Images
from fedleak_book.experiments import networks


@pytest.fixture
def images():
    torch.manual_seed(0)
    y = torch.arange(40) % 4
    return Images(torch.randn(40, 3) + 3 * torch.eye(4, 3)[y], y, tuple("abcd"))


def test_training_fits_and_continues_where_an_optimiser_stopped(images):
    once = torch.nn.Linear(3, 4)
    before = copy.deepcopy(once)
    twice = copy.deepcopy(once)
    networks.train(once, images, 60, 1)
    loss = torch.nn.functional.cross_entropy
    assert loss(once(images.x), images.y) < 0.7 * loss(before(images.x), images.y)
    generator, optimiser = torch.Generator().manual_seed(1), torch.optim.SGD(twice.parameters(), 0.02, 0.9)
    for steps in (20, 40):
        networks.train(twice, images, steps, generator, optimiser=optimiser)
    assert torch.equal(once.weight, twice.weight)


def test_a_subset_has_every_class(images):
    for seed in range(20):
        assert networks.subset(images, 5, torch.Generator().manual_seed(seed)).class_counts.min() >= 1
    assert networks.subset(images, None, torch.Generator()) is images
