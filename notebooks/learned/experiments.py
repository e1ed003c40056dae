"""The learned attacker: the experiments. A trial is a function of its context, its seed and its setting.

Each trial has one network and an attacker trained for it, which attacks updates of clients with other images.
"""

import torch

from fedleak.attacks.labels import learned
from fedleak_book.experiments import Experiment, grid
from notebooks.learned.updates import (
    EXPECTED,
    score_drawn,
    score_all,
    fit_expected,
    images,
    trained_lenet,
)


def judged(ctx, seed, data, batch_size, iterations, updates):
    """Score an attacker trained for one network, and every other attack on the same updates."""
    model, aux = trained_lenet(ctx, data, seed ^ 4), images(ctx, data, "aux")
    generator = torch.Generator().manual_seed(seed ^ 0x1EA)
    attacker = learned.train(model, aux, batch_size, iterations=iterations, seed=seed)
    yield from score_all(ctx, model, data, attacker, batch_size, updates, generator)
    expects = fit_expected(attacker, model, aux, seed, batch_size, generator)
    pool = attacker.reader.make_pool(model, images(ctx, data))
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
