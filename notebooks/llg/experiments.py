"""LLG: the experiments. A trial is a function of its context, its seed and its setting.

The lecture's section on a figure shows the rows of the experiment with its name; the evidence page has all of them.
"""

import dataclasses
import time

import torch

from fedleak import metrics
from fedleak.attacks.images import dlg
from fedleak.attacks.labels import gi, guess, idlg, llg
from fedleak_book.experiments.networks import split_classes, subset
from fedleak_book.experiments import Experiment, grid, spawned
from fedleak.data import title
from fedleak.federated import fedavg
from fedleak_book.experiments.training import accuracy
from fedleak_book.experiments.kinds import MEAN, NUMBER, rate
from fedleak.models import head
from notebooks.llg.experiments_blocks import FIG7_BLOCKS, FIG7_WHOLE
from notebooks.llg.experiments_defences import (
    FIG7,
    TABLE1,
    TABLE1_LENGTHS,
    TABLE1_READINGS,
    TABLE1_WHY,
)
from notebooks.llg.experiments_shared import (
    ASR,
    BRIEF,
    FULL,
    LR,
    SIZES,
    SMALL,
    STEPS,
    TRAINED,
    client,
    counted,
    federated,
    probes,
    sets,
    success,
)

DECLARED_ELSEWHERE = [FIG7, FIG7_BLOCKS, FIG7_WHOLE, TABLE1, TABLE1_LENGTHS]
DECLARED_ELSEWHERE += [TABLE1_READINGS, TABLE1_WHY]

VARIANTS = ["LLG", "LLG*", "LLG+"]
PAPER = ["mnist", "svhn", "cifar100", "celeba-hair"]
QUICK = ["mnist5k", "photos", "patterns-100", "patterns-5"]  # what stands in for them
PLACES = {title(name): [name, other] for name, other in zip(PAPER, QUICK)}
TITLE = {name: title for title, names in PLACES.items() for name in names}
DUMMY = dict(zip(PLACES, ["zeros", "random", "ones", "zeros"]))  # Sec. 6.1


def parties(ctx, data):
    """The images of victims and attacker; faces are divided so that the attacker has 128 of the rarest class."""
    if data != "celeba-hair":
        return sets(ctx, data)
    return ctx.images(data, "all", crop=False).split_in_two(seed=0, fraction=0.6)


def facts(images, auxiliary, index):
    """What a trial really had: images of the data set, different ones of the client, its steps."""
    distinct, side = index.unique().numel(), images.shape[-1]
    whole = len(images) + len(auxiliary)
    return {"images": whole, "held": distinct, "steps": len(index), "side": side}


def label_rules(ctx, seed, data, batch_size):
    """GI, and iDLG where it applies, beside LLG on unbalanced batches; ASR as defined below."""
    images, _ = sets(ctx, data)
    model = ctx.build("cnn", images.shape, images.n_classes, seed=seed)
    update, index = client(model, images, "unbalanced", batch_size, 1, seed)
    rules = {"iDLG": idlg} if batch_size == 1 else {}
    for name, attack in {**rules, "GI": gi, "LLG": llg}.items():
        counts = attack.recover(update, model)
        yield {"attack": name, "asr": success(counts, counted(images, index))}


STEPS_BEFORE = Experiment(
    "steps_before",
    label_rules,
    quick=grid(data="mnist5k", batch_size=[1, 2, 4, 8]),
    paper=grid(data="mnist", batch_size=[1, 2, 4, 8]),
    trials=(20, 100),
    by="attack",
    values=dict(asr=rate("batch_size")),
)


def extracted(g, dummy, auxiliary, size, steps):
    """Label counts by every LLG variant, from class gradients [..., n] and the probes'."""
    samples = size * steps
    on_dummy, on_real = (
        llg.impact_and_offset(p, size, steps) for p in (dummy, auxiliary)
    )
    return {
        "LLG": llg.extract(g, llg.gradient_impact(g, samples), 0.0, samples),
        "LLG*": llg.extract(g, *on_dummy, samples),
        "LLG+": llg.extract(g, *on_real, samples, stop_at_samples=True),
    }


def gradients(ctx, seed, data, init, composition):
    """One row a class and batch size: its occurrences, its gradient, and that less its offset."""
    images, auxiliary = sets(ctx, data)
    start = seed if init == "fresh" else 0
    model = ctx.build("cnn", images.shape, images.n_classes, seed=start)
    for size, probe_gradients in probes(
        model, auxiliary, [2, 8, 32, 128], seed
    ).items():
        update, index = client(model, images, composition, size, 1, seed)
        raw = llg.class_gradients(update, model)
        calibrated = raw - llg.impact_and_offset(probe_gradients, size)[1]
        columns = (counted(images, index), raw, calibrated)
        for count, a, b in zip(*(c.tolist() for c in columns)):
            yield dict(
                batch_size=size, occurrences=count, raw=a, calibrated=b,
                images=len(images) + len(auxiliary),
            )  # fmt: skip


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


def at_every_size(model, images, auxiliary, dummies, composition, steps, seed):
    """Every LLG variant and the random guess on one network: a row a batch size and attack."""
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


def attacked(ctx, seed, data, algorithm, composition):
    """The same on a fresh network, with all images there are."""
    images, auxiliary = parties(ctx, data)
    model = ctx.build("cnn", images.shape, images.n_classes, seed=seed)
    how = DUMMY[TITLE[data]], composition, STEPS[algorithm], seed
    yield from at_every_size(model, images, auxiliary, *how)


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
    + grid(data="celeba-hair", algorithm="FedSGD")
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
    trials=(2, 20),
    version=1,
    tables="fig4",
)

FIG8 = Experiment(
    "fig8",
    attacked,
    quick=grid(data=QUICK, algorithm="FedSGD"),
    paper=grid(data=PAPER, algorithm="FedSGD"),
    trials=(2, 100),
    fixed={"net": "cnn", "composition": "balanced", "lr": LR},
    version=2,
    **MEASURED,
)


PARTS = {
    10: {"svhn": (866, 217), "celeba-hair": (2734, None)},
    100: {"cifar100": (1117, 916)},
}
"""By the number of classes, how many images a victim's pool and an attacker's have here of a data set."""


def reduced(ctx, seed, data, algorithm, composition, classes):
    """The same with all images, and with as few as other data sets have here; a class may be divided into ten."""
    pools = [split_classes(images, classes) for images in sets(ctx, data)]
    weights, steps = spawned(seed, "weights"), STEPS[algorithm]
    model = ctx.build("cnn", pools[0].shape, classes, seed=weights)
    dummies = (
        "ones" if classes == 100 else "zeros" if data.startswith("mnist") else "random"
    )
    for level, counts in {"whole": (None, None), **PARTS[classes]}.items():
        generator = torch.Generator().manual_seed(spawned(seed, f"images of {level}"))
        parts = [subset(i, k, generator) for i, k in zip(pools, counts)]
        how = dummies, composition, steps, spawned(seed, level) % 2**62
        for row in at_every_size(model, *parts, *how):
            yield {
                "level": level,
                **{k: row[k] for k in ("batch_size", "attack", "asr", "hellinger")},
            }


KINDS_OF = dict(composition="unbalanced", algorithm=["FedSGD", "FedAvg"])
REDUCED = Experiment(
    "reduced",
    reduced,
    quick=grid(data="mnist5k", classes=10, **KINDS_OF, trials=2),
    paper=grid(data=["mnist", "cifar10-jpeg"], classes=[10, 100], **KINDS_OF)
    + grid(
        data=["mnist", "cifar10-jpeg"],
        classes=[10, 100],
        composition="balanced",
        algorithm="FedSGD",
    ),
    trials=(2, 40),
    by=("level", "batch_size", "attack"),
    values=ASR | dict(hellinger=MEAN),
    fixed={"net": "cnn", "lr": LR},
)

REDUCED_FEDSGD = dataclasses.replace(  # more trials of SVHN's in Fig. 4 (b)
    REDUCED,
    name="reduced_fedsgd",
    paper=grid(
        data=["mnist", "cifar10-jpeg"],
        classes=10,
        composition="unbalanced",
        algorithm="FedSGD",
    ),
    trials=(2, 80),
)


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


SCALES = {  # of impact and offset, for γ local steps
    "as released: m / γ, s": lambda steps: (1 / steps, 1),
    "as printed: m, s": lambda steps: (1, 1),
    "linear: m, γ s": lambda steps: (1, steps),
}


def readings(ctx, seed, data, lr, batch_size):
    """LLG+ under FedAvg with impact and offset scaled in different ways."""
    images, auxiliary = sets(ctx, data)
    model = ctx.build("cnn", images.shape, images.n_classes, seed=seed)
    probe_gradients = probes(model, auxiliary, [batch_size], seed)[batch_size]
    update, index = client(model, images, "unbalanced", batch_size, 10, seed, lr)
    g = llg.class_gradients(update, model)
    impact, offset = llg.impact_and_offset(probe_gradients, batch_size)
    for name, scales in SCALES.items():
        m, s = scales(update.steps)
        calibrated = m * impact, s * offset, update.samples
        counts = llg.extract(g, *calibrated, stop_at_samples=True)
        yield {"reading": name, "asr": success(counts, counted(images, index))}


READINGS = Experiment(
    "fedavg_readings",
    readings,
    quick=grid(data="mnist5k", lr=[0.01, LR], batch_size=[1, 16]),
    paper=grid(data="mnist", lr=[0.001, 0.01, LR], batch_size=[1, 4, 16, 64]),
    trials=(15, 100),
    by="reading",
    values=dict(asr=rate("batch_size", 10)),
)


def steps_of(ctx, seed, data, lr, batch_size):
    """Class gradients of each local step, and what their sum has come to."""
    images, _ = sets(ctx, data)
    model = ctx.build("cnn", images.shape, images.n_classes, seed=seed)
    _, index = client(model, images, "unbalanced", batch_size, 10, seed)
    x, y, most = images.x[index], images.y[index], counted(images, index).argmax()
    updates = [fedavg(model, x[:k], y[:k], lr=lr) for k in range(1, 11)]
    sums = torch.stack([llg.class_gradients(u, model) for u in updates]).cpu()
    per_step = sums.diff(dim=0, prepend=torch.zeros_like(sums[:1]))
    norms, first = per_step.norm(dim=1), per_step[0].norm()
    for k in range(10):
        yield {
            "step": k + 1, "share": (norms[k] / norms.sum()).item(),
            "majority": (per_step[k, most] / first).item(),
            "overshot": float(per_step[k, most] > 0),
            "length": (sums[k].norm() / first).item(),
        }  # fmt: skip


BY_STEP = Experiment(
    "by_step",
    steps_of,
    quick=grid(data="mnist5k", lr=LR, batch_size=[4, 64]),
    paper=grid(data="mnist", lr=[0.001, 0.01, LR], batch_size=[4, 64]),
    trials=(15, 100),
    by="step",
    values=dict(share=NUMBER, majority=NUMBER, overshot=MEAN, length=NUMBER),
    fixed={"net": "cnn", "composition": "unbalanced"},
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


PLAIN, RESIDUAL = ["cnn", "lenet"], ["resnet20", "resnet20-relu"]
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


def attack_users(federation, auxiliary, steps, seed, victims, dlg_victims):
    """Attack users of this moment's model: {attack: mean ASR}."""
    images, model = federation.images, federation.model
    index = federation.batches(federation.choose(victims), steps, 8)
    updates = federation.updates(index, lr=LR)
    truth = metrics.counts(images.y[index].flatten(1), images.n_classes).cpu()
    g = updates[head(model).weight].sum(2).double()
    dummy, real = (
        probes(model, source, [8], seed)[8] for source in ("zeros", auxiliary)
    )
    answers = extracted(g, dummy, real, 8, steps)
    generator = torch.Generator().manual_seed(seed + 1)
    answers["random guess"] = guess.uniform_counts(
        8 * steps, g.shape[1], len(g), generator
    )
    if dlg_victims:
        some = [
            fedavg(model, images.x[i], images.y[i], lr=LR) for i in index[:dlg_victims]
        ]
        answers["DLG"] = torch.stack([dlg.recover(update, model) for update in some])
    return {
        attack: metrics.attack_success_rate(c.cpu(), truth[: len(c)]).mean().item()
        for attack, c in answers.items()
    }


def training(
    ctx, seed, data, algorithm, users, participants, iterations, moments, victims, dlg_victims, unit="step",
):  # fmt: skip
    """Train, and attack at regular moments: the mean over the users attacked. An iteration is a step or a round."""
    (images, auxiliary), steps = sets(ctx, data), STEPS[algorithm]
    unit_steps = steps if unit == "step" else 1
    federation, rounds = federated(ctx, seed, images, users), iterations // unit_steps
    for done in range(rounds + 1):
        if done % (rounds // moments) == 0:
            right = accuracy(federation.model, auxiliary)
            slow = dlg_victims if done in (0, rounds // 2, rounds) else 0
            success_rates = attack_users(
                federation, auxiliary, steps, seed + done, victims, slow
            )
            for attack, asr in success_rates.items():
                yield dict(
                    iteration=done * unit_steps, attack=attack, asr=asr, accuracy=right,
                    images=len(images) + len(auxiliary),
                )  # fmt: skip
        if done < rounds:
            federation.round(participants, steps, 8, lr=LR)


VICTIMS = dict(asr=rate("victims", "batch_size"), accuracy=rate(10_000))
SEEN = dict(by=("iteration", "attack"), values=VICTIMS, facts="images")
FIG6 = Experiment(
    "fig6",
    training,
    quick=grid(algorithm=list(STEPS), moments=4, victims=20, dlg_victims=0, **SMALL),
    paper=grid(algorithm=list(STEPS), moments=10, victims=100, dlg_victims=2, **FULL),
    trials=(1, 6),
    fixed=TRAINED,
    **SEEN,
)

FIG6_EARLY = Experiment(  # more networks, as far as the peak
    "fig6_early",
    training,
    quick=grid(algorithm="FedAvg", moments=2, victims=20, dlg_victims=0, **SMALL),
    paper=grid(
        algorithm="FedAvg",
        moments=3,
        victims=100,
        dlg_victims=0,
        **FULL | dict(iterations=300),
    ),
    trials=(1, 40),
    fixed=TRAINED,
    tables="fig6",
    **SEEN,
)
FIG6_ROUNDS = Experiment(
    "fig6_rounds",
    training,
    quick=grid(algorithm="FedAvg", moments=2, victims=20, dlg_victims=0, **BRIEF),
    paper=grid(algorithm="FedAvg", moments=10, victims=100, dlg_victims=2, **FULL),
    trials=(1, 10),
    fixed=TRAINED | dict(unit="round"),
    tables="fig6",
    **SEEN,
)


def two_parts(ctx, seed, data, algorithm, users, participants, iterations, victims):
    """ASR at the end of training, with impact and offset from the update or from auxiliary data."""
    (images, auxiliary), steps = sets(ctx, data), STEPS[algorithm]
    federation = federated(ctx, seed, images, users)
    for _ in range(iterations // steps):
        federation.round(participants, steps, 8, lr=LR)
    index = federation.batches(federation.choose(victims), steps, 8)
    g = federation.updates(index, lr=LR)[head(federation.model).weight].sum(2).double()
    truth = metrics.counts(images.y[index].flatten(1), images.n_classes).cpu()
    probe_gradients = probes(federation.model, auxiliary, [8], seed)[8]
    impact, offset = llg.impact_and_offset(probe_gradients, 8, steps)
    for name, m in (("own", llg.gradient_impact(g, 8 * steps)), ("auxiliary", impact)):
        for which, s in (("none", 0.0), ("auxiliary", offset)):
            counts = llg.extract(g, m, s, 8 * steps).cpu()
            asr = metrics.attack_success_rate(counts, truth).mean().item()
            yield {"impact": name, "offset": which, "asr": asr}


TWO_PARTS = Experiment(
    "two_parts",
    two_parts,
    quick=grid(algorithm=list(STEPS), victims=20, **SMALL),
    paper=grid(algorithm=list(STEPS), victims=100, **FULL),
    trials=(1, 3),
    by=("impact", "offset"),
    values=dict(asr=rate("victims", "batch_size")),
    fixed=TRAINED,
)
