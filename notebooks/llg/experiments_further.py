"""LLG: DLG as a rival, readings of γ under FedAvg, the impact step by step, run times, and Fig. 5's networks."""

import dataclasses
import time


from fedleak.attacks.images import dlg
from fedleak.attacks.labels import guess, llg
from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.kinds import NUMBER
from notebooks.llg.clients import ASR, LR, PLAIN, RESIDUAL, SIZES, STEPS, VARIANTS
from notebooks.llg.clients import client, counted, facts, sets, success

ONE = dict(data="mnist", algorithm="FedSGD", composition="unbalanced")
ONE |= dict(net="cnn", iterations=100)


def by_optimisation(
    ctx, seed, data, algorithm, composition, net, batch_size, iterations
):
    """DLG's labels."""
    (images, auxiliary), steps = sets(ctx, data), STEPS[algorithm]
    model = ctx.build(net, images.shape, images.n_classes, seed=seed)
    update, index = client(model, images, composition, batch_size, steps, seed)
    counts = dlg.recover(update, model, iterations=iterations, seed=seed)
    asr = success(counts, counted(images, index))
    yield {"attack": "DLG", "asr": asr, **facts(images, auxiliary, index)}


DLG = Experiment(
    "dlg",
    by_optimisation,
    quick=grid(**ONE | dict(data="mnist5k", batch_size=1, iterations=15)),
    paper=grid(**ONE | dict(batch_size=SIZES[:5], net=["cnn", "lenet"]))
    + grid(**ONE | dict(batch_size=1, algorithm="FedAvg"))
    + grid(**ONE | dict(batch_size=[1, 4], composition="balanced"))
    + grid(**ONE | dict(batch_size=[1, 4], data=["svhn", "cifar100"]))
    + grid(**ONE | dict(batch_size=SIZES[5:], net=["cnn", "lenet"]), trials=8),
    trials=(2, 10),
    by="attack",
    values=ASR,
    facts=("images", "held", "steps", "side"),
    fixed={"lr": LR},
)


SHORT = ONE | dict(batch_size=1)
DLG_SHORT = dataclasses.replace(  # few trials of few iterations, where one takes seconds to a minute
    DLG,
    name="dlg_short",
    quick=grid(**SHORT | dict(data="mnist5k", net=["cnn", "lenet"], iterations=3)),
    paper=grid(**SHORT | dict(data=["mnist", "celeba-hair"], iterations=2))
    + grid(**SHORT | dict(net=["cnn", "resnet20"], iterations=3))
    + grid(
        **SHORT
        | dict(algorithm="FedAvg", net=["cnn", "lenet", "resnet20"], iterations=2)
    )
    + grid(**SHORT | dict(data="svhn", algorithm="FedAvg", iterations=10)),
    trials=(1, 3),
)


FAST = ["random guess", *VARIANTS]


def timed(ctx, seed, data, attack, batch_size, iterations):
    """Milliseconds to attack one update, its probes included."""
    images, auxiliary = sets(ctx, data)
    model = ctx.build("cnn", images.shape, images.n_classes, seed=seed)
    update, _ = client(model, images, "unbalanced", batch_size, 1, seed)
    call = {
        "random guess": lambda: guess.recover(update, model), "LLG": lambda: llg.recover(update, model),
        "LLG*": lambda: llg.recover(update, model, "zeros"), "LLG+": lambda: llg.recover(update, model, auxiliary),
        "DLG": lambda: dlg.recover(update, model, iterations=iterations),
    }[attack]  # fmt: skip
    began = time.perf_counter()
    call()
    taken = 1000 * (time.perf_counter() - began)
    yield {"milliseconds": taken, "hardware": ctx.device}


RUNTIME = Experiment(
    "runtime",
    timed,
    quick=grid(data="mnist5k", attack=FAST, batch_size=[1, 8], iterations=10)
    + grid(data="mnist5k", attack="DLG", batch_size=8, iterations=10, trials=1),
    paper=grid(data="mnist", attack=FAST, batch_size=SIZES, iterations=100)
    + grid(data="mnist", attack="DLG", batch_size=SIZES, iterations=100, trials=3),
    trials=7,
    values=dict(milliseconds=NUMBER),
    facts="hardware",
    times="milliseconds",
    fixed={"net": "cnn", "timed": "the attack alone"},
)


SGD, AVG, BOTH = (dict(data="mnist", algorithm=a) for a in (*STEPS, list(STEPS)))
FEW = dict(data="mnist5k", algorithm=list(STEPS), batch_size=4)


def architectures(ctx, seed, data, algorithm, net, batch_size):
    """LLG+ through its public function."""
    images, auxiliary = sets(ctx, data)
    model = ctx.build(net, images.shape, images.n_classes, seed=seed)
    update, index = client(
        model, images, "unbalanced", batch_size, STEPS[algorithm], seed
    )
    counts = llg.recover(update, model, auxiliary, seed=seed)
    asr = success(counts, counted(images, index))
    yield {"asr": asr, "images": len(images) + len(auxiliary)}


FIG5 = Experiment(
    "fig5",
    architectures,
    quick=grid(**FEW, net=PLAIN) + grid(**FEW, net=RESIDUAL, trials=2),
    paper=grid(**BOTH, net=PLAIN, batch_size=SIZES)
    + grid(**BOTH, net=RESIDUAL, batch_size=SIZES[:5], trials=20)
    + grid(**SGD, net=RESIDUAL, batch_size=SIZES[5:], trials=20)
    + grid(**AVG, net=RESIDUAL, batch_size=SIZES[5:], trials=10),
    trials=(5, 50),
    values=ASR,
    facts="images",
    fixed={"composition": "unbalanced", "lr": LR},
)
