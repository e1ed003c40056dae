"""LLG: Figs. 4 and 8, every LLG variant on a fresh network, and DLG beside them."""

import dataclasses

from fedleak import metrics
from fedleak.attacks.images import dlg
from fedleak.attacks.labels import guess, llg
from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.kinds import MEAN
from notebooks.llg.clients import ASR, LR, PAPER, PLACES, QUICK, SIZES, STEPS, TITLE
from notebooks.llg.clients import client, counted, extracted, facts, probes, sets
from notebooks.llg.clients import success

DUMMY = dict(zip(PLACES, ["zeros", "random", "ones", "zeros"]))  # Sec. 6.1


def parties(ctx, data):
    """The images of victims and attacker; faces are divided so that the attacker has 128 of the rarest class."""
    if data != "celeba-hair":
        return sets(ctx, data)
    return ctx.images(data, "all", crop=False).split_in_two(seed=0, fraction=0.6)


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


FIG4 = Experiment(
    "fig4",
    attacked,
    quick=grid(data=QUICK, algorithm=["FedSGD", "FedAvg"]),
    paper=grid(data=PAPER[:3], algorithm=["FedSGD", "FedAvg"])
    + grid(data="celeba-hair", algorithm="FedSGD", trials=400)
    + grid(data="celeba-hair", algorithm="FedAvg", trials=5),  # 178 x 218 pixels
    trials=(2, 100),
    by=("batch_size", "attack"),
    values=ASR | dict(hellinger=MEAN),
    facts=("images", "held", "steps", "side", "aux"),
    fixed={"net": "cnn", "composition": "unbalanced", "lr": LR},
    version=2,
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


# --- DLG ---


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


ONE = dict(data="mnist", algorithm="FedSGD", composition="unbalanced")
ONE |= dict(net="cnn", iterations=100)


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
