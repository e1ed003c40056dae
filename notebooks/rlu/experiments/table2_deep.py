"""RLU: Table 2 on deep networks: ten steps at every learning rate, one step, and ResNet-50 on few clients.

Ten steps of VGG-16 are declared for a GPU: two trials of ``reduced_rates_cifar10`` took 14 minutes each on a processor.
"""

import dataclasses

import torch
from torch import nn

from fedleak.attacks.labels import llg
from fedleak.federated import Scheme, Update, fedavg, fedsgd
from fedleak.models import batch_dependent, head, head_pass
from fedleak_book.experiments import Experiment, grid, spawned
from fedleak_book.experiments.kinds import rate
from fedleak_book.experiments.networks import split_classes, subset
from notebooks.rlu import clients as c
from notebooks.rlu.clients import AUX, CLIENTS, IACC, RULED
from notebooks.rlu.experiments.table2 import RATES, draw_batches, first_round
from notebooks.rlu.experiments.table2 import score_round, server_images

# --- ten steps of VGG-16 at every learning rate, and the effect of fewer images ---
VALUES = {n: IACC | dict(cacc=rate("clients", n)) for n in (10, 100, 200)}
PARTS = {10: ("cifar10", 7291, 100), 100: ("cifar100", 1117, 4)}
"""By the number of classes a data set that is incomplete here, its clients' images, and the server's per class."""


def padded(images):
    """Pad images with black to at least 32 x 32 pixels, which the networks need."""
    edge = max(0, 32 - images.shape[-1]) // 2
    return dataclasses.replace(images, x=nn.functional.pad(images.x, [edge] * 4))


def with_fewer_images(
    ctx, seed, net, data, activation, batch_size, alpha, steps, lr, classes
):
    """Score a round with all images, divided into `classes` classes, and with as few as CIFAR-10 or CIFAR-100 has here."""
    split = c.split_images(ctx, data)
    whole, test = (split_classes(padded(images), classes) for images in split)
    how, scheme = (net, activation, batch_size, alpha), Scheme("fedavg", lr, steps)
    for level, images, size in (("whole", None, AUX), PARTS[classes]):
        order = torch.Generator().manual_seed(spawned(seed, f"images of {level}"))
        pool = subset(whole, images, order)
        auxiliary = server_images(test, seed, size, level)
        of_round = pool, auxiliary, *how, scheme, CLIENTS, seed, level
        for row in score_round(ctx, *of_round):
            yield {"level": level, **{k: row[k] for k in ("rule", "cacc", "iacc")}}


QUICK = dict(
    net="lenet", data="photos", activation="elu", batch_size=8, alpha=0.5, lr=0.01
)


def at_every_rate(name, n_classes, data, **fixed):
    """Declare ten steps of VGG-16 at every learning rate; with `classes`, of few images and of as many as there are."""
    tens, whole = n_classes == 10, "classes" not in fixed
    sizes = dict(batch_size=64, alpha=0.5) if tens else dict(batch_size=256, alpha=0.1)
    sizes |= dict(activation=["relu", "elu" if tens else "selu"], lr=RATES)
    columns = dict(by="rule", facts=RULED["facts"], tables="table2")
    return Experiment(
        name,
        first_round if whole else with_fewer_images,
        quick=grid(**QUICK),
        paper=grid(data=data, **dict(net="vgg16") | sizes),
        trials=(1, 10 if whole else 6),
        values=VALUES[n_classes],
        fixed=dict(steps=10, stage=0, clients=CLIENTS) | fixed,
        **columns if whole else dict(by=("level", "rule")),
    )


# the share leaves the server 100 of every class
RATES_CIFAR10 = at_every_rate("rates_cifar10", 10, "cifar10", share=0.87)
RATES_CIFAR100 = at_every_rate("rates_cifar100", 100, "cifar100")
BOTH = ["mnist", "cifar10-jpeg"]
REDUCED_CIFAR10 = at_every_rate("reduced_rates_cifar10", 10, BOTH, classes=10)
REDUCED_CIFAR100 = at_every_rate("reduced_rates_cifar100", 100, BOTH, classes=100)


# --- one step on deep networks ---
def one_step(ctx, seed, net, data, activation, batch_size, alpha, share=None):
    """Score the rules on ten clients of an untrained network; LLG+ only without batch statistics.

    After one step the rules use only the head's gradients, and only the head and its inputs of the model
    (`eq-rlu-system`): each image needs one forward pass and no backward pass.
    """
    pool, test = c.split_images(ctx, data, share)
    auxiliary = server_images(test, seed)
    like = dict(seed=spawned(seed, "weights"), activation=activation)
    model = ctx.build(net, pool.shape, pool.n_classes, **like)
    probed, layer = not batch_dependent(model), head(model).layer
    inputs = head_pass(model, auxiliary.x, 256).inputs
    read = c.prepare_rules(layer, dataclasses.replace(auxiliary, x=inputs))
    parts, batches = draw_batches(pool, alpha, 1, batch_size, CLIENTS, seed)
    real = c.round_facts(pool, parts, auxiliary)
    for (index,) in batches:
        update = fedsgd(layer, head_pass(model, pool.x[index]).inputs, pool.y[index])
        truth = c.count_labels(pool.y[index], pool.n_classes)
        for rule, n in read(update).items():
            if probed or rule != "LLG+":
                yield {"rule": rule, "algorithm": None} | c.accuracies(n, truth) | real


RESNET = dict(
    net="resnet50-imagenet", data="tiny-imagenet", activation=["relu", "silu"]
)
STEP = dict(steps=1, lr=0.01, stage=0, clients=CLIENTS)
ONE_STEP = Experiment(
    "one_step",
    one_step,
    quick=grid(net="resnet20-1", data="photos", activation="relu"),
    paper=grid(net="vgg16", data="cifar100", activation=["relu", "selu"], trials=10)
    + grid(**RESNET, trials=6),
    fixed=dict(batch_size=256, alpha=0.1) | STEP,
    tables="table2",
    **RULED | dict(values=VALUES[100]),
)
VGG16_ELU = dataclasses.replace(  # the cells of Table 2 that ten trials left open
    ONE_STEP,
    name="one_step_elu",
    quick=grid(net="resnet20-1", data="photos", activation="elu", batch_size=64),
    paper=grid(net="vgg16", data="cifar10", activation="elu", batch_size=64),
    trials=(1, 40),
    fixed=dict(batch_size=256, alpha=0.5) | STEP | dict(share=0.87),
    values=RULED["values"],
)


# --- ResNet-50 on Tiny-ImageNet, on few clients of few networks ---
def head_alone(update, model):
    """Return the part of an update that is of the head, as an update of its layer."""
    last = head(model)
    names = {"weight": last.weight, "bias": last.bias}
    parts = {name: update.tensors[whole] for name, whole in names.items()}
    return Update(parts, update.kind, update.samples, update.steps, update.lr)


def probed_network(ctx, net, data, activation, per_class, seed):
    """Return an untrained network, the server's images, and LLG+ on the head's inputs of them; once for all trials.

    Batch norm takes the statistics of all the server's images here: one forward pass of them serves all probes, which
    are batches of one label each in LLG+ itself.
    """

    def make():
        pool, test = c.split_images(ctx, data)
        auxiliary = server_images(test, seed, per_class)
        like = dict(seed=spawned(seed, "weights"), activation=activation)
        model = ctx.build(net, pool.shape, pool.n_classes, **like)
        inputs = head_pass(model, auxiliary.x).inputs
        probes = dataclasses.replace(auxiliary, x=inputs)
        return model, auxiliary, llg.prepare(head(model).layer, probes)

    return ctx.once(("probed", net, data, activation, per_class, seed), make)


def few_clients(
    ctx, seed, net, data, activation, batch_size, alpha, steps, clients, per_class, lr
):
    """Score LLG+ on some clients' one step, which needs a forward pass alone, or every rule on several steps."""
    of_network = net, data, activation, per_class, seed
    model, auxiliary, by_size = probed_network(ctx, *of_network)
    pool, layer = c.split_images(ctx, data)[0], head(model).layer
    parts, batches = draw_batches(pool, alpha, steps, batch_size, clients, seed)
    read = c.prepare_rules(model, auxiliary, "search") if steps > 1 else None
    real = c.round_facts(pool, parts, auxiliary)
    for index in batches:
        x, y = pool.x[index], pool.y[index]
        if steps == 1:
            gradient, answers = fedsgd(layer, head_pass(model, x[0]).inputs, y[0]), {}
        else:
            update = fedavg(model, x, y, lr, share="delta")
            gradient = head_alone(c.one_step(update), model)
            answers = read(update)
        answers |= {"LLG+": by_size.recover(gradient).counts}
        for rule, counts in answers.items():
            algorithm = 2 if rule == "RLU" else None
            scored = c.accuracies(counts, c.count_labels(y, pool.n_classes))
            yield {"rule": rule, "algorithm": algorithm} | scored | real


FEW = dict(alpha=0.1, lr=0.01, stage=0, per_class=5)
TABLE2_RESNET50 = Experiment(
    "table2_resnet50",
    few_clients,
    quick=grid(net="resnet20-1", data="photos", activation="relu", batch_size=8),
    paper=grid(**RESNET, batch_size=32),
    trials=(1, 3),
    fixed=FEW | dict(steps=10, clients=1),
    tables="table2",
    **RULED | dict(values=VALUES[200]),
)
ONE_STEP_RESNET50 = dataclasses.replace(
    TABLE2_RESNET50,
    name="one_step_resnet50",
    paper=grid(**RESNET, batch_size=256),
    fixed=FEW | dict(steps=1, clients=2),
)
