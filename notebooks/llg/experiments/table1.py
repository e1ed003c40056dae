"""LLG: Table 1, what training under the defences reaches."""

import dataclasses

import torch

from fedleak_book.experiments import Experiment
from fedleak_book.experiments.training import accuracy
from notebooks.llg.clients import ACCURACY, FULL, LEVELS, LR, SMALL, STEPS, TRAINED
from notebooks.llg.clients import WHOLE, federated, make_defence, sets


def trained_under(
    ctx, seed, data, algorithm, defence, level, users, participants, iterations, moments, **how
):  # fmt: skip
    """Test accuracy at regular moments of a training in which every participant defends itself."""
    (images, auxiliary), steps = sets(ctx, data), STEPS[algorithm]
    federation, rounds = federated(ctx, seed, images, users), iterations // steps
    protection = make_defence(defence, level, seed + 2, users, **how)
    for done in range(1, rounds + 1):
        federation.round(participants, steps, 8, LR, protection)
        if done % (rounds // moments) == 0:
            right = accuracy(federation.model, auxiliary)
            yield {
                "iteration": done * steps,
                "accuracy": right,
                "images": len(images) + len(auxiliary),
            }


LEARNED = dict(by="iteration", values=ACCURACY, facts="images", fixed=TRAINED)
STRONG = [("none", 0.0), ("noise", 1.0), ("dp", 1.0), ("sparse", 0.8)]
TABLE1 = Experiment(
    "table1",
    trained_under,
    quick=[
        dict(algorithm="FedSGD", defence=d, level=v, moments=1, **SMALL)
        for d, v in STRONG
    ],
    paper=[
        dict(algorithm=a, defence=d, level=v, moments=1, **FULL)
        for a in STEPS
        for d, v in LEVELS
        if d != "released"
    ],
    trials=(1, 3),
    **LEARNED,
)


def unsettled(algorithm, defence):
    """Settings whose verdict three trainings of 500 steps left open: their means lie near an end of the tolerance."""
    return defence == "sparse" or (algorithm, defence) == ("FedSGD", "none")


TABLE1_SHORT = dataclasses.replace(
    TABLE1,
    name="table1_short",
    quick=[s | dict(iterations=20) for s in TABLE1.quick[:1]],
    paper=[
        s | dict(iterations=500)
        for s in TABLE1.paper
        if unsettled(s["algorithm"], s["defence"])
    ],
    trials=(1, 9),
    tables=("table1",),
)


AVERAGE = "the average"


def at_lengths(
    ctx, seed, longest, participants, noise_in=None, clipping=None, **setting
):
    """The same at a quarter of the training (at 500 steps where `noise_in` is given), at half of it, and at its end.

    The noise's σ can be that of the average of the updates, and the clipping that of the whole update.
    """
    shortest = min(500, longest // 2) if noise_in else longest // 4
    averaged = participants if noise_in == AVERAGE else 1
    how = dict(iterations=longest, moments=longest // shortest, averaged=averaged)
    how |= dict(participants=participants, whole=clipping == WHOLE)
    # The noise drives some networks so far that their gradients are denormal: a CPU is half as fast with such numbers.
    torch.set_flush_denormal(noise_in is not None)
    try:
        for row in trained_under(ctx, seed, **setting, **how):
            if row["iteration"] in (shortest, longest // 2, longest):
                yield {"iterations": row.pop("iteration"), **row}
    finally:
        torch.set_flush_denormal(False)


def long(settings, longest):
    """Settings of Table 1 with the longest of its trainings."""
    replaced = ("iterations", "moments")
    shared = ({k: v for k, v in s.items() if k not in replaced} for s in settings)
    return [s | {"longest": longest} for s in shared]


TABLE1_LENGTHS = Experiment(
    "table1_lengths",
    at_lengths,
    quick=long(TABLE1.quick[:1], 40),
    paper=long(TABLE1.paper, 2000),
    trials=(1, 3),
    tables="table1",
    **LEARNED | dict(by="iterations"),
)


def with_averaged_noise(settings, longest):
    """Settings of noise, and at half the length of clipping, where the noise is that of the average."""
    averaged = [s | dict(noise_in=AVERAGE) for s in long(settings, longest)]
    clipped = dict(clipping=WHOLE, longest=longest // 2)
    return [
        s | (clipped if s["defence"] == "dp" else dict(clipping=None)) for s in averaged
    ]


STRONGEST = [s for s in TABLE1.paper if (s["defence"], s["level"]) in STRONG[1:3]]
TABLE1_READINGS = dataclasses.replace(
    TABLE1_LENGTHS,
    name="table1_readings",
    quick=with_averaged_noise(TABLE1.quick[1:3], 40),
    paper=with_averaged_noise(STRONGEST, 2000),
)
