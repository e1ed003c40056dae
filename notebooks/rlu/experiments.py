"""RLU: the experiments. A trial is a function of its context, its seed and its setting.

Those on the forms of RLU, and on images and logits, stand in modules of their own; what all share in ``experiments_base``.
"""

import torch
from torch import nn

from fedleak.attacks.labels import ilrg, rlu
from fedleak_book.experiments import Experiment, grid
from fedleak.data.partitions import dirichlet, local_batches
from fedleak.federated import Scheme, Server, fedavg
from fedleak_book.experiments.kinds import NUMBER, rate
from fedleak.models import head, head_pass
from notebooks.rlu.experiments_base import (
    ACCURACY,
    ALPHAS,
    AUX,
    CLIENTS,
    IACC,
    LR,
    ROUND,
    RULED,
    SCORES,
    LABELS,
    attack_rows,
    count_labels,
    round_facts,
    local_updates,
    prepare_rules,
    accuracies,
    sample_server,
    split_images,
    trained_lenet,
)
from notebooks.rlu.experiments_choices import (
    CHOICES,
    REDUCED,
    REDUCED_AUXILIARY,
    REDUCED_SCHEMES,
    TABLE4_CHOICES,
    TABLE4_STRONG,
)
from notebooks.rlu.experiments_deep import (
    RATES_CIFAR10,
    RATES_CIFAR100,
    REDUCED_CIFAR10,
    REDUCED_CIFAR100,
)
from notebooks.rlu.experiments_forms import COST, TABLE5, TABLE5_CHOICES, VARIANTS
from notebooks.rlu.experiments_images import FIG3, NORMAL, PARTITIONS
from notebooks.rlu.experiments_one_step import (
    ONE_STEP,
    ONE_STEP_LENET,
    REDUCED_LENET,
    REDUCED_ONE_STEP,
    VGG16_ELU,
)

__all__ = [
    "CHOICES",
    "REDUCED",
    "REDUCED_AUXILIARY",
    "REDUCED_SCHEMES",
    "TABLE4_CHOICES",
    "TABLE4_STRONG",
]
__all__ += ["COST", "FIG3", "NORMAL", "PARTITIONS", "TABLE5", "TABLE5_CHOICES"]
__all__ += ["ONE_STEP", "ONE_STEP_LENET", "REDUCED_LENET", "REDUCED_ONE_STEP"]
__all__ += ["VARIANTS", "VGG16_ELU"]
__all__ += ["RATES_CIFAR10", "RATES_CIFAR100", "REDUCED_CIFAR10", "REDUCED_CIFAR100"]

EXTRA = {
    "sgdm": dict(momentum=0.9),
    "nag": dict(momentum=0.9),
    "fedprox": dict(regularisation=5.0),
    "feddyn": dict(regularisation=1.0),
    "feddc": dict(regularisation=1.0),
}
NAMES = ["fedavg", "sgdm", "nag", "scaffold", "fedprox", "feddyn", "feddc"]


def noted_round(server, x, y):
    """Run a round; return the clients' updates, and each step's bias gradient from the logits, [client, step, n]."""
    logits = []
    handle = server.model.register_forward_hook(lambda *a: logits.append(a[2].detach()))
    updates = server.round(x, y)
    handle.remove()
    p = torch.stack(logits).unflatten(0, y.shape[:2]).softmax(-1)
    return updates, (p - nn.functional.one_hot(y, p.shape[-1])).mean(2)


def identity(ctx, seed, name, data):
    """Compute the largest error of Eq. 16 over three rounds of three clients, with five steps each."""
    images, generator = ctx.images(data), torch.Generator().manual_seed(seed)
    worst, h = 0.0, torch.zeros(1)
    model = ctx.build("lenet", images.shape, 10, seed=seed).double()
    server = Server(model, Scheme(name, LR, 5, **EXTRA.get(name, {})), 3)
    bias = head(model).bias
    for _ in range(3):
        index = torch.randint(len(images), (3, 5, 16), generator=generator)
        x, y = images.x[index].double(), images.y[index]
        updates, gradients = noted_round(server, x, y)
        for k, update in enumerate(updates):
            h = server.history(k, bias)
            by_eq_16 = h - LR * server.scheme.weights().to(gradients) @ gradients[k]
            worst = max(worst, (update.tensors[bias] - by_eq_16).abs().max().item())
    share = float(h.abs().max() / update.tensors[bias].abs().max())
    yield {"error": worst, "share_of_h": share}


TABLE1 = Experiment(
    "table1",
    identity,
    quick=grid(name=NAMES, data="mnist5k"),
    paper=grid(name=NAMES, data="mnist"),
    trials=(2, 10),
    values=dict(error=NUMBER, share_of_h=NUMBER),
    rounding="error",
)


LENET = dict(
    net="lenet",
    activation=["relu", "tanh"],
    batch_size=32,
    alpha=0.5,
    steps=[1, 10],
    clients=10,
)
CIFAR10 = dict(net="vgg16", data="cifar10", activation=["relu", "elu"], batch_size=64)


def untrained(
    ctx, seed, net, data, activation, batch_size, alpha, steps, clients, share=None
):
    """Score every rule on the clients of one untrained network."""
    images = ctx.images(data)
    like = dict(seed=seed, activation=activation)
    model = ctx.build(net, images.shape, images.n_classes, **like)
    round_of = (data, alpha, steps, batch_size, clients, seed)
    yield from attack_rows(ctx, model, *round_of, share)


TABLE2_CIFAR10 = Experiment(
    "table2_cifar10",
    untrained,
    quick=grid(**LENET | dict(data="photos", activation="relu", clients=1, steps=1)),
    paper=grid(**CIFAR10, alpha=0.5, steps=[1, 10], clients=CLIENTS),
    trials=(1, 10),
    fixed=dict(lr=LR, stage=0, share=0.87),  # leaves the server 100 images per class
    tables="table2",
    **RULED,
)

TABLE2_CIFAR100 = Experiment(  # one step: `ONE_STEP`
    "table2_cifar100",
    untrained,
    quick=grid(**LENET | dict(data="photos", activation="relu", clients=1, steps=10)),
    paper=grid(
        net="vgg16",
        data="cifar100",
        activation=["relu", "selu"],
        batch_size=256,
        alpha=0.1,
        steps=10,
        clients=CLIENTS,
    ),
    trials=(1, 10),
    fixed=dict(lr=LR, stage=0),
    tables="table2",
    **RULED,
)

TABLE2 = Experiment(
    "table2",
    untrained,
    quick=grid(**LENET | dict(data="mnist5k"))
    + grid(**LENET | dict(data="photos", activation="elu")),
    paper=grid(**LENET | dict(data=["mnist", "svhn"])),
    trials=(1, 10),
    fixed=dict(lr=LR, stage=0),
    **RULED,
)


ALL_OF_TABLE2 = TABLE2, TABLE2_CIFAR10, TABLE2_CIFAR100, ONE_STEP


def learning_rates(ctx, seed, data, lr):
    """Score iLRG and Algorithms 1 and 2 on an untrained network after ten steps, by learning rate."""
    (pool, test), generator = (
        split_images(ctx, data),
        torch.Generator().manual_seed(seed),
    )
    model = ctx.build("lenet", pool.shape, pool.n_classes, seed=seed)
    server, parts = (
        sample_server(test, AUX, seed),
        dirichlet(pool.y, CLIENTS, 0.5, seed),
    )
    first = rlu.prepare(model, server, trajectory="midpoint")
    second = rlu.prepare(model, server)
    for part in parts:
        index = local_batches(part, 10, 32, generator)
        update = fedavg(model, pool.x[index], pool.y[index], lr, share="delta")
        answers = {
            "iLRG": ilrg.recover(update, model),
            "Algorithm 1": first.recover(update).counts,
            "Algorithm 2": second.recover(update).counts,
        }
        for rule, n in answers.items():
            iacc = accuracies(n, count_labels(pool.y[index], pool.n_classes))["iacc"]
            yield {"rule": rule, "iacc": iacc, **round_facts(pool, parts, server)}


RATES = Experiment(
    "rates",
    learning_rates,
    quick=grid(data="mnist5k", lr=[0.01, 0.3]),
    paper=grid(data="mnist", lr=[0.01, 0.03, 0.1, 0.3, 0.5], trials=10),
    by="rule",
    values=IACC,
    facts=("images", "held", "aux"),
    fixed=dict(net="lenet", batch_size=32, steps=10, alpha=0.5, stage=0) | ROUND,
)


TARGETS = {
    "mnist": [0.0, 0.3, 0.6, 0.86, 0.95],
    "svhn": [0.0, 0.3, 0.5, 0.7],
    "cifar10": [0.0, 0.2, 0.3, 0.4, 0.5],
}


def along_training(ctx, seed, data, stage):
    """Score every rule on the clients of one network at one stage of training."""
    model, train, held_out = trained_lenet(ctx, data, "relu", stage, seed)
    for row in attack_rows(ctx, model, data, 0.5, 10, 32, CLIENTS, seed):
        yield {"train": train, "held_out": held_out, **row}


FIG1 = Experiment(
    "fig1",
    along_training,
    quick=grid(data="mnist5k", stage=[0.0, 0.3, 0.6, 0.86]),
    paper=[s for d, stages in TARGETS.items() for s in grid(data=d, stage=stages)],
    trials=(1, 3),
    fixed=dict(net="lenet", batch_size=32, steps=10, alpha=0.5, training="central")
    | ROUND,
    **RULED | dict(values=SCORES | dict(train=ACCURACY, held_out=ACCURACY)),
)


HOW = ["average", "gaussian"]  # estimators of the coefficients; RLU uses the second


def own_images(ctx, seed, data, stage, steps, confidence):
    """Score RLU with the server's images and with the client's; quiet: share of samples with an error below 0.01."""
    (pool, test), model = (
        split_images(ctx, data),
        trained_lenet(ctx, data, "relu", stage, seed)[0],
    )
    server = sample_server(test, AUX, seed)
    generator = torch.Generator().manual_seed(seed)
    for part in dirichlet(pool.y, CLIENTS, 0.5, seed):
        index = local_batches(part, steps, 32, generator)
        update = fedavg(model, pool.x[index], pool.y[index], LR, share="delta")
        chosen, y = index.flatten().to(pool.y.device), pool.y[index].flatten()
        right = head_pass(model, pool.x[chosen]).probabilities.gather(1, y[:, None])
        others = [pool.of_class(c)[:20] for c in range(10) if not (y == c).any()]
        auxiliary = {"server's": server, "own": pool.take(torch.cat([chosen, *others]))}
        how = dict(trajectory="midpoint", confidence=confidence)
        for name, images in auxiliary.items():
            counts = rlu.recover(update, model, images, **how)
            quiet = (right > 0.99).double().mean().item()
            yield {"known": name, "quiet": quiet, **accuracies(counts, count_labels(y))}


OWN_IMAGES = Experiment(
    "own_images",
    own_images,
    quick=grid(data="mnist5k", stage=0.86, steps=[1, 10], confidence=HOW),
    paper=grid(
        data="mnist", stage=[0.0, 0.6, 0.86, 0.95], steps=[1, 10], confidence=HOW
    ),
    trials=(1, 3),
    by="known",
    values=SCORES | dict(quiet=rate(*LABELS)),
    fixed=dict(net="lenet", batch_size=32, alpha=0.5) | ROUND,
)


TENS = dict(activation="relu", batch_size=64, steps=10, clients=CLIENTS)
TABLE3_VGG16 = Experiment(
    "table3_vgg16",
    untrained,
    quick=grid(net="lenet", data="photos", alpha=[0.1, 5.0], **TENS),
    paper=grid(net="vgg16", data="cifar10", alpha=ALPHAS, **TENS),
    trials=(1, 10),
    fixed=dict(lr=LR, stage=0),
    tables="table3",
    **RULED,
)


def heterogeneous(ctx, seed, data, stage, alpha):
    """Score every rule on the clients of a partition."""
    model, train, _ = trained_lenet(ctx, data, "relu", stage, seed)
    for row in attack_rows(ctx, model, data, alpha, 10, 64, CLIENTS, seed):
        yield {"train": train, **row}


TABLE3 = Experiment(
    "table3",
    heterogeneous,
    quick=grid(data="photos", stage=0.6, alpha=[0.1, 5.0]),
    paper=grid(data="cifar10", stage=[0.0, 0.4], alpha=ALPHAS),
    trials=(1, 3),
    fixed=dict(net="lenet", batch_size=64, steps=10) | ROUND,
    **RULED | dict(values=SCORES | dict(train=ACCURACY)),
)


def few_auxiliary(ctx, seed, data, stage, size):
    """Score RLU by the number of auxiliary images per class."""
    (pool, test), (model, train, _) = (
        split_images(ctx, data),
        trained_lenet(ctx, data, "relu", stage, seed),
    )
    server, parts = (
        sample_server(test, size, seed),
        dirichlet(pool.y, CLIENTS, 0.5, seed),
    )
    real = round_facts(pool, parts, sample_server(test, 100, seed))
    real["most_aux"] = real.pop("aux")
    attack = rlu.prepare(model, server, trajectory="midpoint")
    for update, truth in local_updates(model, pool, 0.5, 10, 32, CLIENTS, seed):
        counts = attack.recover(update).counts
        yield {"train": train, "iacc": accuracies(counts, truth)["iacc"], **real}


FIG2 = Experiment(
    "fig2",
    few_auxiliary,
    quick=grid(data="mnist5k", stage=[0.0, 0.6], size=[5, 10, 50, 100]),
    paper=grid(data="mnist", stage=[0.0, 0.6], size=[5, 10, 50, 100])
    + grid(data="svhn", stage=[0.0, 0.5], size=[5, 10, 50, 100])
    + grid(data="cifar10", stage=[0.0, 0.4], size=[5, 10, 50, 100]),
    trials=(1, 3),
    values=IACC | dict(train=ACCURACY),
    facts=("images", "held", "most_aux"),
    fixed=dict(net="lenet", batch_size=32, steps=10, alpha=0.5) | ROUND,
)


def scheme(*given):
    """Return a scheme with its parameters as settings."""
    return dict(zip(("name", "level", "momentum", "regularisation"), given))


MILD = [scheme("fedprox", "mild", 0.0, 0.1), scheme("sgdm", "mild", 0.1, 0.0)]
STRONG = [scheme("fedprox", "strong", 0.0, 5.0), scheme("sgdm", "strong", 0.9, 0.0)]
DRIFT = [scheme("scaffold", "", 0.0, 0.0), scheme("feddc", "", 0.0, 1.0)]
OTHER = [
    scheme("fedavg", "", 0.0, 0.0),
    scheme("nag", "", 0.9, 0.0),
    scheme("feddyn", "", 0.0, 1.0),
]


def run_on(schemes, rounds, data):
    """Return settings of some schemes."""
    return [dict(s, data=d, rounds=rounds) for d in data for s in schemes]


def schemes(ctx, seed, data, name, level, momentum, regularisation, rounds):
    """Score every rule, and RLU uninformed of the scheme, in the last of some rounds."""
    (pool, test), generator = (
        split_images(ctx, data),
        torch.Generator().manual_seed(seed),
    )
    model = ctx.build("lenet", pool.shape, pool.n_classes, seed=seed)
    server = Server(model, Scheme(name, LR, 10, momentum, regularisation), CLIENTS)
    parts, aux = dirichlet(pool.y, CLIENTS, 0.5, seed), sample_server(test, AUX, seed)
    for _ in range(rounds):
        index = [local_batches(part, 10, 32, generator) for part in parts]
        sent = {k: v.clone() for k, v in model.state_dict().items()}
        updates = server.round([pool.x[i] for i in index], [pool.y[i] for i in index])
    model.load_state_dict(sent)  # the model that the last round's updates started from
    read = prepare_rules(model, aux)
    for k, (update, i) in enumerate(zip(updates, index)):
        history = server.history(k, head(model).bias)
        answers = read(update, scheme=server.scheme, history=history)
        answers["RLU, ρ = 1"] = read(update)["RLU"]
        for rule, n in answers.items():
            iacc = accuracies(n, count_labels(pool.y[i], pool.n_classes))["iacc"]
            algorithm = "1" if rule.startswith("RLU") else ""
            real = round_facts(pool, parts, aux)
            yield {"rule": rule, "algorithm": algorithm, "iacc": iacc, **real}


TABLE4 = Experiment(
    "table4",
    schemes,
    quick=run_on(STRONG, 1, ["mnist5k"]) + run_on(DRIFT, 3, ["mnist5k"]),
    paper=run_on(MILD + STRONG, 1, ["mnist", "svhn", "cifar10"])
    + run_on(STRONG + DRIFT + OTHER, 3, ["mnist"]),
    trials=(1, 3),
    fixed=dict(net="lenet", batch_size=32, steps=10, alpha=0.5, stage=0) | ROUND,
    **RULED | dict(values=IACC),
)
