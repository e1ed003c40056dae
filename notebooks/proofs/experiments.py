"""The arena: how many labels an update proves, and whether a proof is ever wrong."""

import copy

import numpy as np
import torch
from torch import nn

from fedleak import metrics
from fedleak.attacks.labels import whole_head
from fedleak.attacks.labels.exact import head_splitting, peeling
from fedleak.data import compose, draw
from fedleak_book.experiments import Experiment, grid, networks, spawned
from fedleak.federated import Softening, Update, fedavg, fedsgd
from fedleak.federated.defences import protect, protections
from fedleak_book.experiments.kinds import DIFFERENCE, MEAN, rate
from fedleak.models.zoo import MLP
from notebooks.arena.updates import SETS, STATES, images, prepared, with_layers

WIDE, WIDTH = "FC 784-1000-10", 1000
DEVIATION = 0.5  # of the first layer's weights, as they are drawn
PRECISIONS = {"single": torch.float32, "double": torch.float64}


def connected(ctx, data, state, number):
    """A fully connected network with one hidden layer of wide weights, trained or not."""
    pool = images(ctx, data)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number)
        model = MLP(pool.shape, pool.n_classes, (WIDTH,))
        nn.init.normal_(model[1].weight, std=DEVIATION)
    model.input_shape = pool.shape
    model = model.to(pool.x.device)
    if state == "trained":
        networks.train(model, pool, SETS[data]["steps"], number)
    return model


def network(ctx, seed, net, data, state):
    """A network: a fresh one for every trial, or one of a few trained ones."""
    if net != WIDE:
        return prepared(ctx, net, data, state, seed)
    if state == "untrained":
        return connected(ctx, data, state, seed)
    what = data, state, seed % SETS[data]["copies"]
    model = ctx.once(("connected", *what), lambda: connected(ctx, *what))
    return copy.deepcopy(model)


def batches(pool, seed, batch_size, updates):
    """Labels and images of unbalanced batches."""
    generator = torch.Generator().manual_seed(spawned(seed, "batches"))
    how = "unbalanced", batch_size, pool.n_classes, updates, generator
    index = draw(pool, compose(*how), generator)
    return pool.x[index], pool.y[index]


def is_wrong(proven, truth):
    """Whether an update is said to prove more labels of a class than it has."""
    return float((proven > truth).any())


# --- how many labels are proven ---
def proven(ctx, seed, net, data, state, batch_size, precision):
    """The labels that one update proves, and the counts with and without the proofs."""
    pool, dtype = images(ctx, data), PRECISIONS[precision]
    model = network(ctx, seed, net, data, state).to(dtype)
    x, y = (part[0] for part in batches(pool, seed, batch_size, 1))
    update, truth = fedsgd(model, x.to(dtype), y), metrics.counts(y, pool.n_classes)
    aux = images(ctx, data, "aux")
    answer = peeling.prepare(model, aux).recover(update, seed=spawned(seed, "draws"))
    alone = whole_head.prepare(model, aux).recover(update)
    iacc, without = (
        metrics.braun_blanquet(result.counts, truth).item()
        for result in (answer, alone)
    )
    share = int(answer.proven.sum()) / batch_size
    wrong = is_wrong(answer.proven, truth)
    return {"proven": share, "wrong": wrong, "iacc": iacc, "gain": iacc - without}


def wide(**setting):
    """Settings of the wide network, which takes seconds an update."""
    return grid(net=WIDE, data="MNIST", state=STATES, trials=3, **setting)


SIZES = [8, 16, 32, 128]
PROVEN = Experiment(
    "proven",
    proven,
    quick=grid(
        net="lenet",
        data="MNIST, 5,000",
        state=STATES,
        batch_size=[8, 32],
        precision="single",
    ),
    paper=grid(
        net="lenet",
        data="MNIST",
        state=STATES,
        batch_size=SIZES,
        precision=[*PRECISIONS],
    )
    + wide(batch_size=[8, 32, 128], precision="single"),
    trials=(2, 5),
    values={
        "proven": rate("batch_size"),
        "wrong": MEAN,
        "iacc": rate("batch_size"),
        "gain": DIFFERENCE,
    },
    fixed={"composition": "unbalanced", "deviation": DEVIATION},
)


# --- clients that keep the conditions, and others: what each sends of a batch ---
def changed(change):
    """An honest update whose tensors are changed one by one."""
    return lambda model, x, y, seed, honest: honest.replace(
        {name: change(t) for name, t in honest.tensors.items()}
    )


def noisy(share):
    """Noise of so large a share of each tensor's root mean square."""

    def client(model, x, y, seed, honest):
        generator = torch.Generator().manual_seed(seed)

        def noise(t):
            z = torch.randn(t.shape, generator=generator).to(t)
            return share * t.square().mean().sqrt() * z

        return honest.replace({n: t + noise(t) for n, t in honest.tensors.items()})

    return client


def quantised(bits):
    """Tensors rounded to `bits` bits, evenly up to the largest entry."""

    def change(t):
        step = t.abs().max().clamp(min=1e-30) / (2 ** (bits - 1) - 1)
        return (t / step).round() * step

    return changed(change)


def defended(name, strength):
    """A registered defence."""
    return lambda model, x, y, seed, honest: protect(
        honest, protections()[name].make(strength, model, 1, seed)
    )


def claiming_samples(count):
    """Another number of samples than there are."""
    return lambda model, x, y, seed, honest: Update(
        honest.tensors, "gradient", count(len(y))
    )


def in_double(model, x, y, seed, honest):
    """An honest gradient in double precision."""
    return fedsgd(copy.deepcopy(model).double(), x.double(), y)


def with_dropout(model, x, y, seed, honest):
    """Half of the head's inputs are dropped; the names stay the model's."""
    dropping = with_layers(model, "dropout").train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        update = fedsgd(dropping, x, y)
    return update.replace(dict(zip(honest.tensors, update.tensors.values())))


def leaky(model, x, y, seed, honest):
    """Leaky activations, which the server does not know of."""
    layers = [nn.LeakyReLU(0.01) if isinstance(m, nn.ReLU) else m for m in model]
    return fedsgd(nn.Sequential(*layers), x, y)


def smoothed(model, x, y, seed, honest):
    """Labels smoothed by 0.1."""
    return fedsgd(model, x, y, Softening(smoothing=0.1))


def decayed(model, x, y, seed, honest):
    """A gradient with weight decay in it."""
    weights = {n: w.detach() for n, w in model.named_parameters()}
    return honest.replace({n: t + 5e-4 * weights[n] for n, t in honest.tensors.items()})


def in_two_steps(model, x, y, seed, honest):
    """Two local steps that are said to be one."""
    halves = (part.unflatten(0, (2, -1)) for part in (x, y))
    sent = fedavg(model, *halves, lr=0.1)
    return honest.replace({n: t / 2 for n, t in sent.tensors.items()})


def as_difference(model, x, y, seed, honest):
    """A difference of weights in single precision, at the rate 0.1."""
    return fedavg(model, x[None], y[None], lr=0.1, share="delta")


HONEST = {
    "single precision": lambda model, x, y, seed, honest: honest,
    "double precision": in_double,
}
SLIGHT = {
    "noise of 1e-5 of its size": noisy(1e-5),
    "16 bits": quantised(16),
    "difference of weights": as_difference,
    "two steps that are said to be one": in_two_steps,
}
BROKEN = {
    "noise of 0.01 of its size": noisy(0.01),
    "noise of its size": noisy(1.0),
    "clipping and noise, 0.003": defended("clipping and noise", 0.003),
    "clipping and noise, 0.03": defended("clipping and noise", 0.03),
    "sparsification, 0.9": defended("sparsification", 0.9),
    "8 bits": quantised(8),
    "half precision, not told": changed(lambda t: t.half().to(t)),
    "scaled by a half": changed(lambda t: t / 2),
    "one sample more is told": claiming_samples(lambda samples: samples + 1),
    "half of the samples are told": claiming_samples(lambda samples: samples // 2),
    "dropout": with_dropout,
    "leaky activations": leaky,
    "smoothed labels": smoothed,
    "weight decay": decayed,
}
CLIENTS = HONEST | SLIGHT | BROKEN


def by_peeling(update, model, seed):
    """The labels that peeling proves."""
    peeled, _ = peeling.peel(update, model, seed)
    return [] if peeled is None else peeled.labels


def by_splitting(update, model, seed):
    """All labels, or none, by head splitting."""
    try:
        counts = head_splitting.recover(update, model, seed=seed)
    except ValueError:  # refused
        return []
    return torch.arange(len(counts)).repeat_interleave(counts)


def proofs(ctx, seed, net, data, state, batch_size, updates, prove=by_peeling):
    """Of each client's updates of one network: those with a wrong proof, those with any, and the share of labels."""
    pool, model = images(ctx, data), network(ctx, seed, net, data, state)
    totals = {client: np.zeros(3) for client in CLIENTS}
    sampled = zip(*batches(pool, seed, batch_size, updates), strict=True)
    for number, (x, y) in enumerate(sampled):
        honest, truth = fedsgd(model, x, y), metrics.counts(y, pool.n_classes)
        for client, send in CLIENTS.items():
            update = send(model, x, y, spawned(seed, f"{client} {number}"), honest)
            labels = prove(update, model, spawned(seed, f"draws {number}"))
            labels = torch.as_tensor(labels, dtype=torch.long)
            wrong = is_wrong(metrics.counts(labels, pool.n_classes), truth)
            totals[client] += wrong, bool(len(labels)), len(labels) / batch_size
    for client, sums in totals.items():
        means = sums / updates
        yield {"client": client, **dict(zip(("wrong", "shown", "proven"), means))}


def of_lenet(batch_size, updates, data="MNIST"):
    """Settings of `updates` batches of this size."""
    sizes = {"batch_size": batch_size, "updates": updates}
    return grid(net="lenet", data=data, state=STATES, **sizes)


PROOFS = Experiment(
    "proofs",
    proofs,
    quick=of_lenet(8, 1, "MNIST, 5,000"),
    paper=of_lenet(8, 2) + of_lenet(32, 40) + of_lenet(64, 10),
    trials=(2, 5),
    by=("client",),
    values={
        "wrong": rate("updates"),
        "shown": rate("updates"),
        "proven": rate("updates", "batch_size"),
    },
    fixed={"composition": "unbalanced"},
)


def split_proofs(ctx, seed, net, data, state, batch_size, updates):
    """The same by head splitting."""
    how = {"prove": by_splitting}
    yield from proofs(ctx, seed, net, data, state, batch_size, updates, **how)


SPLIT_PROOFS = Experiment(
    "split_proofs",
    split_proofs,
    quick=of_lenet(4, 1, "MNIST, 5,000"),
    paper=of_lenet(2, 10) + of_lenet(4, 40),
    trials=(2, 5),
    by=PROOFS.by,
    values=PROOFS.values,
    fixed=PROOFS.fixed,
)
