"""LLG: the claims on defences, as those in ``claims.py``: Fig. 7, and the privacy budget of the noise."""

import math
from functools import partial

import numpy as np

from fedleak_book.evidence.claims import Claims
from fedleak_book.evidence.estimates import having
from notebooks.llg.clients import PLACES, SIZES

DEFENCES = Claims()
claim = DEFENCES.add


# --- Fig. 7 ---
def by_level(t):
    """Pivot the ASR by batch size and level."""
    return t.groupby("batch_size").max()  # a level is of one defence: the rest is empty


def above_guess(t):
    """Return how far LLG+ under clipping is above the random guess, at most over the batch sizes."""
    asr = by_level(t) if "batch_size" in t.index.names else t.max()
    return np.max(asr["dp"] - asr["random guess"])


def lost(t):
    """Return the attack's loss of ASR by level of a defence and batch size."""
    return -by_level(t).drop(columns=0.0).sub(by_level(t)[0.0], axis=0)


def under(algorithm, kind, level, sizes):
    """Select rows of LLG+ under one defence, and of the random guess or without a defence."""
    cell = dict(algorithm=algorithm, data=PLACES["MNIST"], attack="random guess")
    return having(**cell, defence=kind, level=level, batch_size=sizes)


clip = lambda a, b: dict(algorithm=a, batch_size=b, defence=["dp", "random guess"])  # noqa: E731
worst = lambda a, b: a.sub(b, axis=0).min().min()  # noqa: E731
best = lambda a, b: a.sub(b, axis=0).max().max()  # noqa: E731
range_of = lambda t: np.ptp(t, axis=0).max()  # noqa: E731
at_16 = lambda a, b: a.iloc[0] - b.iloc[0]  # noqa: E731
strongest = lambda t: t.iloc[-1]  # noqa: E731
NOISE, STRONG = [0.01, 0.1, 1.0], [32, 64, 128]
NOTE = "the interval is over blocks of 20 networks"
beside, clipping = (["fig7", "fig4"], "level"), ("fig7_whole", "defence")
in_blocks = "fig7_blocks", "defence"
largest = dict(algorithm="FedAvg", defence="dp", batch_size=128)
noisy = dict(algorithm="FedSGD", defence="noise")
for id, statistic, (of, wide), cell in (
    ("a-random", worst, beside, under("FedSGD", "noise", NOISE, SIZES)),
    ("d-random", worst, beside, under("FedAvg", "noise", NOISE, SIZES)),
    ("b-strong", best, beside, under("FedSGD", "dp", 1.0, STRONG)),
    ("c-80", best, beside, under("FedSGD", "sparse", 0.8, SIZES[2:])),
    ("e-mitigates", best, beside, under("FedAvg", "dp", 1.0, SIZES)),
    ("f-40", best, beside, under("FedAvg", "sparse", 0.4, SIZES[3:])),
    ("f-80", best, beside, under("FedAvg", "sparse", 0.8, SIZES)),
    ("e-mitigates", above_guess, in_blocks, clip("FedAvg", SIZES)),
    ("b-caption", above_guess, in_blocks, clip("FedSGD", [16])),
    ("e-mitigates", above_guess, clipping, clip("FedAvg", SIZES)),
    ("b-caption", above_guess, clipping, clip("FedSGD", [16])),
    ("b-strong", above_guess, clipping, clip("FedSGD", STRONG)),
    ("e-strong", strongest, ("fig7_whole", None), largest),
    ("a-stable", range_of, ("fig7_blocks", "level"), noisy),
    ("b-caption", at_16, (beside[0], None), under("FedSGD", "dp", 1.0, [16])),
):
    note = NOTE if of in ("fig7_blocks", "fig7_whole") else ""
    claim(f"fig7{id}", statistic, of, filters=cell, wide=wide, note=note)
for id, statistic, algorithm, kind in (
    ("a-batch", lambda t: lost(t)[1.0][8] - lost(t)[1.0].iloc[-1], "FedSGD", "noise"),
    ("a-order", lambda t: -by_level(t).mean().diff().max(), "FedSGD", "noise"),
    ("a-stable", lambda t: range_of(by_level(t)[NOISE].loc[16:]), "FedSGD", "noise"),
    ("c-20", lambda t: lost(t)[0.2].mean(), "FedSGD", "sparse"),
    ("d-flat", lambda t: lost(t).mean().abs().max(), "FedAvg", "noise"),
    ("f-20", lambda t: lost(t)[0.2].mean(), "FedAvg", "sparse"),
):
    cell = having(algorithm=algorithm, defence=["none", kind])
    claim(f"fig7{id}", statistic, of="fig7", wide="level", filters=cell)
strong = dict(algorithm="FedAvg", defence="dp", level=1.0)
claim("fig7e-strong", strongest, of="fig7", filters=strong)


# --- the privacy budget (Sec. 6.5.1), after 100 rounds ---
def privacy_budget(noise_multiplier, sample_rate, rounds, delta=1e-5):
    """Return ε of the subsampled Gaussian mechanism by the tail bound of the original moments accountant.

    That is Theorem 2 of Abadi et al. (2016); Opacus converts by a tighter one today. The noise multiplier is the standard
    deviation of the noise on the sum over the sensitivity of one client, the sample rate the share of clients in a round.
    """
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis import rdp

    orders, how = RDPAccountant.DEFAULT_ALPHAS, dict(noise_multiplier=noise_multiplier)
    moments = rdp.compute_rdp(q=sample_rate, steps=rounds, orders=orders, **how)
    log = math.log(1 / delta)
    return float(min(m + log / (a - 1) for m, a in zip(moments, orders, strict=True)))


ALL, SHARE = 0.1 * 100**0.5, 100 / 750  # noise of 100 of 750 users adds up
for reading, noise, sampled in (
    ("β = 1, noise of all 100 participants adds up", ALL, SHARE),
    ("the same, β = 5", ALL / 5, SHARE),
    ("β = 1, sensitivity β√8 of 8 tensors clipped one by one", ALL / 8**0.5, SHARE),
    ("β = 1, one user's noise alone", 0.1, SHARE),
    ("β = 1, noise adds up, all users in every round", ALL, 1.0),
):
    budget = partial(privacy_budget, noise, sampled, 100)
    claim("budget", budget, reading=reading)
