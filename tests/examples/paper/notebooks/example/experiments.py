"""The example: its experiment. A trial is a function of its context, its seed and its setting."""

import torch

from fedleak import metrics
from fedleak.attacks.contest import contest
from fedleak_book.experiments import Experiment, grid, spawned
from fedleak.federated import fedsgd
from fedleak_book.experiments.kinds import rate


def gradients(ctx, seed, batch_size, net):
    """One batch of a fresh network: how many labels every rule finds."""
    images = ctx.images("synthetic", shape=(1, 8, 8), n_classes=10, count=400)
    model = ctx.build(
        net, images.shape, images.n_classes, seed=spawned(seed, "weights")
    )
    generator = torch.Generator().manual_seed(spawned(seed, "batch"))
    index = torch.randint(len(images), (batch_size,), generator=generator)
    update = fedsgd(model, images.x[index], images.y[index])
    truth = metrics.counts(images.y[index], images.n_classes).cpu()
    held = {"seed": spawned(seed, "guess")}
    for one in contest(update, model, "shared gradients", held):
        if one.counts is not None and one.counts.sum():
            iacc = metrics.instance_accuracy(one.counts, truth).item()
            yield {"rule": one.attack.name, "iacc": iacc, "images": len(images)}


TABLE1 = Experiment(
    "table1",
    gradients,
    quick=grid(batch_size=[4, 16]),  # a list is an axis; grids add
    paper=grid(batch_size=[4, 8, 16]),
    trials=(3, 12),  # a setting, in the quick and the paper profile
    by="rule",  # what makes a cell, beside the settings
    values=dict(
        iacc=rate("batch_size")
    ),  # what is averaged, and what it is: a number of labels
    facts="images",  # what the trial really had: compared with the paper's
    fixed=dict(net="fcn3"),  # settings that are the same everywhere
)
