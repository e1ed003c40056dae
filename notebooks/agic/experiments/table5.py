"""AGIC: Tables V and VI, images matched between epochs, and inverted together."""

from itertools import product

import pandas as pd
import torch
from scipy.optimize import linear_sum_assignment

from fedleak.attacks.images import agic, invg
from fedleak_book.experiments import Experiment, grid
from fedleak.data import draw
from fedleak.federated import fedsgd
from fedleak_book.experiments.kinds import MEAN, rate
from notebooks.agic.clients import CIFAR100, EVAL, GIVEN, LEVEL, PHOTOS, RULES, SCORED
from notebooks.agic.clients import SCORES, SYNTHETIC, batches, network, pool, quality
from notebooks.agic.clients import scheduled


def shuffled(labels, batch_size, generator):
    """A random order in which no batch holds a label twice."""
    while True:
        order = torch.randperm(len(labels), generator=generator)
        parts = labels[order].split(batch_size)
        if batch_size == 1 or all(len(set(p.tolist())) == batch_size for p in parts):
            return order


def rough(updates, model, labels, iterations, s, snapshots=()):
    """InvG for a few iterations: {iteration: images [N, samples, ...]}."""
    more = dict(iterations=iterations, seed=s, snapshots=snapshots)
    more["descent"] = scheduled(invg.INVG, LEVEL)
    done = invg.invert_many(updates, model, labels, **more)
    return {**done.snapshots, iterations: done.images}


def origins(recovered, x, order):
    """Which originals a batch's reconstructions are of, by the best assignment: for scoring alone."""
    errors = torch.cdist(recovered.flatten(1), x[order].flatten(1)).cpu().numpy()
    return order[torch.as_tensor(linear_sum_assignment(errors)[1])]


def matching(ctx, seed, data, net, side, matched, batch_size, iterations):
    """Share of images whose partner in the next epoch is found, by labels and pooling."""
    images, generator = pool(ctx, data, side), torch.Generator().manual_seed(seed)
    index = draw(images, torch.arange(matched) % (matched // 2), generator)
    x, y = images.x[index], images.y[index]
    recovered, places, lists = {}, {}, []
    points = tuple(t for t in (25, 50, 100) if t < iterations)
    for trained in (0, 20):
        model = network(ctx, net, data, side, trained)
        parts = shuffled(y.cpu(), batch_size, generator).split(batch_size)
        updates = [fedsgd(model, x[o], y[o]) for o in parts]
        labels = torch.stack([invg.inferred(u, model) for u in updates])
        lists.append(labels.repeat_interleave(batch_size, 0))
        for t, done in rough(updates, model, labels, iterations, seed, points).items():
            recovered.setdefault(t, []).append(done.flatten(0, 1))
            whose = torch.cat([origins(d, x, o) for d, o in zip(done, parts)])
            places.setdefault(t, []).append(whose)
    for t, rule, (pooling, size) in product(
        recovered, RULES, {"no pool": 1, "pool": 2}.items()
    ):
        allowed = agic.share_a_label(*lists) if rule == "labels" else None
        partner = agic.greedy_pairs(agic.similarity(*recovered[t], size), allowed)
        right = (places[t][0] == places[t][1][partner]).double().mean().item()
        row = {"labels": rule, "pooling": pooling, "rate": right}
        yield {"iteration": t, "final": t == iterations, **row}


TABLE5 = Experiment(
    "table5",
    matching,
    quick=grid(**PHOTOS, matched=8, batch_size=[1, 4], iterations=25),
    paper=grid(**CIFAR100, matched=24, batch_size=[1, 4], iterations=150),
    trials=(1, 3),
    by=("iteration", "final", "labels", "pooling"),
    values=dict(rate=rate("matched")),
    fixed=dict(schedule=LEVEL, between="20 steps") | EVAL,
)


def joined(ctx, seed, data, net, side, matched, before, iterations):
    """Images from epoch 1, epoch 2, and the matched two together; a wrong match counts as it falls."""
    models = [network(ctx, net, data, side, t) for t in (0, 20)]
    x, y = (part.flatten(0, 2) for part in batches(ctx, [seed], data, side, 1, matched))
    order = torch.randperm(matched, generator=torch.Generator().manual_seed(seed))
    first, second = (
        [fedsgd(m, x[i, None], y[i, None]) for i in o]
        for m, o in zip(models, (torch.arange(matched), order))
    )
    labels = [
        torch.stack([invg.inferred(u, m) for u in us])
        for us, m in zip((first, second), models)
    ]
    images = [
        rough(us, m, named, before, seed)[before][:, 0]
        for us, m, named in zip((first, second), models, labels)
    ]
    partner = agic.greedy_pairs(agic.similarity(*images), agic.share_a_label(*labels))
    back, (first_model, two) = order.argsort(), models
    again = [second[i] for i in back]
    matched_to = [second[i] for i in partner]
    runs = {
        "first": ([first], [first_model], [labels[0]]),
        "second": ([again], [two], [labels[1][back]]),
        "both": ([first, matched_to], models, [labels[0], labels[1][partner]]),
    }
    more = dict(iterations=iterations, seed=seed, descent=scheduled(agic.AGIC, LEVEL))
    right = (order[partner] == torch.arange(matched)).double().mean().item()
    for which, views in runs.items():
        recovered = agic.invert_many(*views, weights=lambda u, m: {}, **more).images
        rows = pd.DataFrame(
            quality(ctx, range(matched), x[:, None], recovered, data, side)
        )
        scores = rows.drop(columns="seed").mean().to_dict()
        yield {"epochs": which, "right": right, **scores}


TABLE6 = Experiment(
    "table6",
    joined,
    quick=grid(**SYNTHETIC, matched=3, before=20, iterations=30),
    paper=grid(**CIFAR100, matched=5, before=150, iterations=400),
    trials=(1, 5),
    by="epochs",
    values=SCORES | dict(right=MEAN),
    facts="images",
    version=SCORED,
    fixed=dict(batch_size=1, schedule=LEVEL, between="20 steps") | GIVEN,
)
