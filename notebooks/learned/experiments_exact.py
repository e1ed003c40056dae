"""The learned attacker: exact recovery from the head's gradient alone."""

import numpy as np
import torch
from scipy.spatial.distance import cdist
from torch import nn

from fedleak import metrics
from fedleak.attacks.labels.exact import head_splitting
from fedleak.attacks.labels.exact.joint import SampleEquations
from fedleak_book.experiments import Experiment, grid, spawned
from fedleak_book.experiments.kinds import MEAN, NUMBER
from fedleak.models import head, head_pass
from notebooks.learned.updates import TRAINED, UNTRAINED, images, network, send_step


# --- exact recovery from the head's gradient ---
ONE = 1e-3  # largest relative distance of inputs of the same sample


def gradients(ctx, seed, net, data, state, batch_size, updates):
    """Yield the head's weights with its bias, ``[n, d + 1]``, and a batch: inputs ``[B, d + 1]``, labels, B times gradient.

    No image occurs twice in a batch; all tensors are in double precision.
    """
    model, pool = network(ctx, net, data, state, seed), images(ctx, data)
    generator = torch.Generator().manual_seed(spawned(seed, "batches"))
    pool = pool.take(torch.randperm(len(pool), generator=generator)[:2000])
    last = head(model).layer
    weight = torch.cat([last.weight, last.bias[:, None]], 1).detach().double()
    inputs = with_one(model, pool)
    for _ in range(updates):
        index = torch.randperm(len(pool), generator=generator)[:batch_size]
        samples, labels = inputs[index], pool.y[index]
        yield (
            weight,
            samples,
            labels,
            head_splitting.compute_errors(samples, weight, labels).T @ samples,
        )


def with_one(model, pool):
    """Return the head's inputs with a last entry 1, in double precision."""
    return nn.functional.pad(head_pass(model, pool.x).inputs.double(), (0, 1), value=1)


def determined(ctx, seed, net, data, state, batch_size, precision, updates):
    """Measure whether head splitting recovers complete batches, and other solutions of the samples' equations.

    The gradient is in double precision, or rounded to single.
    """
    batches = gradients(ctx, seed, net, data, state, batch_size, updates)
    row = dict.fromkeys(("read", "wrong", "found", "strange"), 0.0)
    for number, (weight, samples, labels, total) in enumerate(batches):
        if precision == "single":
            total = total.float().double()
        draws = torch.Generator().manual_seed(spawned(seed, f"starts {number}"))
        try:
            space = head_splitting.find_space(total, batch_size)
            solutions, _ = head_splitting.search_samples(space, weight, draws)
            apart = torch.cdist(solutions, samples) / samples.norm(dim=1)
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


# --- with more samples than half the classes ---
STARTS = 12  # searches with the right labels, and as many with one wrong
EXACT, LEAST = (
    1e-10,
    1e-10,
)  # relative error of a solution; smallest relative singular value of an isolated one


def jointly(ctx, seed, net, data, state, batch_size, updates):
    """Solve all samples' equations together, with the right labels and with one wrong label.

    Searches start from inputs of other images of the assumed classes.
    """
    model, aux = network(ctx, net, data, state, seed), images(ctx, data, "aux")
    others, generator = with_one(model, aux).numpy(), np.random.default_rng(seed)
    row = dict.fromkeys(("single", "read", "strange", "wrong"), 0.0)

    def solve(weight, tried, total):
        start = [generator.choice(others[(aux.y == y).numpy()]) for y in tried]
        solution, residual = SampleEquations(weight, tried, total).solve(
            np.stack(start)
        )
        return solution if residual <= EXACT * np.linalg.norm(total) else None

    for batch in gradients(ctx, seed, net, data, state, batch_size, updates):
        weight, samples, labels, total = (part.numpy() for part in batch)
        joint, near = SampleEquations(weight, labels, total), []
        values = np.linalg.svd(
            joint.jacobian(joint.project_inputs(samples)), compute_uv=False
        )
        row["single"] += values[-1] > LEAST * values[0]
        for _ in range(STARTS):
            if (solution := solve(weight, labels, total)) is not None:
                apart = cdist(solution, samples).min(0) / np.linalg.norm(
                    samples, axis=1
                )
                near.append((apart <= ONE).all())
        row["read"] += any(near)
        row["strange"] += not all(near)
        for which in generator.integers(batch_size, size=STARTS):
            tried = labels.copy()
            tried[which] = (tried[which] + generator.integers(1, 10)) % 10
            row["wrong"] += solve(weight, tried, total) is not None
    return {name: float(total) / updates for name, total in row.items()}


JOINTLY = Experiment(
    "jointly",
    jointly,
    quick=grid(
        net="lenet", data="MNIST, 5,000", state=UNTRAINED, batch_size=6, updates=1
    ),
    paper=grid(
        net="lenet",
        data="MNIST",
        state=[TRAINED, UNTRAINED],
        batch_size=[5, 6, 7, 8, 9],
        updates=4,
    ),
    trials=(1, 5),
    values=dict(single=MEAN, read=MEAN, strange=MEAN, wrong=NUMBER),
)


SENT = {  # changes of the client's gradient before it is sent
    "as it is": lambda t, generator: t,
    "a thousandth of noise": lambda t, generator: (
        t + 1e-3 * t.std() * torch.randn(t.shape, generator=generator)
    ),
    "eight bits": lambda t, generator: (t * 127 / t.abs().max()).round(),
}


def splits(ctx, seed, net, data, state, batch_size, sent, updates):
    """Measure whether head splitting recovers updates in single precision, with auxiliary images and without."""
    model, pool = network(ctx, net, data, state, seed), images(ctx, data)
    attacks = {
        "with images": head_splitting.prepare(model, images(ctx, data, "aux")),
        "without": head_splitting.prepare(model),
    }
    generator = torch.Generator().manual_seed(spawned(seed, "batches"))
    rows = {name: {"read": 0.0, "wrong": 0.0} for name in attacks}
    for _ in range(updates):
        index = torch.randperm(len(pool), generator=generator)[:batch_size]
        truth = metrics.counts(pool.y[index], pool.n_classes)
        update = send_step(model, pool, index)
        changed = {n: SENT[sent](t, generator) for n, t in update.tensors.items()}
        for name, attack in attacks.items():
            try:
                right = torch.equal(
                    attack.recover(update.replace(changed)).counts, truth
                )
            except ValueError:  # refused
                continue
            rows[name]["read" if right else "wrong"] += 1 / updates
    yield from ({"images": name, **row} for name, row in rows.items())


SPLITS = Experiment(
    "splits",
    splits,
    quick=grid(
        net="lenet",
        data="MNIST, 5,000",
        state=UNTRAINED,
        batch_size=6,
        sent=[*SENT],
        updates=2,
    ),
    paper=grid(
        net="lenet",
        data="MNIST",
        state=[TRAINED, UNTRAINED],
        batch_size=[2, 4, 6, 8],
        sent=[*SENT],
        updates=5,
    ),
    trials=(1, 5),
    by="images",
    values=dict(read=MEAN, wrong=MEAN),
)
