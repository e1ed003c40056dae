"""The learned attacker: attacks compared with the best possible answer from the bias' gradient.

With two or three classes that gradient is one or two numbers, so that the best answers can be tabulated: simulated
batches are divided into the cells of a fine grid, and each cell's answer has the largest mean number of labels in common
with its batches.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from torch import nn

from fedleak.attacks.labels import learned
from fedleak.attacks.labels.learned.simulated import draw_labels, pick_images
from fedleak_book.experiments import Experiment, grid, networks, spawned
from fedleak.models import head_pass
from notebooks.learned.updates import (
    BEST,
    IACC,
    MOST,
    head_sender,
    images,
    score,
    score_rivals,
)

BINS = {2: 1000, 3: 100}  # of each of the n - 1 numbers
STEPS = {2: 100, 3: 150}  # of training: few, so that some images are still wrong


def digits(ctx, data, n, use="clients"):
    """Return the images of the first n classes."""
    pool = images(ctx, data, use)
    return replace(pool.take((pool.y < n).nonzero()[:, 0]), classes=pool.classes[:n])


def batches(pool, count, size, generator):
    """Draw batches from the attacker's prior: indices of images, and counts."""
    labels = draw_labels(count, size, pool.n_classes, generator)
    index = pick_images(labels, pool.class_order, pool.class_counts, generator)
    return index, nn.functional.one_hot(labels, pool.n_classes).sum(1).numpy()


class Table:
    """The best answers to observations ``[n - 1]``, tabulated from many batches and their counts ``[N, n]``."""

    def __init__(self, observed, counts, bins):
        inner = np.linspace(0, 1, bins + 1)[1:-1]
        self.edges = np.quantile(observed, inner, axis=0).T
        self.kinds, which = np.unique(counts, axis=0, return_inverse=True)
        shared = np.minimum(self.kinds[:, None], self.kinds[None]).sum(-1)
        shape = bins ** len(self.edges), len(self.kinds)
        flat = self.cells(observed) * shape[1] + which.ravel()
        frequencies = np.bincount(flat, minlength=np.prod(shape)).reshape(shape)
        value = frequencies @ shared / len(counts) / counts[0].sum()
        self.answers = self.kinds[value.argmax(1)]
        self.most = value.max(1).sum()

    def cells(self, observed):
        """Return the cell of each observation ``[N, n - 1]``."""
        columns = zip(self.edges, observed.T, strict=True)
        place = [np.searchsorted(edges, column) for edges, column in columns]
        return np.ravel_multi_index(place, [len(edges) + 1 for edges in self.edges])

    def accuracy(self, observed, counts):
        """Return the answers' iAcc for each batch."""
        answers = self.answers[self.cells(observed)]
        return np.minimum(answers, counts).sum(1) / counts[0].sum()


def bayes(ctx, seed, data, classes, batch_size, simulated, iterations, updates):
    """Score the best answers to the gradient of one LeNet's bias, and attacks on batches of the same kind."""
    clients, aux = digits(ctx, data, classes), digits(ctx, data, classes, "aux")
    model = ctx.build("lenet", clients.shape, classes, seed=spawned(seed, "weights"))
    networks.train(model, clients, STEPS[classes], spawned(seed, "training"))
    model.eval()
    generator = torch.Generator().manual_seed(spawned(seed, "batches"))

    def drawn(pool, count):
        passed = head_pass(model, pool.x).probabilities.double()
        errors = passed - nn.functional.one_hot(pool.y, classes)
        index, counts = batches(pool, count, batch_size, generator)
        return index, errors[index].mean(1)[:, 1:].numpy(), counts

    _, *simulations = drawn(aux, simulated)
    table = Table(*simulations, BINS[classes])
    index, observed, counts = drawn(clients, simulated // 8)
    yield {"attack": MOST, "iacc": table.most}
    yield {"attack": BEST, "iacc": table.accuracy(observed, counts).mean()}

    how = {"iterations": iterations, "seed": spawned(seed, "attacker")}
    attacker = learned.train(model, aux, batch_size, **how)
    send, prepared, rows = head_sender(model), {}, []
    for number, (chosen, truth) in enumerate(zip(index[:updates], counts)):
        update, truth = send(model, clients, chosen), torch.from_numpy(truth)
        iacc = score(attacker, update, model, truth)["iacc"]
        rows.append({"attack": "learned", "iacc": iacc})
        rows.extend(score_rivals(update, model, aux, truth, number, prepared=prepared))
    groups = pd.DataFrame(rows).groupby("attack", sort=False)
    yield from groups.mean()[groups.size() == updates].reset_index().to_dict("records")


BAYES = Experiment(
    "bayes",
    bayes,
    quick=grid(
        data="MNIST, 5,000",
        classes=2,
        batch_size=2,
        simulated=2**15,
        iterations=60,
        updates=5,
    ),
    paper=grid(
        data="MNIST",
        classes=[2, 3],
        batch_size=[2, 8],
        simulated=2**21,
        iterations=300,
        updates=100,
    ),
    trials=(1, 5),
    by="attack",
    values=IACC,
)
