"""The learned attacker: the experiments. A trial is a function of its context, its seed and its setting.

Each trial has one network and an attacker trained for it, which attacks updates of clients with other images.
"""

import numpy as np
import pandas as pd
import torch

from fedleak import metrics
from fedleak.attacks.labels import learned
from fedleak.attacks.labels.counts import round_to_total
from fedleak_book.experiments import Experiment, grid
from fedleak.federated.defences import protect, protections
from notebooks.learned.experiments_elsewhere import (  # noqa: F401, declared here too
    DEEP,
    LOCAL,
    MEMBERS,
    MEMBERS_RESNET,
)
from notebooks.learned.experiments_exact import DETERMINED, JOINTLY, SPLITS  # noqa: F401, declared here too
from notebooks.learned.updates import (
    COVERAGE,
    EXPECTED,
    IACC,
    score_drawn,
    draw_update,
    score_all,
    fit_expected,
    images,
    score,
    score_rivals,
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


def bounds_grid(iterations, fewer, most, oracle, **setting):
    """Return settings in which the attacker trains for longer, has more images, or is the oracle."""
    has = {"knows": "other images", **setting}
    return (
        grid(aux_images=most, iterations=iterations, **has)
        + grid(aux_images=fewer, iterations=iterations[-2], **has)
        + grid(
            aux_images=oracle,
            iterations=iterations[-2],
            **{**has, "knows": "clients' images"},
        )
    )


def bounds(ctx, seed, data, knows, aux_images, iterations, batch_size, updates):
    """Score an attacker by its images and training, and an even guess, on one network."""
    model = trained_lenet(ctx, data, seed)
    aux = images(ctx, data, "aux" if knows == "other images" else "clients")
    if aux_images < len(aux):
        aux = aux.split_in_two(seed % 1000, aux_images / len(aux))[0]
    attacker = learned.train(model, aux, batch_size, iterations=iterations, seed=seed)
    generator = torch.Generator().manual_seed(seed ^ 0xB0)
    even = round_to_total(torch.full((10,), batch_size / 10), batch_size)
    for composition in ("unbalanced", "balanced"):
        accuracies = {"learned": [], "even guess": []}
        for _ in range(updates):
            update, truth = draw_update(
                ctx, model, data, composition, batch_size, generator
            )
            accuracies["learned"].append(score(attacker, update, model, truth)["iacc"])
            accuracies["even guess"].append(
                metrics.instance_accuracy(even, truth).item()
            )
        for attack, values in accuracies.items():
            cell = {"composition": composition, "attack": attack}
            yield {**cell, "iacc": np.mean(values)}


BOUNDS = Experiment(
    "bounds",
    bounds,
    quick=bounds_grid(
        [20, 80], [100], 800, 4000, data="MNIST, 5,000", batch_size=8, updates=5
    ),
    paper=bounds_grid(
        [75, 300, 1200],
        [200, 1000],
        10_000,
        60_000,
        data="MNIST",
        batch_size=[8, 32],
        updates=20,
    ),
    trials=(1, 3),
    by=["composition", "attack"],
    values=IACC,
)


DEFENDED = [
    ("noise", 0.01),
    ("noise", 0.1),
    ("clipping and noise", 0.03),
    ("sparsification", 0.9),
    ("sparsification", 0.99),
]


def adaptive(ctx, seed, data, defence, strength, batch_size, iterations, updates):
    """Score every attack on protected updates, and the learned one with and without the defence in its simulation."""
    model, aux = trained_lenet(ctx, data, seed), images(ctx, data, "aux")

    def make_protection(clients, number):
        return protections()[defence].make(strength, model, clients, number)

    how = {"iterations": iterations, "seed": seed}
    learners = {"adaptive": make_protection, "learned": None}
    for name, simulated in learners.items():
        learners[name] = learned.train(model, aux, batch_size, **how, defence=simulated)
    generator, rows, prepared = torch.Generator().manual_seed(seed ^ 0xADA), [], {}
    for number in range(updates):
        update, truth = draw_update(
            ctx, model, data, "unbalanced", batch_size, generator
        )
        update = protect(update, make_protection(1, number))
        for name, attacker in learners.items():
            rows.append({"attack": name, **score(attacker, update, model, truth)})
        rows.extend(score_rivals(update, model, aux, truth, number, prepared=prepared))
    rows = pd.DataFrame(rows).drop(columns="width")
    mean = rows.groupby("attack", sort=False).mean()
    yield from mean.reset_index().to_dict("records")


ADAPTIVE = Experiment(
    "adaptive",
    adaptive,
    quick=grid(
        data="MNIST, 5,000",
        defence="noise",
        strength=0.1,
        batch_size=8,
        iterations=60,
        updates=5,
    ),
    paper=[
        dict(
            data="MNIST",
            defence=d,
            strength=s,
            batch_size=32,
            iterations=300,
            updates=20,
        )
        for d, s in DEFENDED
    ],
    trials=(1, 3),
    by="attack",
    values=IACC | COVERAGE,
)
