"""The learned attacker: attackers, and their scores on clients' updates and on simulated batches."""

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from fedleak import metrics
from fedleak.attacks import registry
from fedleak.attacks.contest import contest, entrants
from fedleak_book.experiments.kinds import MEAN, NUMBER, rate
from notebooks.updates import draw_update, load_clients_images, load_other_images

EXPECTED = {
    "iacc": rate("batch_size"),
    "coverage": rate(10),  # of the counts of ten classes
    "width": NUMBER,
    "expected": MEAN,  # the iAcc that the attacker expects
}
RIVALS = [a for a in entrants() if not a.sends and a.name not in ("iDLG", "GI")]
WHOLE, KNOWS = "RLU, whole head", "learned, knows the training loss"
HALVES = ("members", "others")
BEST, MOST = "best answer to the bias", "most that the bias gives"
UNPUBLISHED = ["learned", WHOLE, "prior guess", "random guess", BEST, MOST]


def score_intervals(low, high, truth):
    """Return the share of each batch's counts inside the intervals, and the intervals' mean width in samples."""
    inside = ((low <= truth) & (truth <= high)).double()
    return {"coverage": inside.mean(-1), "width": (high - low).mean(-1)}


def score_update(attacker, update, truth, model, aux, number, prepared):
    """Yield the scores of the learned attacker, and of each other attack that answers the same update.

    `prepared` caches the other attacks on the model.
    """
    result = attacker.read(update, model)
    ends = score_intervals(result.low.cpu(), result.high.cpu(), truth)
    iacc = metrics.braun_blanquet(result.counts.cpu(), truth).item()
    yield {"attack": "learned", "iacc": iacc, **{k: v.item() for k, v in ends.items()}}
    who, knowledge = registry.WITH_AUXILIARY, {"aux": aux, "seed": number}
    how = {"attacks": RIVALS, "prepared": prepared}
    for attempt in contest(update, model, who, knowledge, **how):
        if attempt.counts is not None:
            iacc = metrics.braun_blanquet(attempt.counts, truth).item()
            yield {"attack": attempt.attack.name, "iacc": iacc}


def score_all(ctx, model, data, attacker, size, updates, generator):
    """Yield the mean scores of each attack that answers all updates, by composition."""
    pool, aux = load_clients_images(ctx, data), load_other_images(ctx, data)
    prepared = {}
    for composition in ("unbalanced", "balanced"):
        rows = []
        for number in range(updates):
            update, truth = draw_update(model, pool, composition, size, generator)
            rows += score_update(attacker, update, truth, model, aux, number, prepared)
        groups = pd.DataFrame(rows).groupby("attack", sort=False)
        means = groups.mean()[groups.size() == updates].reset_index()
        for row in means.to_dict("records"):
            yield {"composition": composition, **row}


def sort_by_width(attacker, drawn):
    """Return iAcc, coverage and width of each simulated batch, the narrowest intervals first."""
    features, truth = drawn
    scores = {
        "iacc": metrics.instance_accuracy(attacker.counts(features), truth),
        **score_intervals(*attacker.intervals(features), truth),
    }
    scores = pd.DataFrame({k: values.cpu().double() for k, values in scores.items()})
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
