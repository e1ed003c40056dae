"""RLU: one step of ten clients on deep networks, and the effect of fewer images.

After one step the four rules use only the head's gradients of the update, and only the head and its inputs of the model
(`eq-rlu-system`): each image needs one forward pass and no backward pass.
"""

import dataclasses

import torch
from torch import nn

from fedleak.data.partitions import dirichlet, local_batches
from fedleak_book.experiments.networks import split_classes, subset
from fedleak_book.experiments import Experiment, grid, spawned
from fedleak.federated import fedsgd
from fedleak_book.experiments.kinds import rate
from fedleak.models import batch_dependent, head, head_pass
from notebooks.rlu.experiments_choices import CHOICES
from notebooks.rlu.clients import (
    AUX,
    CLIENTS,
    IACC,
    RULED,
    count_labels,
    round_facts,
    prepare_rules,
    accuracies,
    sample_server,
    split_images,
)

NETS = {
    "vgg16": dict(data="cifar100", activation=["relu", "selu"], trials=10),
    "resnet50-imagenet": dict(
        data="tiny-imagenet", activation=["relu", "silu"], trials=6
    ),
}
SETTINGS = dict(batch_size=256, alpha=0.1, steps=1, lr=0.01, stage=0, clients=CLIENTS)


def one_step(ctx, pool, auxiliary, net, activation, batch_size, alpha, seed, of=""):
    """Score every rule on the clients of an untrained network; LLG+ only without batch statistics."""
    generator = torch.Generator().manual_seed(spawned(seed, f"batches{of}"))
    like = dict(seed=spawned(seed, "weights"), activation=activation)
    model = ctx.build(net, pool.shape, pool.n_classes, **like)
    probed, layer = not batch_dependent(model), head(model).layer
    head_inputs = dataclasses.replace(
        auxiliary, x=head_pass(model, auxiliary.x, 256).inputs
    )
    read = prepare_rules(layer, head_inputs)
    parts = dirichlet(pool.y, CLIENTS, alpha, spawned(seed, f"partition{of}") % 2**31)
    real = round_facts(pool, parts, auxiliary)
    for part in parts:
        index = local_batches(part, 1, batch_size, generator)[0]
        update = fedsgd(layer, head_pass(model, pool.x[index]).inputs, pool.y[index])
        truth = count_labels(pool.y[index], pool.n_classes)
        for rule, n in read(update).items():
            if probed or rule != "LLG+":
                yield {"rule": rule, "algorithm": None} | accuracies(n, truth) | real


def tens(ctx, seed, net, data, activation, batch_size, alpha, share=None):
    """Score the rules on ten clients with all available images, or with a share of them, the server with the rest."""
    pool, test = split_images(ctx, data, share)
    auxiliary = sample_server(test, AUX, spawned(seed, "auxiliary") % 2**31)
    yield from one_step(ctx, pool, auxiliary, net, activation, batch_size, alpha, seed)


SCORES = IACC | dict(cacc=rate("clients", 100))
ONE_STEP = Experiment(
    "one_step",
    tens,
    quick=grid(net="resnet20-1", data="photos", activation="relu"),
    paper=[s for net, options in NETS.items() for s in grid(net=net, **options)],
    fixed=SETTINGS,
    tables="table2",
    **RULED | dict(values=SCORES),
)


def padded(images):
    """Pad images with black to at least 32 x 32 pixels, which the networks need."""
    edge = max(0, 32 - images.shape[-1]) // 2
    return dataclasses.replace(images, x=nn.functional.pad(images.x, [edge] * 4))


def at_levels(ctx, seed, data, classes, part, score):
    """Score the rules with all images, and with a part of them: its name, the clients' images, the server's per class.

    `score` takes the clients' and the server's images and the level, and returns the rows of one round.
    """
    whole, test = (
        split_classes(padded(images), classes) for images in split_images(ctx, data)
    )
    for level, images, size in (("whole", None, AUX), part):
        order = torch.Generator().manual_seed(spawned(seed, f"images of {level}"))
        pool = subset(whole, images, order)
        auxiliary = sample_server(test, size, spawned(seed, level) % 2**31)
        for row in score(pool, auxiliary, level):
            yield {"level": level, **{k: row[k] for k in ("rule", "cacc", "iacc")}}


# The cells of Table 2 that ten trials left open.
VGG16_ELU = Experiment(
    "one_step_elu",
    tens,
    quick=grid(net="resnet20-1", data="photos", activation="elu", batch_size=64),
    paper=grid(net="vgg16", data="cifar10", activation="elu", batch_size=64),
    trials=(1, 40),
    fixed=SETTINGS | dict(alpha=0.5, share=0.87),
    tables="table2",
    **RULED,
)
ONE_STEP_LENET = dataclasses.replace(
    CHOICES,
    name="one_step_lenet",
    quick=grid(data="mnist5k", activation="relu", steps=1, lr=0.01),
    paper=grid(data="svhn", activation=["relu", "tanh"], steps=1, lr=0.01),
    trials=(1, 40),
)
