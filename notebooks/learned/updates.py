"""Functions that the learned attacker's experiments share: networks, clients' updates, and scores of attacks."""

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from fedleak import metrics
from fedleak_book import paths
from fedleak.attacks import registry
from fedleak.attacks.contest import contest, entrants
from fedleak_book.experiments import networks, trained_once
from fedleak.data import compose, draw
from fedleak.federated import fedsgd
from fedleak_book.experiments.kinds import MEAN, NUMBER, rate

IACC = dict(iacc=rate("batch_size"))
COVERAGE = dict(coverage=rate(10))  # of the counts of ten classes
SCORES = IACC | COVERAGE | dict(width=NUMBER)
EXPECTED = SCORES | dict(expected=MEAN)  # with the iAcc that the attacker expects

SETS = {  # the clients' data set; number of the attacker's images, of the other split; training steps
    "MNIST": {"name": "mnist", "aux": None, "steps": 600},
    "CIFAR-10": {"name": "cifar10", "aux": None, "steps": 1500},
    "MNIST, 5,000": {"name": "mnist5k", "aux": None, "steps": 150},
}
RIVALS = [a for a in entrants() if not a.sends and a.name not in ("iDLG", "GI")]
WHOLE = "RLU, whole head"
HALVES = ("members", "others")
BEST, MOST = "best answer to the bias", "most that the bias gives"
UNPUBLISHED = ["learned", WHOLE, "prior guess", "random guess", BEST, MOST]


def images(ctx, data, use="clients"):
    """Return the images of the clients, or of the attacker ("aux")."""
    dataset = SETS[data]
    if use == "clients":
        return ctx.images(dataset["name"])
    return ctx.images(dataset["name"], "test", limit=dataset["aux"])


def fit(ctx, model, data, generator_seed, steps):
    """Train in place: SGD with momentum on the clients' images."""
    networks.train(model, images(ctx, data), steps, generator_seed)


def train_or_load(ctx, model, **how):
    """Train the model by `fit`, or load the weights of an earlier equal training."""
    return trained_once(ctx, fit, model, paths.units() / "learned" / "weights", **how)


def trained_lenet(ctx, data, s):
    """Return a LeNet, trained from the seed s."""
    pool = images(ctx, data)
    model = ctx.build("lenet", pool.shape, pool.n_classes, seed=s)
    how = {"data": data, "generator_seed": s, "steps": SETS[data]["steps"]}
    return train_or_load(ctx, model, **how).eval()


UNTRAINED, TRAINED = "untrained", "trained"


def draw_update(ctx, model, data, composition, batch_size, generator):
    """Draw a batch; return the client's update, of one step, and its counts."""
    pool = images(ctx, data)
    labels = compose(composition, batch_size, pool.n_classes, 1, generator)
    index = draw(pool, labels, generator)[0]
    truth = metrics.counts(labels[0], pool.n_classes)
    return fedsgd(model, pool.x[index], pool.y[index]), truth


def score_ends(low, high, truth):
    """Return the coverage of intervals, and their mean width in samples."""
    inside = ((low.cpu() <= truth) & (truth <= high.cpu())).double()
    return {"coverage": inside.mean().item(), "width": (high - low).mean().item()}


def score(attacker, update, model, truth):
    """Score the learned attacker on one update, with its intervals."""
    result = attacker.read(update, model)
    iacc = metrics.braun_blanquet(result.counts.cpu(), truth).item()
    return {"iacc": iacc, **score_ends(result.low, result.high, truth)}


def score_row(name, counts, truth):
    """Return a row with an attack's iAcc."""
    return {"attack": name, "iacc": metrics.braun_blanquet(counts.cpu(), truth).item()}


def score_rivals(update, model, aux, truth, number, prepared):
    """Yield the score of each other attack that answers the same update; `prepared` caches attacks of the model."""
    who, knowledge = registry.WITH_AUXILIARY, {"aux": aux, "seed": number}
    how = {"attacks": RIVALS, "prepared": prepared}
    for attempt in contest(update, model, who, knowledge, **how):
        if attempt.counts is not None:
            yield score_row(attempt.attack.name, attempt.counts, truth)


NO_ENDS = {"coverage": np.nan, "width": np.nan}


def score_all(ctx, model, data, attacker, size, updates, generator):
    """Yield the mean scores of each attack that answers all updates, by composition."""
    aux, shape, prepared = images(ctx, data, "aux"), (size, generator), {}
    for composition in ("unbalanced", "balanced"):
        rows = []
        for number in range(updates):
            update, truth = draw_update(ctx, model, data, composition, *shape)
            rows.append({"attack": "learned", **score(attacker, update, model, truth)})
            rows.extend(score_rivals(update, model, aux, truth, number, prepared))
        groups = pd.DataFrame(rows).groupby("attack", sort=False)
        for row in (
            groups.mean()[groups.size() == updates].reset_index().to_dict("records")
        ):
            yield {**NO_ENDS, "composition": composition, **row}


def sort_by_width(attacker, drawn):
    """Return iAcc, coverage and width of each simulated batch, the narrowest intervals first."""
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


def fit_expected(attacker, model, aux, seed, batch_size, generator):
    """Fit the attacker's expected iAcc as a falling function of the width of its intervals.

    The batches are of the held-out images, the fifth that `train` splits off with this seed.
    """
    held_out = aux.split_in_two(seed, 0.8)[1]
    drawn = attacker.reader.make_pool(model, held_out).draw(2000, batch_size, generator)
    scores = sort_by_width(attacker, drawn)
    curve = isotonic_regression(scores["iacc"], increasing=False).x
    return lambda width: np.interp(width, scores["width"], curve)


SIMULATED = {  # selection of batches, sorted by width
    "simulated": lambda batches: batches,
    "simulated, surest fifth": lambda batches: batches[: len(batches) // 5],
    "simulated, least sure fifth": lambda batches: batches[-(len(batches) // 5) :],
}


def score_drawn(attacker, drawn, expects):
    """Yield actual iAcc, expected iAcc, coverage and width of the attacker on simulated batches."""
    scores = sort_by_width(attacker, drawn)
    scores["expected"] = expects(scores["width"])
    for composition, part in SIMULATED.items():
        row = part(scores).mean().to_dict()
        yield {"attack": "learned", "composition": composition, **row}


KNOWS = "learned, knows the training loss"
