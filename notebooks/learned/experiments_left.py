"""What is left: whether the learned attacker finds what it expects to find."""

import numpy as np
import torch
from scipy.optimize import isotonic_regression

from fedleak import metrics
from fedleak.attacks.labels import learned
from fedleak_book.experiments import Experiment, grid, spawned
from fedleak_book.experiments.kinds import DIFFERENCE, MEAN
from notebooks.learned.experiments_networks import TRAINED, images, network

MOST = 10_000  # of the clients' images


def honest(ctx, seed, net, data, state, batch_size, iterations, batches):
    """What an attacker expects to find in batches as it simulates them, of the clients' images, and what it finds.

    How much it finds at which width of its intervals it learns on the images that it has kept from its training.
    """
    model, aux = network(ctx, net, data, state, seed), images(ctx, data, "aux")
    attacker = learned.train(model, aux, batch_size, iterations=iterations, seed=seed)
    generator = torch.Generator().manual_seed(spawned(seed, "batches"))

    def met(pool):
        """Widths of the intervals and iAcc, the surest first."""
        pool = attacker.reader.pool(model, pool)
        seen, truth = pool.draw(batches, batch_size, generator)
        low, high = attacker.intervals(seen)
        width, order = (high - low).sum(-1).sort()
        found = metrics.instance_accuracy(attacker.counts(seen), truth)
        return width.numpy(), found[order].double().numpy()

    width, found = met(aux.split_in_two(seed, 0.8)[1])
    expects = isotonic_regression(found, increasing=False).x
    clients = images(ctx, data)
    some = torch.randperm(len(clients), generator=generator)[:MOST]
    own, attained = met(clients.take(some))
    expected = np.interp(own, width, expects)
    fifth = batches // 5
    for part, which in {
        "all": slice(None),
        "surest fifth": slice(fifth),
        "least sure fifth": slice(-fifth, None),
    }.items():
        row = {"expected": expected[which].mean(), "attained": attained[which].mean()}
        off = row["attained"] - row["expected"]
        yield {"part": part, **row, "difference": off}


HONEST = Experiment(
    "honest",
    honest,
    quick=grid(
        net="lenet",
        data="MNIST, 5,000",
        state=TRAINED,
        batch_size=8,
        iterations=60,
        batches=500,
    ),
    paper=grid(
        net="lenet",
        data="MNIST",
        state=TRAINED,
        batch_size=[8, 32, 128],
        iterations=300,
        batches=2000,
    ),
    trials=(1, 3),
    by="part",
    values=dict(expected=MEAN, attained=MEAN, difference=DIFFERENCE),
)
