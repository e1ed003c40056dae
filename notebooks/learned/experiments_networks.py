"""What the learned attacker's experiments share: networks, the clients' updates, and how an attack is scored."""

from functools import cache

import numpy as np
import pandas as pd
import torch
from scipy.optimize import isotonic_regression
from torch import nn

from fedleak import metrics
from fedleak_book import paths
from fedleak.attacks import registry
from fedleak.attacks.contest import contest, entrants
from fedleak.attacks.labels.counts import round_to_total
from fedleak_book.experiments import networks, trained_once
from fedleak_book.experiments.training import set_norms
from fedleak.data import compose, draw
from fedleak.federated import Update, fedsgd
from fedleak_book.experiments.kinds import MEAN, NUMBER, rate
from fedleak.models import head, head_pass

IACC = dict(iacc=rate("batch_size"))
COVERAGE = dict(coverage=rate(10))  # of the counts of ten classes
SCORES = IACC | COVERAGE | dict(width=NUMBER)
EXPECTED = SCORES | dict(expected=MEAN)  # with what the attacker itself expects

SETS = {  # what clients hold; the attacker's images, of the other split; training steps
    "MNIST": {"name": "mnist", "aux": None, "steps": 600},
    "CIFAR-10": {"name": "cifar10", "aux": None, "steps": 1500},
    "CIFAR-100, 1,117": {"name": "cifar100", "aux": None, "steps": 300},
    "MNIST, 5,000": {"name": "mnist5k", "aux": None, "steps": 150},
    "photographs": {"name": "photos", "aux": None, "steps": 40},
}
FORMS = [a for a in entrants() if not a.sends and a.name not in ("iDLG", "GI")]
WHOLE = "RLU, whole head"
HALVES = ("members", "others")
BEST, MOST = "best answer to the bias", "most that the bias gives"
OURS = ["learned", WHOLE, "prior guess", "random guess", BEST, MOST]


def halves(ctx, data):
    """The clients' images in two halves: a network is trained on the first, the members."""

    def split():
        return dict(zip(HALVES, images(ctx, data).split_in_two(0)))

    return ctx.once(("halves", data), split)


def images(ctx, data, use="clients"):
    """The images of the clients, of one half of them, or of the attacker ("aux")."""
    dataset = SETS[data]
    if use == "clients":
        return ctx.images(dataset["name"])
    if use != "aux":
        return halves(ctx, data)[use]
    return ctx.images(dataset["name"], "test", limit=dataset["aux"])


def fit(ctx, model, data, generator_seed, steps, use="clients"):
    """Train in place: SGD with momentum on the clients' images, or on the members."""
    networks.train(model, images(ctx, data, use), steps, generator_seed)


def train_or_load(ctx, model, **how):
    """The model, trained by `fit` or with the weights that the same training has left."""
    return trained_once(ctx, fit, model, paths.units() / "learned" / "weights", **how)


def trained(ctx, data, s):
    """A LeNet trained from the seed s."""
    pool = images(ctx, data)
    model = ctx.build("lenet", pool.shape, pool.n_classes, seed=s)
    how = {"data": data, "generator_seed": s, "steps": SETS[data]["steps"]}
    return train_or_load(ctx, model, **how).eval()


UNTRAINED, TRAINED, HALF = "untrained", "trained", "trained on half"


def network(ctx, net, data, state, copy=0, steps=None):
    """One of the arena's networks: batch norm's statistics are set on 200 images and frozen."""
    part = {"use": "members"} if state == HALF else {}
    usual = SETS[data]["steps"]
    steps = steps or (usual if net == "lenet" else min(600, usual))

    def make():
        pool = images(ctx, data, **part)
        model = ctx.build(net, pool.shape, pool.n_classes, seed=copy)
        if state != UNTRAINED:
            how = {"data": data, "generator_seed": copy, "steps": steps, **part}
            train_or_load(ctx, model, **how)
        return set_norms(model, pool.x[:200])

    return ctx.once(("network", net, data, state, copy, steps), make, most=1)


def one_step(model, pool, index):
    """The update of one client in one step."""
    return fedsgd(model, pool.x[index], pool.y[index])


def from_features(model):
    """What makes the head's part of updates of a model, from one pass over all images of each pool."""
    last, passed = head(model), cache(lambda pool: head_pass(model, pool.x))

    def send(_, pool, index):
        features = passed(pool)
        truth = nn.functional.one_hot(pool.y[index], pool.n_classes)
        errors = features.probabilities[index] - truth
        weight = errors.mT @ features.inputs[index] / len(index)
        tensors = {last.weight: weight, last.bias: errors.mean(0)}
        return Update(tensors, "gradient", len(index))

    return send


def client(
    ctx, model, data, composition, batch_size, generator, send=one_step, use="clients"
):
    """One client's update, and its counts."""
    pool = images(ctx, data, use)
    labels = compose(composition, batch_size, pool.n_classes, 1, generator)
    index = draw(pool, labels, generator)[0]
    truth = metrics.counts(labels[0], pool.n_classes)
    return send(model, pool, index), truth


def sure(low, high, truth):
    """How often the intervals hold the counts, and how wide they are, in samples."""
    inside = ((low.cpu() <= truth) & (truth <= high.cpu())).double()
    return {"coverage": inside.mean().item(), "width": (high - low).mean().item()}


def read(attacker, update, model, truth):
    """Score the learned attacker on one update, with its intervals."""
    result = attacker.read(update, model)
    iacc = metrics.braun_blanquet(result.counts.cpu(), truth).item()
    return {"iacc": iacc, **sure(result.low, result.high, truth)}


def scored(name, counts, truth):
    """A row of an attack: the share of labels that it found."""
    return {"attack": name, "iacc": metrics.braun_blanquet(counts.cpu(), truth).item()}


def rivals(update, model, aux, truth, number, plain=None, prepared=None, **more):
    """Score every other attack on the same update, as far as it goes; `prepared` are those of the model."""
    who, knowledge = registry.WITH_AUXILIARY, {"aux": aux, "seed": number, **more}
    how = {"attacks": FORMS, "plain": plain, "kept": prepared}
    for attempt in contest(update, model, who, knowledge, **how):
        if attempt.counts is not None:
            yield scored(attempt.attack.name, attempt.counts, truth)


def even_guess(update, model, aux, truth, number=0, prepared=None):
    """Score the samples spread evenly over the classes."""
    even = torch.full(truth.shape, update.samples / len(truth))
    yield scored("even guess", round_to_total(even, update.samples), truth)


NOTHING = {"coverage": np.nan, "width": np.nan}


def contested(
    ctx, model, data, attacker, size, updates, generator, send=one_step, others=rivals
):
    """Every attack that answers all of the same updates, by composition: the mean of its scores."""
    aux, shape, prepared = images(ctx, data, "aux"), (size, generator, send), {}
    for composition in ("unbalanced", "balanced"):
        rows = []
        for number in range(updates):
            update, truth = client(ctx, model, data, composition, *shape)
            rows.append({"attack": "learned", **read(attacker, update, model, truth)})
            rows.extend(others(update, model, aux, truth, number, prepared=prepared))
        groups = pd.DataFrame(rows).groupby("attack", sort=False)
        for row in (
            groups.mean()[groups.size() == updates].reset_index().to_dict("records")
        ):
            yield {**NOTHING, "composition": composition, **row}


def by_width(attacker, drawn):
    """Of each batch drawn as the attacker simulates them what it finds and how sure it is, the surest first."""
    features, truth = drawn
    low, high = attacker.intervals(features)
    scores = {
        "iacc": metrics.instance_accuracy(attacker.counts(features), truth),
        "coverage": ((low <= truth) & (truth <= high)).double().mean(-1),
        "width": (high - low).mean(-1),
    }
    scores = pd.DataFrame(
        {name: values.cpu().double() for name, values in scores.items()}
    )
    return scores.sort_values("width", ignore_index=True, kind="stable")


def expectation(attacker, model, aux, seed, batch_size, generator):
    """What the attacker of this seed expects to find by the width of its intervals.

    A falling curve, fitted to batches of the images that it has kept from its training, the fifth that `train` splits off.
    """
    held_out = aux.split_in_two(seed, 0.8)[1]
    drawn = attacker.reader.make_pool(model, held_out).draw(2000, batch_size, generator)
    scores = by_width(attacker, drawn)
    curve = isotonic_regression(scores["iacc"], increasing=False).x
    return lambda width: np.interp(width, scores["width"], curve)


SIMULATED = {  # which batches, the surest first
    "simulated": lambda batches: batches,
    "simulated, surest fifth": lambda batches: batches[: len(batches) // 5],
    "simulated, least sure fifth": lambda batches: batches[-(len(batches) // 5) :],
}


def as_simulated(attacker, drawn, expects):
    """What the attacker finds of batches drawn as it simulates them, what it expects to find, and how sure it is."""
    scores = by_width(attacker, drawn)
    scores["expected"] = expects(scores["width"])
    for composition, part in SIMULATED.items():
        row = part(scores).mean().to_dict()
        yield {"attack": "learned", "composition": composition, **row}
