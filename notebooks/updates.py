"""What the arena and chapter 7 share: data sets, networks and their training, and clients' updates of one step."""

import copy
from typing import NamedTuple

from torch import nn

from fedleak import metrics
from fedleak.data import compose, draw
from fedleak.federated.client import HARD, fedsgd
from fedleak_book import paths
from fedleak.models import head
from fedleak_book.experiments import networks, spawned, trained_once
from fedleak_book.experiments.training import set_norms

STATES = ["untrained", "trained"]
UNTRAINED, TRAINED = STATES


class DataSet(NamedTuple):
    """A data set: clients have one split; the attacker, and whoever tests a network, have images of the other one."""

    name: str
    aux: int | None
    """Images of the attacker in the arena, evenly spread over the classes; None: all."""
    steps: int
    """Steps of 64 samples in a training."""
    copies: int
    """Trained networks in the arena."""
    tested: int | None = None
    """Images that a network is tested on; None: all."""
    iterations: int = 300
    """Iterations in which the learned attacker is trained in the arena."""
    shared_passes: bool = False
    """Whether images pass a trained network once for all attacks, because a pass takes long."""
    seed_by_role: bool = False
    """Whether weights and training have seeds of their own."""


SETS = {
    "MNIST": DataSet("mnist", 500, 600, 3, tested=5000),
    "CIFAR-10": DataSet("cifar10", 1000, 600, 3, tested=1000, shared_passes=True),
    "MNIST, 5,000": DataSet("mnist5k", 200, 150, 2, iterations=30),
    "photographs": DataSet("photos", 70, 150, 1, iterations=30, shared_passes=True),
    # no images
    "CLDR names": DataSet("cldr", 500, 600, 5, seed_by_role=True),
    "wine": DataSet("wine", None, 50, 5, seed_by_role=True),
    "breast cancer": DataSet("breast-cancer", None, 50, 5, seed_by_role=True),
}


def load_clients_images(ctx, data):
    """Return the images of the clients."""
    return ctx.images(SETS[data].name)


def load_other_images(ctx, data, limit=None):
    """Return images of the split that the clients do not have."""
    return ctx.images(SETS[data].name, "test", limit=limit)


# --- networks ---
def train(ctx, model, data, steps, generator_seed):
    """Train a network in place on the clients' images; a change of `networks.train` needs a version of `trained_once`."""
    networks.train(model, load_clients_images(ctx, data), steps, generator_seed)


def add_layers(model, kind):
    """Add batch norm after a LeNet's convolutions, or dropout of a half before its last layer."""
    layers = []
    for layer in model:
        if kind == "dropout" and layer is model[-1]:
            layers.append(nn.Dropout(0.5))
        layers.append(layer)
        if kind == "batch norm" and isinstance(layer, nn.Conv2d):
            device = layer.weight.device
            layers.append(nn.BatchNorm2d(layer.out_channels, device=device))
    changed = nn.Sequential(*layers)
    changed.input_shape = model.input_shape
    return changed


def make_network(ctx, net, data, state, seed, bias=True, steps=None):
    """Make a network in evaluation mode, trained or not; by default for the data set's number of steps."""
    pool, dataset = load_clients_images(ctx, data), SETS[data]
    net, _, kind = net.partition(" with ")
    seeds = [seed, seed]
    if dataset.seed_by_role:
        seeds = [spawned(seed, role) for role in ("weights", "training")]
    model = ctx.build(net, pool.shape, pool.n_classes, seed=seeds[0])
    model = add_layers(model, kind) if kind else model
    if not bias:
        head(model).layer.bias = None
    if state == TRAINED and kind:  # dropout draws without a seed of its own
        networks.train(model, pool, dataset.steps, seeds[1])
    elif state == TRAINED:
        how = {
            "data": data,
            "steps": steps or dataset.steps,
            "generator_seed": seeds[1],
        }
        trained_once(ctx, train, model, paths.units() / "weights", **how)
    return set_norms(model, pool.x[:200])


def get_network(ctx, net, data, state, seed, bias=True):
    """Return a network in evaluation mode: a fresh one for every trial, or one of a few trained ones."""
    if state == UNTRAINED:
        return make_network(ctx, net, data, state, seed, bias)
    what = net, data, state, seed % SETS[data].copies, bias
    model = ctx.once(("network", *what), lambda: make_network(ctx, *what))
    return model if SETS[data].shared_passes else copy.deepcopy(model)


# --- updates ---
def draw_update(model, pool, composition, batch_size, generator, softening=HARD):
    """Draw a batch of the clients' images; return the update of one step on it, and its label counts."""
    labels = compose(composition, batch_size, pool.n_classes, 1, generator)
    index = draw(pool, labels, generator)[0]
    update = fedsgd(model, pool.x[index], pool.y[index], softening)
    return update, metrics.counts(labels[0], pool.n_classes)
