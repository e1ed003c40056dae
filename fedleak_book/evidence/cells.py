"""The best of many attacks in a setting, leads and their intervals: one rule for every table, page and prediction.

An attack that is picked and scored on the same updates is flattered. The best attack is therefore always scored on
other updates than it is picked on, and so is every lead over it. Intervals are over the networks, because updates of
the same network are not independent.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedleak_book.evidence.results import Number
from fedleak_book.experiments.kinds import NUMBER, Kind, interval

SPLITS = 200
"""Random divisions of the updates into halves, over which `held_out` averages."""


class Best(NamedTuple):
    """The best attack of one setting."""

    attack: str
    """The attack with the largest mean over all updates."""
    second: str
    """The next one; the same attack if there is no other."""
    score: Number
    """Mean score of the best attack, on updates that it was not picked on."""
    lead: Number
    """Its mean lead over the second attack, picked likewise."""
    scores: pd.Series
    """The score by update, whose mean is `score`."""


def held_out(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Score the best of many attacks on updates that it was not picked on.

    Each half of the updates is scored with the attack that is best on the other half, and with that attack's lead over
    the second best there. One division picks with the noise of half of the updates; the result is the mean over
    `SPLITS` random ones, the same in every call.

    Parameters
    ----------
    scores
        Scores of every attack on the same updates, ``[updates, attacks]``; the first attack wins a tie.

    Returns
    -------
    (array, array)
        For every update, ``[updates]``: the score of the attack that was best on others, and its lead over the second.
        A single update, or a single attack, is picked and scored on itself.
    """
    updates, attacks = scores.shape
    if updates == 1 or attacks == 1:
        picking = scoring = np.ones((1, updates))
    else:
        order = np.random.default_rng(0).permuted(np.tile(np.arange(updates), (SPLITS, 1)), axis=1)
        half = order < updates // 2  # positions of the smaller numbers of a permutation: a random half
        picking, scoring = np.concatenate([half, ~half]).astype(float), np.concatenate([~half, half]).astype(float)
    # Rounding makes means that differ by the order of a sum equal, so that ties have one winner on every machine.
    means = (picking @ scores / picking.sum(1, keepdims=True)).round(9)
    rank = np.argsort(-means, axis=1, kind="stable")
    best, second = scores.T[rank[:, 0]], scores.T[rank[:, min(1, attacks - 1)]]
    score, lead = ((scores_of * scoring).sum(0) / scoring.sum(0) for scores_of in (best, best - second))
    return score, lead


def mean_of(values: pd.Series, networks: pd.Series | None = None, kind: Kind = NUMBER) -> Number:
    """Return the mean of one value per update, with its 95 % interval over the networks.

    `networks` names the network of each update, by the index of `values`; without it each update has its own. The
    number's ``n`` counts the networks.
    """
    per_network = values if networks is None else values.groupby(networks.reindex(values.index)).mean()
    return Number(values.mean(), *interval(per_network.to_numpy(dtype=float), kind), len(per_network))


def answering(scores: pd.DataFrame, among: Iterable[str] | None = None) -> pd.DataFrame:
    """Return the columns of the attacks, of those in `among`, that answer every update.

    Raises `ValueError` if no attack does.
    """
    chosen = scores if among is None else scores[[name for name in scores if name in {*among}]]
    if (answers := chosen.dropna(axis=1)).empty:
        raise ValueError(f"no attack answers every update, of {', '.join(map(str, chosen)) or 'none'}")
    return answers


def best_of(
    scores: pd.DataFrame,
    networks: pd.Series | None = None,
    kind: Kind = NUMBER,
    among: Iterable[str] | None = None,
) -> Best:
    """Return the best attack of a setting, scored on other updates than it is picked on.

    Parameters
    ----------
    scores
        Scores by update (rows) and attack (columns); NaN where an attack skips an update, which keeps it from being
        picked. Equal attacks: the first column is taken.
    networks
        The network of each update; see `mean_of`.
    kind
        What a score is: it decides its interval.
    among
        Names of the attacks to pick from; by default all.
    """
    candidates = answering(scores, among)
    score, lead = (pd.Series(scored, scores.index) for scored in held_out(candidates.to_numpy(dtype=float)))
    first, *others = candidates.mean().round(9).sort_values(ascending=False, kind="stable").index
    return Best(first, [*others, first][0], mean_of(score, networks, kind), mean_of(lead, networks), score)


def lead_of(
    scores: pd.DataFrame, attack: str, rivals: Iterable[str], networks: pd.Series | None = None
) -> tuple[Number, str]:
    """Return the lead of an attack over the best of its rivals on the same updates, and the name of that rival.

    The lead is over the rival's score on updates that it was not picked on; for one rival it is the paired difference.
    """
    candidates = answering(scores, [name for name in rivals if name != attack])
    score, _ = held_out(candidates.to_numpy(dtype=float))
    return mean_of(scores[attack] - score, networks), str(candidates.mean().round(9).idxmax())
