"""The learned attacker: the experiments. A trial is a function of its context, its seed and its setting.

Each trial has one network and an attacker trained for it, which attacks updates of clients with other images.
"""

import torch

from fedleak.attacks.labels import learned
from fedleak_book.experiments import Experiment, grid
from notebooks.learned.updates import EXPECTED, fit_expected, score_all, score_drawn
from notebooks.updates import TRAINED, load_clients_images, load_other_images
from notebooks.updates import make_network

STEPS = {"MNIST": 600, "CIFAR-10": 1500, "MNIST, 5,000": 150}
"""Steps of a network's training."""


def judged(ctx, seed, data, batch_size, iterations, updates, batches=learned.BATCHES):
    """Score an attacker trained for one network, and every other attack on the same updates."""
    model = make_network(ctx, "lenet", data, TRAINED, seed ^ 4, steps=STEPS[data])
    aux = load_other_images(ctx, data)
    generator = torch.Generator().manual_seed(seed ^ 0x1EA)
    often = dict(iterations=iterations, batches=batches)
    attacker = learned.train(model, aux, batch_size, seed=seed, **often)
    yield from score_all(ctx, model, data, attacker, batch_size, updates, generator)
    expects = fit_expected(attacker, model, aux, seed, batch_size, generator)
    pool = attacker.reader.make_pool(model, load_clients_images(ctx, data))
    yield from score_drawn(attacker, pool.draw(2000, batch_size, generator), expects)


JUDGED = Experiment(
    "judged",
    judged,
    quick=grid(data="MNIST, 5,000", batch_size=[8, 32], iterations=120, updates=5),
    paper=grid(
        batch_size=[8, 32, 128, 512],
        data=["MNIST", "CIFAR-10"],
        iterations=300,
        updates=7,
    ),
    trials=(1, 3),
    by=["composition", "attack"],
    values=EXPECTED,
)
