"""The learned attacker away from trained LeNets after one step: new and deep networks, local steps, members."""

import copy
from itertools import product

import torch
from torch import nn

from fedleak import metrics
from fedleak.attacks.labels import learned, whole_head
from fedleak.attacks.labels.learned.simulated import LocalSteps
from fedleak_book.experiments import Experiment, grid
from fedleak.data import compose, draw
from fedleak.federated import Scheme, Server, Update
from fedleak_book.experiments.kinds import NUMBER
from fedleak.models import head, head_pass
from notebooks.learned.updates import (
    EXPECTED,
    HALF,
    HALVES,
    NO_ENDS,
    SCORES,
    TRAINED,
    UNTRAINED,
    WHOLE,
    score_drawn,
    draw_update,
    score_all,
    score_guess,
    fit_expected,
    head_sender,
    images,
    network,
    score,
    score_rivals,
    score_row,
)
from notebooks.learned.updates import KNOWS


def deep(ctx, seed, net, data, batch_size, iterations, updates):
    """Score an attacker of the head's gradients of one trained deep network, with its intervals."""
    model, aux = network(ctx, net, data, TRAINED), images(ctx, data, "aux")
    attacker = learned.train(model, aux, batch_size, iterations=iterations, seed=seed)
    generator = torch.Generator().manual_seed(seed ^ 0xDE)
    how = batch_size, updates, generator, head_sender(model), score_guess
    yield from score_all(ctx, model, data, attacker, *how)
    expects = fit_expected(attacker, model, aux, seed, batch_size, generator)
    pool = attacker.reader.make_pool(model, images(ctx, data))
    yield from score_drawn(attacker, pool.draw(1000, batch_size, generator), expects)


DEEP = Experiment(
    "deep",
    deep,
    quick=grid(net="resnet20-1", data="photographs", batch_size=8, iterations=40),
    paper=grid(
        net=["vgg11_bn", "resnet18"],
        data="CIFAR-10",
        batch_size=[8, 32, 128, 512],
        iterations=300,
    ),
    trials=(1, 1),
    by=["composition", "attack"],
    values=EXPECTED,
    fixed={"updates": 20},
)


FIVE = {"data": "MNIST", "steps": 5, "batch_size": 32, "iterations": 300}
ROUNDS = [
    *product([UNTRAINED, TRAINED], ["fedavg"], [0.01, 0.1]),
    *product([TRAINED], ["sgdm", "scaffold"], [0.01]),
]


def begun(ctx, data, state, scheme, lr, steps, batch_size, iterations):
    """Return a server after one round of three clients, and an attacker trained for the next round."""
    pool, generator = images(ctx, data), torch.Generator().manual_seed(31)
    model = copy.deepcopy(network(ctx, "lenet", data, state, 1))
    momentum = 0.9 if scheme == "sgdm" else 0.0
    server = Server(model, Scheme(scheme, lr, steps, momentum=momentum), 3)
    shape = ("unbalanced", batch_size, pool.n_classes, 3, generator, steps)
    index = draw(pool, compose(*shape), generator)
    server.round(list(pool.x[index]), list(pool.y[index]))
    local = LocalSteps(steps, lr * float(server.scheme.weights().mean()))
    how = {"iterations": iterations, "local": local}
    return server, learned.train(model, images(ctx, data, "aux"), batch_size, **how)


def local(ctx, seed, data, state, scheme, lr, steps, batch_size, iterations):
    """Score every attack on one client's update in the second round."""
    what = data, state, scheme, lr, steps, batch_size, iterations
    server, attacker = ctx.once(("begun", *what), lambda: begun(ctx, *what), most=1)
    model, pool, aux = server.model, images(ctx, data), images(ctx, data, "aux")
    generator = torch.Generator().manual_seed(seed)
    shape = ("unbalanced", batch_size, pool.n_classes, 3, generator, steps)
    index = draw(pool, compose(*shape), generator)
    after = copy.deepcopy(server)
    update = after.round(list(pool.x[index]), list(pool.y[index]))[0]
    truth = metrics.counts(pool.y[index[0]].flatten(), pool.n_classes).cpu()
    history = {name: after.history(0, name) for name in update.tensors}
    plain = {name: t - history[name] for name, t in update.tensors.items()}
    plain = Update(plain, "delta", update.samples, steps, attacker.local.lr)
    knowledge = {"scheme": after.scheme, "history": history[head(model).bias]}
    yield {"attack": "learned", **score(attacker, plain, model, truth)}
    for row in score_rivals(update, model, aux, truth, 0, plain, **knowledge):
        yield {**NO_ENDS, **row}


LOCAL = Experiment(
    "local",
    local,
    quick=grid(
        data="MNIST, 5,000",
        state=TRAINED,
        scheme="fedavg",
        lr=0.1,
        steps=3,
        batch_size=8,
        iterations=60,
    ),
    paper=[
        dict(state=state, scheme=scheme, lr=lr, **FIVE) for state, scheme, lr in ROUNDS
    ],
    trials=(1, 8),
    by="attack",
    values=SCORES,
)


def informed(ctx, net, data, batch_size, iterations, steps):
    """Return two attackers of a network trained on half of the images, one informed of its training loss, with their
    expectations, pools of both halves, losses, the whole head and a sender of updates.
    """
    model, aux = network(ctx, net, data, HALF, steps=steps), images(ctx, data, "aux")
    passes = {half: head_pass(model, images(ctx, data, half).x) for half in HALVES}
    logs = {half: passes[half].probabilities.clamp(min=1e-12).log() for half in HALVES}
    loss = {
        half: nn.functional.nll_loss(values, images(ctx, data, half).y).item()
        for half, values in logs.items()
    }
    train_losses = {"learned": None, KNOWS: loss["members"]}
    attackers = {
        name: learned.train(
            model, aux, batch_size, iterations=iterations, train_loss=train_loss
        )
        for name, train_loss in train_losses.items()
    }
    generator = torch.Generator().manual_seed(0)
    expects = {
        name: fit_expected(attacker, model, aux, 0, batch_size, generator)
        for name, attacker in attackers.items()
    }
    reader = attackers["learned"].reader
    pools = {h: reader.make_pool(model, images(ctx, data, h)) for h in HALVES}
    whole = whole_head.prepare(model, aux)
    return attackers, expects, pools, loss, whole, head_sender(model)


def of_halves(ctx, seed, net, data, batch_size, iterations, steps=None):
    """Score attacks on one update of members and one of non-members."""
    what = net, data, batch_size, iterations, steps
    shared = ctx.once(("informed", *what), lambda: informed(ctx, *what), most=1)
    attackers, expects, pools, loss, whole, send = shared
    model, aux = network(ctx, net, data, HALF, steps=steps), images(ctx, data, "aux")
    generator = torch.Generator().manual_seed(seed)
    for half in HALVES:
        shape = ("unbalanced", batch_size, generator, send, half)
        update, truth = draw_update(ctx, model, data, *shape)
        counts = whole.recover(update).counts
        rows = [
            score_row(WHOLE, counts, truth),
            *score_guess(update, model, aux, truth),
        ]
        drawn = pools[half].draw(250, batch_size, generator)
        for name, attacker in attackers.items():
            rows.append({"attack": name, **score(attacker, update, model, truth)})
            simulated = next(score_drawn(attacker, drawn, expects[name]))
            rows.append({**simulated, "attack": name})
        for row in rows:
            cell = {"half": half, "composition": "unbalanced"}
            yield {**NO_ENDS, **cell, "loss": loss[half], **row}


USUAL = {"net": "lenet", "data": "MNIST, 5,000", "batch_size": 8, "iterations": 40}
LONGER = {"data": "CIFAR-10", "batch_size": [8, 32, 128, 512], "iterations": 300}
OF_HALVES = dict(
    trials=(1, 20),
    by=["half", "composition", "attack"],
    values=EXPECTED | dict(loss=NUMBER),
)
MEMBERS = Experiment(
    "members",
    of_halves,
    quick=grid(**USUAL),
    paper=grid(net="lenet", **LONGER),
    **OF_HALVES,
)
MEMBERS_RESNET = Experiment(
    "members_resnet",
    of_halves,
    quick=grid(steps=[50, 150], **USUAL),
    paper=grid(steps=[300, 600], net="resnet18", **LONGER),
    **OF_HALVES,
)
