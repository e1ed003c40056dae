"""RLU: Table 5, the capabilities of all rules, and the variants of RLU."""

import dataclasses

import torch

from fedleak.attacks.labels import confidence, counts, gi, idlg, ilrg, llg
from fedleak.attacks.labels import rlg, rlu, whole_head, zlg
from fedleak_book.experiments import Experiment, grid
from fedleak.federated import fedavg
from fedleak_book.experiments.kinds import difference, rate
from fedleak.models import head, head_pass
from notebooks.rlu import clients as c
from notebooks.rlu.clients import ACCURACY, AUX, CLIENTS, IACC, LABELS, LR


def released(update, model, server):
    """Apply the released code's rule, without its learning-rate error."""
    ends = [model] if update.steps == 1 else [model, update.model(model)]
    logits = [confidence.logits_of(head_pass(m, server.x), m) for m in ends]
    mean_by_class = confidence.mean_by_class
    means = [mean_by_class(z, server.y, server.n_classes).mean(0) for z in logits]
    p = torch.stack(means).softmax(1).mean(0)
    positive = (p - update.gradient(head(model).bias).double()).clamp(min=0)
    real = update.samples * positive / positive.sum()
    return counts.round_to_total(real, update.samples)


def search_as_printed(update, model, server):
    """Apply Algorithm 2 with the mean of ratios of Eq. 14."""
    observed = rlu.observe(update, model, None, None)
    ends = (model, update.model(model))
    before, after = (confidence.logits_of(head_pass(m, server.x), m) for m in ends)
    by_class = confidence.erroneous_confidence
    epsilons = [by_class(z, server.y, "gaussian") for z in (before, after)]
    system = sum(map(confidence.coefficients, epsilons)) / 2
    start = counts.solve(system, observed.target, update.samples)
    inputs = (before, after, server.y, observed, "gaussian")
    solution = rlu.search(start, *inputs, ratios=True)
    return counts.round_to_total(solution, update.samples)


COLUMNS = ("setting", "data", "activation", "stage", "alpha", "steps")
SETTINGS = [  # the extension was developed on the first four
    dict(zip(COLUMNS, values))
    for values in (
        ("developed on: .60, m = 1", "mnist", "relu", 0.6, 0.5, 1),
        ("developed on: .60, m = 10", "mnist", "relu", 0.6, 0.5, 10),
        ("developed on: .86, m = 1", "mnist", "relu", 0.86, 0.5, 1),
        ("developed on: .86, m = 10", "mnist", "relu", 0.86, 0.5, 10),
        ("single", "cifar10", "relu", 0.4, 0.5, 1),
        ("cifar10", "cifar10", "relu", 0.4, 0.5, 10),
        ("svhn", "svhn", "relu", 0.5, 0.5, 10),
        ("tanh", "mnist", "tanh", 0.6, 0.5, 10),
        ("alpha", "mnist", "relu", 0.6, 0.1, 10),
        ("late", "mnist", "relu", 0.95, 0.5, 10),
        ("untrained", "mnist", "relu", 0.0, 0.5, 10),
    )
]
FEW = ("developed on: .60, m = 1", "tanh", "untrained")


def variants(ctx, seed, setting, data, activation, stage, alpha, steps, clients):
    """Score every variant of RLU on the same updates; gain: over Algorithm 1 on the same update."""
    pool, test = c.split_images(ctx, data)
    model, train, held_out = c.trained_lenet(ctx, data, activation, stage, seed)
    server = c.sample_server(test, AUX, seed)
    half = dict(trajectory="midpoint")
    for update, truth in c.local_updates(model, pool, alpha, steps, 32, clients, seed):
        inputs = (update, model, server)
        answers = {"RLU": rlu.recover(*inputs, **half)}
        answers["averaged"] = rlu.recover(*inputs, **half, confidence="average")
        if steps > 1:
            answers["Alg. 2"] = rlu.recover(*inputs)
            answers["Alg. 2, Eq. 14 as printed"] = search_as_printed(*inputs)
        answers["released code"] = released(update, model, server)
        answers["whole head"] = whole_head.recover(update, model, server, seed=seed)
        iacc = {form: c.accuracies(n, truth)["iacc"] for form, n in answers.items()}
        for form, value in iacc.items():
            row = {"form": form, "iacc": value, "gain": value - iacc["RLU"]}
            yield row | {"train": train, "held_out": held_out}


VARIANTS = Experiment(
    "variants",
    variants,
    quick=[
        s | dict(data="mnist5k", clients=5) for s in SETTINGS if s["setting"] in FEW
    ],
    paper=[s | dict(clients=CLIENTS) for s in SETTINGS],
    trials=(1, 5),
    by="form",
    values=IACC
    | dict(gain=difference(*LABELS, form="RLU"), train=ACCURACY, held_out=ACCURACY),
    fixed=dict(net="lenet", batch_size=32, lr=LR, aux=AUX),
)


RUN = {
    "iDLG": lambda u, m, a: idlg.recover(u, m),
    "GI": lambda u, m, a: gi.recover(u, m),
    "RLG": lambda u, m, a: rlg.recover(u, m),
    "LLG+": lambda u, m, a: llg.recover(c.one_step(u), m, a),
    "ZLG+": lambda u, m, a: zlg.recover(u, m, a),
    "iLRG": lambda u, m, a: ilrg.recover(u, m),
    "RLU": lambda u, m, a: rlu.recover(u, m, a, trajectory="midpoint"),
}


def drawn_labels(size, steps, generator):
    """Draw labels [steps, size]: eight different ones, one, or a mix of six classes, the same in every step."""
    if size == 8:
        return torch.rand(steps, 10, generator=generator).argsort(1)[:, :8]
    most = 10 if size == 1 else 6
    return torch.randint(most, (size,), generator=generator).expand(steps, size)


def images_of(pool, labels, generator):
    """Draw the index of a random image for each label."""
    flat = [pool.of_class(int(label)) for label in labels.flatten()]
    chosen = [torch.randint(len(those), (1,), generator=generator) for those in flat]
    return torch.cat([a[i] for a, i in zip(flat, chosen)]).view(labels.shape)


def capabilities(ctx, seed, rule, data, stage=0.86):
    """Score one rule in five settings, on ten updates each."""
    pool, test = c.split_images(ctx, data)
    generator, aux = (
        torch.Generator().manual_seed(seed),
        c.sample_server(test, AUX, seed),
    )
    batch_size = {"iDLG": 1, "GI": 8, "RLG": 8}.get(rule, 32)
    build = dict(net="lenet", shape=pool.shape, n_classes=10, seed=seed)
    fresh, tanh = (ctx.build(**build, activation=a) for a in ("relu", "tanh"))
    late = c.trained_lenet(ctx, data, "relu", stage, seed)[0]
    for column, model, size, steps in (
        ("batch", fresh, 8, 1),
        ("repeats", fresh, 32, 1),
        ("activation", tanh, batch_size, 1),
        ("steps", fresh, batch_size, 10),
        ("trained", late, batch_size, 1),
    ):
        for _ in range(10):
            labels = drawn_labels(size, steps, generator)
            index = images_of(pool, labels, generator)
            update = fedavg(model, pool.x[index], pool.y[index], LR, share="delta")
            truth = c.count_labels(pool.y[index])
            try:
                iacc = c.accuracies(RUN[rule](update, model, aux), truth)["iacc"]
            except ValueError:  # the rule rejects such an update
                iacc = 0.0
            yield {"column": column, "iacc": iacc}


TABLE5 = Experiment(
    "table5",
    capabilities,
    quick=grid(rule=list(RUN), data="mnist5k"),
    paper=grid(rule=list(RUN), data="mnist"),
    trials=(1, 10),
    by="column",
    values=dict(iacc=rate(10)),
)

TABLE5_CHOICES = dataclasses.replace(
    TABLE5,
    name="table5_choices",
    quick=grid(rule="RLU", data="photos", stage=0.6),
    paper=grid(rule=list(RUN), data="svhn", stage=0.7)  # Fig. 1's last accuracies
    + grid(rule=list(RUN), data="cifar10", stage=0.5),
    tables="table5",
)
