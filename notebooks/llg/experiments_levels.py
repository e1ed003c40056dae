"""LLG: the effect of fewer images, measured on large data sets: MNIST, and CIFAR-10 as JPEG files."""

import dataclasses

import torch

PARTS = {
    10: {"svhn": (866, 217), "celeba-hair": (2734, None)},
    100: {"cifar100": (1117, 916)},
}
"""By the number of classes, how many images a victim's pool and an attacker's have here of a data set."""


def divided(images, classes):
    """The images with every class divided at random into as many as make up this number of classes."""
    parts = classes // images.n_classes
    if parts == 1:
        return images
    part = torch.randint(
        parts, (len(images),), generator=torch.Generator().manual_seed(0)
    ).to(images.y)
    names = tuple(f"{name}, part {k}" for name in images.classes for k in range(parts))
    return dataclasses.replace(images, y=images.y * parts + part, classes=names)


def some(images, count, generator):
    """That many images at random, every class among them; all, where no number is given."""
    if count is None or count >= len(images):
        return images
    while True:
        chosen = images.take(torch.randperm(len(images), generator=generator)[:count])
        if int(chosen.class_counts.min()):
            return chosen
