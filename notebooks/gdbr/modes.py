"""GDBR: batch norm's mode and dropout in the client's step, which the paper does not mention."""

import copy

import torch
from torch import nn

from notebooks.gdbr.clients import body, share

NONE, STORED, OWN = "none", "stored statistics", "batch statistics"
OFF, ONE_HALF = "off", "0.5"


def normed_body(ctx, net, data, batch_norm, seed):
    """A network for what is below the chain, with batch norm of this mode; VGG-11 has none with `NONE`."""
    with_norms = "vgg11_bn" if net == "vgg11" and batch_norm != NONE else net
    model = body(ctx, with_norms, data, seed)
    return copy.deepcopy(model).train() if batch_norm == OWN else model


def chunk_of(batch_norm):
    """Images per pass: a batch norm in training mode takes the statistics of as many as a client's batch has."""
    return 64 if batch_norm == OWN else 250


def with_dropout(tail):
    """The same layers with torchvision's dropout after every ReLU between fully connected layers."""
    layers = []
    for layer in tail:
        dropped = isinstance(layer, nn.ReLU)
        layers += [layer, nn.Dropout(0.5)] if dropped else [layer]
    return nn.Sequential(*layers).train()


def updates(tail, name, x, labels, dropouts, seed):
    """By dropout, what a client shares of one layer."""
    for dropout in dropouts:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            forward = tail if dropout == OFF else with_dropout(tail)
            update = share(tail, x, labels, [name], forward)
        yield dropout, update
