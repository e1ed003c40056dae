"""LLG: the experiments. A trial is a function of its context, its seed and its setting.

The lecture's section on a figure shows the rows of the experiment with its name; the evidence page has all of them.
"""

import dataclasses

from fedleak import metrics
from fedleak.attacks.labels import guess, llg
from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.kinds import MEAN, NUMBER
from notebooks.llg.clients import ASR, LR, PAPER, PLACES, QUICK, SIZES, STEPS, TITLE
from notebooks.llg.clients import client, counted, extracted, facts, probes, sets
from notebooks.llg.clients import success

DUMMY = dict(zip(PLACES, ["zeros", "random", "ones", "zeros"]))  # Sec. 6.1


def parties(ctx, data):
    """The images of victims and attacker; faces are divided so that the attacker has 128 of the rarest class."""
    if data != "celeba-hair":
        return sets(ctx, data)
    return ctx.images(data, "all", crop=False).split_in_two(seed=0, fraction=0.6)


def gradients(ctx, seed, data, init, composition):
    """One row a class and batch size: its occurrences, its gradient, and that less its offset."""
    images, auxiliary = sets(ctx, data)
    start = seed if init == "fresh" else 0
    model = ctx.build("cnn", images.shape, images.n_classes, seed=start)
    probed = probes(model, auxiliary, [2, 8, 32, 128], seed)
    for size, probe_gradients in probed.items():
        update, index = client(model, images, composition, size, 1, seed)
        raw = llg.class_gradients(update, model)
        calibrated = raw - llg.impact_and_offset(probe_gradients, size)[1]
        columns = (counted(images, index), raw, calibrated)
        for count, a, b in zip(*(c.tolist() for c in columns)):
            row = dict(batch_size=size, occurrences=count, raw=a, calibrated=b)
            yield row | {"images": len(images) + len(auxiliary)}


FIG3 = Experiment(
    "fig3",
    gradients,
    quick=grid(data="mnist5k", init=["fresh", "single"]),
    paper=grid(data="mnist", init=["fresh", "single"]),
    trials=(40, 200),
    by=("batch_size", "occurrences"),
    values=dict(raw=NUMBER, calibrated=NUMBER),
    facts="images",
    fixed={"net": "cnn", "composition": "unbalanced"},
)
FIG3_BALANCED = dataclasses.replace(
    FIG3,
    name="fig3_balanced",
    fixed=FIG3.fixed | {"composition": "balanced"},
    tables=("fig3", "fig3a"),
)


def attacked(ctx, seed, data, algorithm, composition):
    """Every LLG variant and the random guess on a fresh network: a row a batch size and attack."""
    (images, auxiliary), steps = parties(ctx, data), STEPS[algorithm]
    model = ctx.build("cnn", images.shape, images.n_classes, seed=seed)
    dummies = DUMMY[TITLE[data]]
    dummy, real = (probes(model, k, SIZES, seed) for k in (dummies, auxiliary))
    rare = int(auxiliary.class_counts.min())
    for size in SIZES:
        update, index = client(model, images, composition, size, steps, seed)
        g = llg.class_gradients(update, model)
        answers = extracted(g, dummy[size], real[size], size, steps)
        answers["random guess"] = guess.recover(update, model, seed=seed + 1)
        truth = counted(images, index)
        for attack, counts in answers.items():
            yield {
                "batch_size": size,
                "attack": attack,
                "asr": success(counts, truth),
                "hellinger": metrics.hellinger(counts.cpu(), truth).item(),
                "aux": min(size, rare) if attack == "LLG+" else float("nan"),
                **facts(images, auxiliary, index),
            }


MEASURED = dict(
    by=("batch_size", "attack"),
    values=ASR | dict(hellinger=MEAN),
    facts=("images", "held", "steps", "side", "aux"),
)
FIG4 = Experiment(
    "fig4",
    attacked,
    quick=grid(data=QUICK, algorithm=["FedSGD", "FedAvg"]),
    paper=grid(data=PAPER[:3], algorithm=["FedSGD", "FedAvg"])
    + grid(data="celeba-hair", algorithm="FedSGD", trials=400)
    + grid(data="celeba-hair", algorithm="FedAvg", trials=5),  # 178 x 218 pixels
    trials=(2, 100),
    fixed={"net": "cnn", "composition": "unbalanced", "lr": LR},
    version=2,
    **MEASURED,
)

FIG4_FACES = dataclasses.replace(  # more networks than five
    FIG4,
    name="fig4_faces",
    quick=grid(data="patterns-5", algorithm="FedAvg"),
    paper=grid(data="celeba-hair", algorithm="FedAvg"),
    trials=(2, 30),
    version=1,
    tables="fig4",
)

FIG8 = dataclasses.replace(
    FIG4,
    name="fig8",
    quick=grid(data=QUICK, algorithm="FedSGD"),
    paper=grid(data=PAPER, algorithm="FedSGD"),
    fixed=FIG4.fixed | {"composition": "balanced"},
)
