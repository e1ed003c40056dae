"""The arena's open contest: frozen networks and updates, and what an attack that is entered answers on them.

The data are embedded and the seeds declared, so that anybody makes the same updates; ``data/contest.json`` has their
fingerprints. After a change raise `CONTEST`, run this file, and enter the attacks of ``data/entries`` again.
"""

import json

import torch

from fedleak import metrics
from fedleak_book import paths
from fedleak.attacks import registry
from fedleak.attacks.contest import contest
from fedleak.data import compose, draw
from fedleak_book.experiments import (
    Context,
    Experiment,
    entering,
    grid,
    networks,
    spawned,
)
from fedleak_book.experiments import trained_once
from fedleak_book.experiments.experiment import seeds_of
from fedleak_book.experiments.training import set_norms
from fedleak.federated import fedsgd
from fedleak.files import write_text
from fedleak_book.experiments.kinds import NUMBER
from notebooks.arena.experiments_updates import CLIENTS, SCHEMES, SETS
from notebooks.arena.experiments_updates import held_by, images, second_round

CONTEST = 1
NETWORKS, UPDATES = 10, 2  # of a cell, and of each of its networks
WHO = registry.WITH_AUXILIARY
ITERATIONS = 300  # of attacks that are trained
_USUAL = {
    "net": "lenet",
    "data": "MNIST, 5,000",
    "state": "trained",
    "batch_size": 32,
    "composition": "unbalanced",
    "scheme": "FedSGD",
}
CELLS = {
    f"LeNet, {state}, {size}": {**_USUAL, "state": state, "batch_size": size}
    for state in ("untrained", "trained")
    for size in (8, 32, 128)
} | {
    "LeNet, trained, 32 balanced": {**_USUAL, "composition": "balanced"},
    "LeNet, trained, 32 by FedAvg": {**_USUAL, "scheme": "FedAvg"},
    "CNN, trained, 32": {**_USUAL, "net": "cnn"},
    "LeNet, trained, 32 photographs": {**_USUAL, "data": "photographs"},
}
"""Unless a name says otherwise: digits, unbalanced batches with the given number of samples, one step of SGD."""


# --- networks, updates and their labels ---
def training(ctx, model, data, seed):
    """Train a network in place, in double precision: in single, the rounding of another machine grows to another network."""
    hook = model.register_forward_pre_hook(lambda _, given: given[0].double())
    networks.train(model.double(), images(ctx, data), SETS[data]["steps"], seed)
    hook.remove()
    model.float()


def network(ctx, seed, net, data, state):
    """A network in evaluation mode, fresh, or trained once and kept."""
    pool, weights = images(ctx, data), spawned(seed, "weights")
    model = ctx.build(net, pool.shape, pool.n_classes, seed=weights)
    if state == "trained":
        folder, training_seed = (
            paths.units() / "arena" / "networks",
            spawned(seed, "training"),
        )
        model = trained_once(
            ctx, training, model, folder, data=data, seed=training_seed
        )
    return set_norms(model, pool.x[:200])


def labels_of(ctx, cell, seed, number):
    """The labels of a round, ``[clients, steps, B]``, and what draws their images."""
    setting = CELLS[cell]
    generator = torch.Generator().manual_seed(spawned(seed, f"batch {number}"))
    steps = 2 * SCHEMES[setting["scheme"]].steps if setting["scheme"] in SCHEMES else 1
    size = setting["batch_size"], images(ctx, setting["data"]).n_classes
    size = *size, CLIENTS if steps > 1 else 1, generator, steps
    return compose(setting["composition"], *size), generator


def truth(ctx, cell):
    """The counts ``[n]`` behind each update of a cell, by network and update; this takes no network."""
    n, counts = images(ctx, CELLS[cell]["data"]).n_classes, {}
    for trial, seed in enumerate(seeds_of(0, NETWORKS)):
        for number in range(UPDATES):
            labels = labels_of(ctx, cell, seed, number)[0][0]
            last_labels = labels[len(labels) // 2 :]  # the second of two rounds
            counts[f"{trial}.{number}"] = metrics.counts(last_labels.flatten(), n)
    return counts


def frozen(ctx, cell, seed):
    """What the attacker is shown of a network's updates: what `contest` takes."""
    setting, cases = CELLS[cell], []
    pool, aux = (images(ctx, setting["data"], use) for use in ("clients", "aux"))
    model = network(ctx, seed, *(setting[k] for k in ("net", "data", "state")))
    knowledge = held_by(aux, spawned(seed, "attacker"), iterations=ITERATIONS)
    for number in range(UPDATES):
        labels, generator = labels_of(ctx, cell, seed, number)
        x, y = pool.x[draw(pool, labels, generator)], labels
        more = {"update": fedsgd(model, x[0, 0], y[0, 0]), "model": model}
        if scheme := SCHEMES.get(setting["scheme"]):
            before, update, plain, history = second_round(model, scheme, x, y)
            more = {"update": update, "model": before, "plain": plain}
            knowledge = knowledge | {"scheme": scheme, "history": history}
        cases.append({"adversary": WHO, "knowledge": knowledge, **more})
    return cases


# --- the trial ---
def printed(cases):
    """The fingerprint of a network's updates."""
    return entering.fingerprint((case["model"], case["update"]) for case in cases)


def entered(ctx, seed, entrant, cell, attack, digest):
    """What one attack answers on a network's updates: counts, and no score; whether they are the frozen ones."""
    cases, preparations = frozen(ctx, cell, seed), {}
    off = entering.compared(printed(cases), cell, seed)
    for number, case in enumerate(cases):
        if CELLS[cell]["scheme"] in SCHEMES:
            preparations = {}  # every update has a model of its own
        (attempt,) = contest(**case, attacks=[entrant], prepared=preparations)
        row = {"update": number, "off": off, "seconds": attempt.seconds}
        yield {**row, **entering.answer(attempt)}


def experiment(attack, digest):
    """The contest of one attack, whose file has this digest; no record depends on it."""
    settings = grid(cell=[*CELLS], attack=attack.name, digest=digest)
    return Experiment(
        "entered",
        entered,
        quick=settings,
        paper=settings,
        trials=NETWORKS,
        values={"seconds": NUMBER},
        by="update",
        facts=("counts", "reason", "off"),
        fixed={"entrant": attack},
        version=CONTEST,
    )


if __name__ == "__main__":
    context, seeds = Context("cpu"), seeds_of(0, NETWORKS)
    torch.set_num_threads(1)
    cells = {c: {s: printed(frozen(context, c, s)) for s in seeds} for c in CELLS}
    fingerprints = {"torch": torch.__version__, "cells": cells}
    write_text(paths.contest(), json.dumps(fingerprints, indent=1) + "\n")
