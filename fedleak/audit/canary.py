"""A lower bound of ε by a canary: how well many releases of two neighbouring inputs can be distinguished."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from functools import reduce
from itertools import count, islice, takewhile
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedleak.audit.case import Case, fresh
from fedleak.audit.findings import PrivacyResult
from fedleak.audit.setup import Setup
from fedleak.federated.defences import ClippedNoise, Defence, PureNoise, Sparsification, fit_defence
from fedleak.federated.privacy import DELTA, DPSGD, Privacy, gaussian_epsilon
from fedleak.federated.restricted import Withhold
from fedleak.models.inputs import forward

MOST, LEAST, ENTRIES = 4000, 200, 200_000_000
"""Largest and smallest number of releases per input; between them, the number that draws this many entries."""
AT_ONCE = 50
TINY = 1e-30
"""Standard deviation of noise that changes nothing."""
Release = Iterator[dict[str, Tensor]]


class Bound(NamedTuple):
    """The result of a canary."""

    epsilon: float
    """A lower bound of ε, whatever the mechanism is."""
    gaussian: float
    """The same of a mechanism that adds normal noise and nothing else random."""
    n: int
    """Scored releases of each of the two inputs."""


def lower_bound(without: Sequence[float], having: Sequence[float], delta: float, confidence: float = 0.95) -> Bound:
    """Return a lower bound of ε, with this confidence, from how well releases can be distinguished.

    A threshold is chosen on the first half of each, and how often it errs is counted on the second. Clopper and
    Pearson's limits of both rates of errors hold together, and an (ε, δ)-private mechanism allows no smaller ones
    (Jagielski et al. 2020; Nasr et al. 2021). Under normal noise the rates bound the distance of the means,
    which gives a much tighter ε (Nasr et al. 2023).

    Parameters
    ----------
    without, having
        A number of each release ``[N]``, of the one input and of its neighbour, on which it tends to be larger.
    delta
        At which ε is bounded, in [0, 1).
    confidence
        Confidence of the bound.
    """
    first, second = ([np.sort(np.asarray(values)[half::2]) for values in (without, having)] for half in (0, 1))
    thresholds = np.unique(np.concatenate(first))
    picked = [thresholds[np.argmax(value)] for value in _bounds(first, thresholds, delta, confidence)]
    plain, mu = (_bounds(second, np.array([t]), delta, confidence)[k][0] for k, t in enumerate(picked))
    return Bound(max(float(plain), 0.0), gaussian_epsilon(float(mu), delta), len(second[0]))


def _bounds(
    scores: list[np.ndarray], thresholds: np.ndarray, delta: float, confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return what each threshold shows: of ε, and of the distance of two normal distributions in deviations."""
    from scipy import stats  # which takes a second to import

    (without, having), most = scores, []
    for wrong, of in (
        (len(without) - np.searchsorted(without, thresholds), len(without)),  # at or above it, without the canary
        (np.searchsorted(having, thresholds), len(having)),
    ):
        limit = stats.beta.ppf(1 - (1 - confidence) / 2, wrong + 1, np.maximum(of - wrong, 1))
        most.append(np.where(wrong == of, 1.0, limit))
    false, missed = most
    with np.errstate(divide="ignore"):
        ratio = np.maximum((1 - delta - missed) / false, (1 - delta - false) / missed)
        epsilon = np.log(np.maximum(ratio, 1e-300))
    return epsilon, stats.norm.ppf(1 - false) - stats.norm.ppf(missed)


def claim(setup: Setup, tensors: int) -> Privacy | None:
    """Return the privacy claim for a client's part in a round that shares `tensors` tensors; None without a claim.

    A client's own noise counts with what its clipping leaves: two updates whose tensors are each clipped to a norm C
    differ by 2 C √tensors at most, two that are clipped as a whole by 2 C. Noise directly after the clipping adds to
    its variance. A defence of an unknown kind may bound the norm, so that without a known clipping nothing is computed.
    """
    stated, delta = setup.claimed or (None, DELTA)
    if setup.dp_sgd is not None:
        return setup.dp_sgd.privacy(stated, delta)
    noise = []
    for place, defence in enumerate(setup.defences):
        if isinstance(defence, ClippedNoise):
            later = takewhile(lambda d: isinstance(d, PureNoise), setup.defences[place + 1 :])
            sigma = math.hypot(defence.sigma, *(d.sigma for d in later if isinstance(d, PureNoise)))
            noise.append(sigma / (2 * defence.largest_norm(tensors)))
    if noise:
        history = ((max(noise), 1.0, 1),)
        return Privacy(neighbours="client", history=history, delta=delta, stated=stated)
    are_known = all(isinstance(d, PureNoise | Sparsification | Withhold) for d in setup.defences)
    if are_known and any(isinstance(d, PureNoise) for d in setup.defences):
        return Privacy(neighbours="client", delta=delta, clipped=False, stated=stated)
    if stated is None:
        return None
    none = all(isinstance(d, Sparsification | Withhold) for d in setup.defences)
    return Privacy(neighbours="client", delta=delta, aggregated=none, stated=stated)


def canary(case: Case, privacy: Privacy) -> PrivacyResult:
    """Return a claim with the bound that a canary shows, on the mechanism of a set-up as its clients run it.

    A sample's canary has the label that the model finds least likely. A client's two inputs are samples of one class,
    labelled as another, and the other way round. What is looked at is the release's inner product with the difference
    that there is without noise.
    """
    setup, sizes = case.setup, sum(p.numel() for p in case.model.parameters())
    n = max(LEAST, min(MOST, ENTRIES // sizes))
    seed = (setup.seed + 1) * 1_000_003
    generator = torch.Generator().manual_seed(seed)
    if setup.dp_sgd is not None:
        done = case.trial(0)
        x, y = done.x[0, 0], done.y[0, 0]
        with torch.no_grad():
            least = forward(case.model, x[:1]).argmin(1)
        batches = [(x, y), (torch.cat([x, x[:1]]), torch.cat([y, least]))]

        def run(world: int, how: DPSGD = setup.dp_sgd, number: int = 0) -> Release:
            releases = how.releases(case.model, *batches[world], seed + 10 * number + world, size=len(x))
            return (dict(update.tensors) for update in releases)

        quiet = replace(setup.dp_sgd, noise_multiplier=TINY)
        means = [next(run(world, quiet)) for world in (0, 1)]
        rate = setup.dp_sgd.sample_rate if setup.dp_sgd.poisson_sampling else 1.0
        worlds = [run(0, number=1), run(1)]
        mixed = (next(worlds[int(torch.rand((), generator=generator) < rate)]) for _ in count())
        drawn = [run(0), mixed]
    else:
        two = case.clients.class_counts.topk(2).indices.view(2, 1, 1).expand(2, setup.steps, setup.batch_size)
        trained = case.trained(two, two.flip(0), seed, generator).updates
        pair = [update.tensors for update in trained]
        defences = [fit_defence(d, trained[0]) for d in setup.defences]
        silent = [replace(d, sigma=TINY) if hasattr(d, "sigma") and is_dataclass(d) else d for d in defences]
        means = [next(_shared(silent, tensors, seed)) for tensors in pair]
        rate, drawn = 1.0, [_shared(defences, tensors, seed + place) for place, tensors in enumerate(pair)]
    direction = {name: (means[1][name] - means[0][name]).double() for name in means[0]}
    scores = [
        [sum(float((direction[k] * t).sum()) for k, t in tensors.items()) for tensors in islice(releases, n)]
        for releases in drawn
    ]
    bound = lower_bound(scores[0], scores[1], privacy.delta)
    normal = rate == 1 and (bool(privacy.history) or privacy.aggregated or not privacy.clipped)
    return PrivacyResult(privacy, bound.epsilon, bound.gaussian if normal else None, bound.n)


def _shared(defences: Sequence[Defence], update: Mapping[str, Tensor], seed: int) -> Release:
    """Yield what a client shares of one update, each time for the first time; what remembers goes on drawing."""
    stateful = [defence if is_dataclass(defence) else copy.deepcopy(defence) for defence in defences]
    stacked = {name: t.expand(AT_ONCE, *t.shape) for name, t in update.items()}
    for number in count():
        used = [
            fresh(d, seed + 1000 * number + 10 * k, AT_ONCE) if is_dataclass(d) else d for k, d in enumerate(stateful)
        ]
        sent = reduce(lambda tensors, defence: defence(tensors, torch.arange(AT_ONCE)), used, stacked)
        yield from ({name: t[k] for name, t in sent.items()} for k in range(AT_ONCE))
