"""GDBR: the attack along a training, and its speed."""

import copy
import time

import torch
from torch import nn

from fedleak.attacks.labels import gdbr
from fedleak_book.experiments import Experiment, grid, networks
from fedleak.federated import fedsgd
from fedleak.federated.restricted import last_layers
from fedleak_book.experiments.training import accuracy
from fedleak.models import positive_, without_biases
from notebooks.gdbr.clients import FORMS, batch, kinds, scores, sets, share

ROUNDS = (0, 20, 100, 300, 1000)


def with_head_of(model, other):
    """The model with the other's last layer: what the server has under FedVF."""
    mixed, last = copy.deepcopy(model), last_layers(model)
    head_weights = {k: v for k, v in other.state_dict().items() if k in last}
    mixed.load_state_dict(head_weights, strict=False)
    return mixed


def attacked(ctx, model, start, data, generator):
    """All forms on four random and four imbalanced batches, and the whitened one with the initial last layer."""
    victims, aux = sets(ctx, data)
    bridges = {form: gdbr.Bridge(model) for form in FORMS}
    bridges["whitened, stale head"] = gdbr.Bridge(with_head_of(model, start))
    features = {form: bridge.observe(aux) for form, bridge in bridges.items()}
    for scheme in ("random", "imbalanced") * 4:
        index, labels, truth = batch(ctx, data, scheme, 64, generator)
        update = fedsgd(model, victims.x[index], labels).without(*last_layers(model))
        for form, bridge in bridges.items():
            counts_found = bridge.recover(
                update, features[form], form.split(",")[0]
            ).counts
            yield {"scheme": scheme, "form": form, **scores(counts_found, truth)}


def while_training(ctx, seed, net, data, most):
    """All forms on a model that FedSGD trains, after each number of rounds up to `most`."""
    victims, aux = sets(ctx, data)
    shape, n = victims.shape, victims.n_classes
    model = without_biases(ctx.build(net, shape, n, seed=seed))
    generator = torch.Generator().manual_seed(seed)
    start = copy.deepcopy(model)
    for done in range(most + 1):
        if done in ROUNDS:
            reached = accuracy(model, aux)
            for row in attacked(ctx, model, start, data, generator):
                yield {"rounds": done, "accuracy": reached, **row}
        networks.train(model, victims, 1, generator, lr=0.05, momentum=0)


TRAINED = Experiment(
    "trained",
    while_training,
    quick=grid(net="lenet", data="mnist5k", most=100),
    paper=grid(net="lenet", data=["mnist", "cifar10"], most=1000),
    trials=(2, 5),
    by=("scheme", "rounds", "form"),
    values=kinds("insacc", "clsacc", "accuracy"),
    fixed=dict(init="default", lr=0.05, batch_size=64, layer=1),
)


HEADS = [
    dict(n_classes=classes, width=width)
    for classes, width in [(10, 84), (10, 4096), (100, 512), (1000, 2048)]
]
TIMES = ("first", "further")


def speed(ctx, seed, n_classes, width):
    """Processor seconds of one recovery, the bridge new or already factorised; the auxiliary pass aside."""
    generator = torch.Generator().manual_seed(seed)
    layers = nn.Linear(width, width), nn.ReLU(), nn.Linear(width, n_classes)
    tail = positive_(nn.Sequential(*layers), generator)
    x = torch.rand(64, width, generator=generator)
    y = torch.randint(n_classes, (64,), generator=generator)
    features, update = gdbr.Bridge(tail).observe(x), share(tail, x, y, ["0"])
    began = time.process_time()
    bridge = gdbr.Bridge(tail)
    bridge.recover(update, features)
    first = time.process_time() - began
    bridge.recover(update, features)
    yield {"first": first, "further": time.process_time() - began - first}


SPEED = Experiment(
    "speed",
    speed,
    quick=HEADS[::3],
    paper=HEADS,
    trials=5,
    values=kinds(*TIMES),
    times=TIMES,
)
