"""What the learned attacker's parts bring, and what the head alone determines."""

from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
import torch

from fedleak.attacks.labels import head_splitting, learned
from fedleak.attacks.labels.reader import Reader
from fedleak_book.experiments import Experiment, grid, spawned
from fedleak_book.experiments.kinds import MEAN, NUMBER
from fedleak.models import head, head_pass
from notebooks.learned.experiments_networks import (
    IACC,
    TRAINED,
    UNTRAINED,
    client,
    from_features,
    images,
    network,
    read,
)

# --- what its parts bring ---
PART = {  # by what it does without: what is changed
    "nothing": nullcontext,
    "signs": lambda: patch.object(Reader, "features", linear),
    "copies": lambda: patch.object(learned, "shifted", lambda images: images),
}


def linear(reader, seen):
    """What the features are without extremes and signs."""
    rows = seen.entries.unflatten(-1, (reader.n_classes, -1))
    return rows[..., : reader.linear]


def parts(ctx, seed, data, aux_images, batch_size, iterations, updates, without):
    """One LeNet: what an attacker finds that does without a part, in unbalanced batches."""
    model, aux = network(ctx, "lenet", data, TRAINED, seed), images(ctx, data, "aux")
    if aux_images < len(aux):
        aux = aux.split_in_two(seed % 1000, aux_images / len(aux))[0]
    generator = torch.Generator().manual_seed(spawned(seed, "batches"))
    shape = "unbalanced", batch_size, generator, from_features(model)
    with PART[without]():
        how = {"iterations": iterations, "seed": seed}
        attacker = learned.train(model, aux, batch_size, **how)
        found = [
            read(attacker, update, model, truth)["iacc"]
            for update, truth in (
                client(ctx, model, data, *shape) for _ in range(updates)
            )
        ]
    return {"iacc": np.mean(found)}


PARTS = Experiment(
    "parts",
    parts,
    quick=grid(
        data="MNIST, 5,000",
        aux_images=800,
        batch_size=8,
        iterations=40,
        updates=10,
        without=[*PART],
    ),
    paper=grid(
        data="MNIST",
        aux_images=[500, 10_000],
        batch_size=[8, 128],
        iterations=300,
        updates=100,
        without=[*PART],
    ),
    trials=(1, 3),
    values=IACC,
)


# --- what the head alone determines ---
ONE = 1e-3  # relative distance of inputs that are one sample's


def determined(ctx, seed, net, data, state, batch_size, precision, updates):
    """Whether head splitting reads batches whole, and what else solves the samples' equations.

    Samples are drawn one by one, without an image twice; inputs and labels make the head's gradient, in double
    precision or rounded to single.
    """
    model, pool = network(ctx, net, data, state, seed), images(ctx, data)
    generator = torch.Generator().manual_seed(spawned(seed, "batches"))
    pool = pool.take(torch.randperm(len(pool), generator=generator)[:2000])
    last, inputs = head(model).layer, head_pass(model, pool.x).inputs.double()
    inputs = torch.nn.functional.pad(inputs, (0, 1), value=1.0)
    weight = torch.cat([last.weight, last.bias[:, None]], 1).detach().double()
    row = dict.fromkeys(("read", "wrong", "found", "strange"), 0.0)
    for number in range(updates):
        index = torch.randperm(len(pool), generator=generator)[:batch_size]
        own, labels = inputs[index], pool.y[index]
        total = head_splitting.errors_of(own, weight, labels).T @ own
        if precision == "single":
            total = total.float().double()
        draws = torch.Generator().manual_seed(spawned(seed, f"starts {number}"))
        try:
            where = head_splitting.space(total, batch_size)
            found, _ = head_splitting.search(where, weight, draws)
            apart = torch.cdist(found, own) / own.norm(dim=1)
            row["strange"] += int((apart > ONE).all(1).sum())
            row["found"] += int((apart <= ONE).any(0).sum()) / batch_size
            mean, starts = total / batch_size, spawned(seed, f"draws {number}")
            _, answer = head_splitting.split(mean, weight, batch_size, starts)
            right = torch.equal(answer.sort().values, labels.sort().values)
            row["read" if right else "wrong"] += 1
        except ValueError:  # refused
            pass
    return {name: total / updates for name, total in row.items()}


DETERMINED = Experiment(
    "determined",
    determined,
    quick=grid(
        net="lenet",
        data="MNIST, 5,000",
        state=UNTRAINED,
        batch_size=[2, 4],
        precision="double",
        updates=2,
    ),
    paper=grid(
        net="lenet",
        data="MNIST",
        state=[TRAINED, UNTRAINED],
        batch_size=[2, 3, 4, 5, 6, 7],
        precision=["double", "single"],
        updates=10,
    )
    + grid(
        net="resnet20",
        data="CIFAR-100, 1,117",
        state=[TRAINED, UNTRAINED],
        batch_size=[8, 16, 24, 32],
        precision=["double", "single"],
        updates=2,
    ),
    trials=(1, 5),
    values=dict(read=MEAN, wrong=MEAN, found=MEAN, strange=NUMBER),
)
