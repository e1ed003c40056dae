"""AGIC: what comes back of four photographs, by threat model: a live run of DLG's search, and of MANDRAKE."""

import copy
import dataclasses
import warnings

import torch
from skimage import data as photographs
from torch.nn.functional import interpolate

from fedleak.attacks.images import dlg, mandrake
from fedleak.attacks.images.engine import invert
from fedleak.attacks.images.objective import View
from fedleak.federated import Update, fedavg, fedsgd
from fedleak_book.experiments import networks
from notebooks.agic.clients import NETWORK, pool

SIDE, ITERATIONS, STEPS, RATE = 18, 20, 100, 0.1
SEARCH = dataclasses.replace(dlg.DLG, labels=False)
CROPS = {  # the class among the patches of photographs, and what is cut out
    "astronaut": (0, slice(0, 176), slice(136, 312)),
    "chelsea": (1, slice(20, 280), slice(90, 350)),
    "coffee": (2, slice(40, 380), slice(130, 470)),
    "rocket": (5, slice(60, 300), slice(260, 500)),
}


def pictures(side, names=tuple(CROPS)):
    """A face, a cat, a cup and a rocket, [4, 3, side, side], and their classes."""
    images, labels = [], []
    for name in names:
        label, rows, columns = CROPS[name]
        cut = torch.tensor(getattr(photographs, name)()[rows, columns].copy())
        image = cut.permute(2, 0, 1)[None].double() / 255
        size = dict(size=(side, side), mode="bilinear", antialias=True)
        images.append(interpolate(image, **size))
        labels.append(label)
    return torch.cat(images), torch.tensor(labels)


def searched(updates, model, labels):
    """The images that DLG's search finds for updates with known labels [updates, samples].

    A search that ends further from the gradient than zeros are has failed: it is repeated from one other start, and the
    nearer end counts, which the attacker can tell.
    """
    images = []
    for update, label in zip(updates, labels):
        view, ends = View([update], model, label[None]), []
        with warnings.catch_warnings(action="ignore"):  # of searches that fail
            for start in range(2):
                ends.append(invert([view], SEARCH, iterations=ITERATIONS, seed=start))
                if ends[-1].values < view.squares:
                    break
        images.append(min(ends, key=lambda end: float(end.values)).clipped()[0])
    return torch.cat(images)


def separated(model, x, y, brightness):
    """MANDRAKE's images out of the sum of clients that have one image each."""
    front = dict(clients=len(x), thresholds=mandrake.thresholds(brightness))
    models = [
        mandrake.fronted_model(model, x.shape[1:], client, **front)
        for client in range(len(x))
    ]
    sent = [fedsgd(m, a[None], b[None]) for m, a, b in zip(models, x, y)]
    tensors = {n: sum(u.tensors[n] for u in sent) for n in sent[0].tensors}
    total = Update(tensors, "gradient", len(x))
    return torch.cat(
        [mandrake.reconstruct(total, models[0], client=u)[:1] for u in range(len(x))]
    )


def came_back(ctx):
    """Yield each threat model, and the four images that come back under it."""
    x, y = pictures(SIDE)
    patches = pool(ctx, "photos", SIDE)
    untrained = ctx.build("cnn", patches.shape, patches.n_classes, seed=NETWORK)
    untrained, trained = untrained.cpu(), copy.deepcopy(untrained)
    adam = torch.optim.Adam(trained.parameters(), lr=3e-3)
    networks.train(trained, patches, STEPS, NETWORK, optimiser=adam)
    small, deep = copy.deepcopy(untrained), (untrained.double(), trained.cpu().double())
    yield "original", x
    for name, model in zip(("untrained", "trained"), deep):
        single = [fedsgd(model, a[None], b[None]) for a, b in zip(x, y)]
        yield f"one gradient, {name} network", searched(single, model, y[:, None])
    steps = fedavg(deep[0], x[:, None], y[:, None], RATE, share="delta")
    yield "four local steps, one image each", searched([steps], deep[0], y[None])
    total = searched([fedsgd(deep[0], x, y)], deep[0], y[None])
    yield "sum of four clients (secure aggregation)", total
    mean = patches.x.cpu().flatten(1).mean(1)
    yield "the same sum, malicious server", separated(small, x.float(), y, mean)
