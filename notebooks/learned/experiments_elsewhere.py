"""The learned attacker away from trained LeNets after one step: new and deep networks, local steps, members."""

import copy
from itertools import product

import torch
from torch import nn

from fedleak import metrics
from fedleak.attacks.labels import learned, whole_head
from fedleak.attacks.labels.simulated import LocalSteps
from fedleak_book.experiments import Experiment, grid
from fedleak.data import compose, draw
from fedleak.federated import Scheme, Server, Update
from fedleak_book.experiments.kinds import NUMBER
from fedleak.models import head, head_pass
from notebooks.learned.experiments_networks import (
    EXPECTED,
    HALF,
    HALVES,
    NOTHING,
    SCORES,
    TRAINED,
    UNTRAINED,
    WHOLE,
    as_simulated,
    client,
    contested,
    even_guess,
    expectation,
    from_features,
    images,
    network,
    read,
    rivals,
    scored,
)


def fresh(ctx, seed, net, data, batch_size, iterations, updates):
    """One untrained network: an attacker trained for it, and every attack on the same updates."""
    model, aux = network(ctx, net, data, UNTRAINED, seed), images(ctx, data, "aux")
    attacker = learned.train(model, aux, batch_size, iterations=iterations, seed=seed)
    generator = torch.Generator().manual_seed(seed ^ 0xF0)
    yield from contested(ctx, model, data, attacker, batch_size, updates, generator)


FRESH = Experiment(
    "fresh",
    fresh,
    quick=grid(net="resnet20-1", data="photographs", batch_size=[8, 64], iterations=40),
    paper=grid(net="lenet", data="MNIST", batch_size=[8, 32, 128], iterations=300)
    + grid(net="vgg11_bn", data="CIFAR-10", batch_size=[8, 32, 128], iterations=300),
    trials=(1, 3),
    by=["composition", "attack"],
    values=SCORES,
    fixed={"updates": 5},
)


def deep(ctx, seed, net, data, batch_size, iterations, updates):
    """A trained deep network: what is found of the head's gradients of all compositions, and how sure it is."""
    model, aux = network(ctx, net, data, TRAINED), images(ctx, data, "aux")
    attacker = learned.train(model, aux, batch_size, iterations=iterations, seed=seed)
    generator = torch.Generator().manual_seed(seed ^ 0xDE)
    how = batch_size, updates, generator, from_features(model), even_guess
    yield from contested(ctx, model, data, attacker, *how)
    expects = expectation(attacker, model, aux, seed, batch_size, generator)
    pool = attacker.reader.make_pool(model, images(ctx, data))
    yield from as_simulated(attacker, pool.draw(1000, batch_size, generator), expects)


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
    """A server after one round of three clients, and an attacker trained for the next round."""
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
    """One client's second round: what every attack finds in its update."""
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
    yield {"attack": "learned", **read(attacker, plain, model, truth)}
    for row in rivals(update, model, aux, truth, 0, plain, **knowledge):
        yield {**NOTHING, **row}


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


KNOWS = "learned, knows the training loss"


def informed(ctx, net, data, batch_size, iterations, steps):
    """Two attackers of a network trained on half, one told its training loss, and what they expect to find; both halves
    as simulated; losses; the whole head; what sends updates.
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
        name: expectation(attacker, model, aux, 0, batch_size, generator)
        for name, attacker in attackers.items()
    }
    reader = attackers["learned"].reader
    pools = {h: reader.make_pool(model, images(ctx, data, h)) for h in HALVES}
    whole = whole_head.prepare(model, aux)
    return attackers, expects, pools, loss, whole, from_features(model)


def of_halves(ctx, seed, net, data, batch_size, iterations, steps=None):
    """One update of each half of the clients' images: those that the network was trained on, and the others."""
    what = net, data, batch_size, iterations, steps
    shared = ctx.once(("informed", *what), lambda: informed(ctx, *what), most=1)
    attackers, expects, pools, loss, whole, send = shared
    model, aux = network(ctx, net, data, HALF, steps=steps), images(ctx, data, "aux")
    generator = torch.Generator().manual_seed(seed)
    for half in HALVES:
        shape = ("unbalanced", batch_size, generator, send, half)
        update, truth = client(ctx, model, data, *shape)
        counts = whole.recover(update).counts
        rows = [scored(WHOLE, counts, truth), *even_guess(update, model, aux, truth)]
        drawn = pools[half].draw(250, batch_size, generator)
        for name, attacker in attackers.items():
            rows.append({"attack": name, **read(attacker, update, model, truth)})
            simulated = next(as_simulated(attacker, drawn, expects[name]))
            rows.append({**simulated, "attack": name})
        for row in rows:
            cell = {"half": half, "composition": "unbalanced"}
            yield {**NOTHING, **cell, "loss": loss[half], **row}


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
