"""Recorded runs of small networks."""

from dataclasses import replace

import torch
from torch import nn

from fedleak.data.embedded import synthetic
from fedleak.recording import read, record, write

SHAPE, CLASSES, LR = (1, 6, 6), 4, 0.1


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, CLASSES))


def data(seed=0):
    x, y, _ = synthetic("train", SHAPE, CLASSES, 120, seed)
    return x, y


def train(folder, round, node, sizes, seed, make=network, kind=torch.optim.SGD, pool=data, **optimiser):
    """One client's part: batches of these sizes, from the same weights in every round."""
    model, (x, y) = make(), pool(seed)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    chosen = kind([p for p in model.parameters() if p.requires_grad], lr=LR, **optimiser)
    with record(folder, model, chosen, round=round, node=node) as saw:
        for index in order[: sum(sizes)].split(sizes):
            saw(y[index])
            chosen.zero_grad()
            nn.functional.cross_entropy(model(x[index]), y[index]).backward()
            chosen.step()


def nine(folder):
    """Three rounds of the clients a, b and c, of three steps each."""
    for number in (1, 2, 3):
        for k, node in enumerate("abc"):
            train(folder, number, node, [4, 4, 1 + k], 10 * number + k)
    return folder


def unlabelled(run, folder, keep=()):
    """A run without its labels, but for some rounds."""
    for contribution in read(run):
        write(
            folder,
            replace(contribution, counts=contribution.counts if contribution.round in keep else None),
            *contribution.states(),
        )
    return folder
