"""Time of a training step while it is recorded and verified, against the same step without a recorder."""

import statistics
import tempfile
import time

import torch
from torch import nn

from fedleak.federated.loop import record
from fedleak.models import build

STEPS, ROUNDS = 20, 7
SETTINGS = [
    ("lenet", (1, 28, 28), 8),
    ("lenet", (1, 28, 28), 64),
    ("resnet20", (3, 32, 32), 8),
]


def train(model, optimiser, x, y, saw=lambda _: None):
    """Return seconds per step."""
    started = time.perf_counter()
    for _ in range(STEPS):
        saw(y)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return (time.perf_counter() - started) / STEPS


torch.set_num_threads(1)
for name, shape, size in SETTINGS:
    model, x, y = build(name, shape, 10, seed=0), torch.rand(size, *shape), torch.randint(10, (size,))
    optimiser, ratios, plain = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9), [], []
    train(model, optimiser, x, y)
    for _ in range(ROUNDS):
        plain.append(train(model, optimiser, x, y))
        with tempfile.TemporaryDirectory() as folder, record(folder, model, optimiser, round=1) as saw:
            ratios.append(train(model, optimiser, x, y, saw) / plain[-1])
    print(
        f"{name}, B = {size}: {1000 * statistics.median(plain):.1f} ms per step; recorded "
        f"{statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f}, {ROUNDS} rounds)"
    )
