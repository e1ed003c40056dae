"""A small network of one's own, trained for a moment on digits, whose clients share gradients."""

import torch
from torch import nn

from fedleak import data
from fedleak.audit import Setup

digits = data.load("mnist5k")


def trained() -> nn.Module:
    """Train for 30 steps of Adam: a model that has begun to learn."""
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10)),
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=0.002)
    for index in torch.randint(len(digits), (30, 32)):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(digits.x[index]), digits.y[index]).backward()
        optimiser.step()
    return model


setup = Setup(
    name="a small network for digits",
    model=trained,
    data=digits,
    algorithm="fedsgd",
    batch_size=32,
    trials=10,
)
