"""Images of overlapping classes, a model, and updates of clients whose images the learned attacker does not have."""

import torch

from fedleak.data import Images, compose
from fedleak.federated import fedsgd
from fedleak.metrics import counts
from fedleak.models import build

CLASSES, SHAPE, B = 3, (1, 4, 4), 6


def pool(per_class=40, seed=0, noise=0.3, classes=CLASSES):
    """Images of overlapping classes: a stripe of its own for each, in noise."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(per_class * classes) % classes
    x = (0.5 + noise * torch.randn(len(y), *SHAPE, generator=generator)).clamp(0, 1)
    x[torch.arange(len(y)), 0, y] += 0.5
    return Images(x.clamp(0, 1), y, tuple("abcdef"[:classes]), "random", "train", False, "made here", "none")


MODEL = build("fcn3", SHAPE, CLASSES, seed=0)


def drawn(count, seed, batch_size=B, clients=None, model=MODEL):
    """Real updates of images that the attacker does not have, and their counts ``[count, n]``."""
    generator, clients = torch.Generator().manual_seed(seed), clients or pool(seed=9)
    labels = compose("unbalanced", batch_size, CLASSES, count, generator)
    place = torch.randint(40, labels.shape, generator=generator)
    index = clients.class_order[labels * 40 + place]
    return [fedsgd(model, clients.x[i], clients.y[i]) for i in index], counts(labels, CLASSES)
