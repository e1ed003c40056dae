"""The network of every client round, in plain PyTorch: also for clients that run in an interpreter of their own."""

import torch
from torch import nn


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 36, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
