"""Networks and data sets of the experiments: the one training loop, and fewer images or more classes of a data set."""

import dataclasses

import torch
from torch import Generator, nn
from torch.optim import SGD, Optimizer

from fedleak.data import Images


def train(
    model: nn.Module,
    images: Images,
    steps: int,
    generator: Generator | int,
    lr: float = 0.02,
    momentum: float = 0.9,
    batch_size: int = 64,
    optimiser: Optimizer | None = None,
) -> None:
    """Train a network in place: the mean cross-entropy of batches that are drawn with replacement.

    Parameters
    ----------
    generator
        Draws the batches; or its seed.
    optimiser
        Takes the steps, and keeps its state for a later call; by default SGD with `lr` and `momentum`.
    """
    if isinstance(generator, int):
        generator = torch.Generator().manual_seed(generator)
    optimiser = optimiser or SGD(model.parameters(), lr=lr, momentum=momentum)
    for index in torch.randint(len(images), (steps, batch_size), generator=generator):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images.x[index]), images.y[index]).backward()
        optimiser.step()


def split_classes(images: Images, n_classes: int) -> Images:
    """Divide every class at random into equal numbers of parts, so that there are `n_classes` classes."""
    parts = n_classes // images.n_classes
    if parts == 1:
        return images
    part = torch.randint(parts, (len(images),), generator=torch.Generator().manual_seed(0)).to(images.y)
    names = tuple(f"{name}, part {k}" for name in images.classes for k in range(parts))
    return dataclasses.replace(images, y=images.y * parts + part, classes=names)


def subset(images: Images, count: int | None, generator: Generator) -> Images:
    """Take `count` images at random, every class among them; all images for None."""
    if count is None or count >= len(images):
        return images
    while True:
        chosen = images.take(torch.randperm(len(images), generator=generator)[:count])
        if int(chosen.class_counts.min()):
            return chosen
