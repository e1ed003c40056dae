"""GDBR: Fig. 2, what the attack assumes of the features, and their histograms."""

import torch

from fedleak_book.experiments import Experiment, grid
from fedleak.models import head_pass
from notebooks.gdbr.clients import (
    FACTS,
    chain_of,
    facts,
    kinds,
    known_inputs,
    scatter,
    sets,
    victims_inputs,
)


def features_of(ctx, seed, net, data, init, batch_size):
    """Features and probabilities of random victims' images, and of the auxiliary ones: (head passes, index)."""
    generator = torch.Generator().manual_seed(seed)
    tail = chain_of(ctx, net, data, init, seed)
    index = torch.randperm(len(sets(ctx, data)[0]), generator=generator)[:batch_size]
    mine = head_pass(tail, victims_inputs(ctx, net, data, seed, index))
    return (
        mine,
        head_pass(tail, known_inputs(ctx, net, data, seed, "aux")),
        index,
        generator,
    )


RESNET = dict(net="resnet18-conv", init=["positive", "default"])


def assumptions(ctx, seed, net, data, init, batch_size):
    """Skewness of the features, and how well other images predict their means."""
    mine, other, index, _ = features_of(ctx, seed, net, data, init, batch_size)
    yield {**scatter(mine, other), **facts(ctx, data, index)}


FIG2 = Experiment(
    "fig2",
    assumptions,
    quick=grid(**RESNET, data="synthetic", batch_size=256),
    paper=grid(**RESNET, data="cifar100", batch_size=512),
    trials=(2, 10),
    values=kinds("skew", "off", "spread", "top", "skew_p", "dead"),
    facts=FACTS,
    fixed=dict(rounds=0, scale="raw", redrawn="network"),
)
