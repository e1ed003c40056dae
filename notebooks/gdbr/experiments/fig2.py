"""GDBR: Fig. 2, what the attack assumes of the features."""

import numpy as np
import torch
from scipy import stats

from fedleak.models import head_pass
from fedleak_book.experiments import Experiment, OneSeed, SeedByRole, grid
from notebooks.gdbr.clients import INITS, Batch, Clients
from notebooks.gdbr.experiments import FACTS, OF_BATCH, kinds


def scatter(mine, other):
    """Skewness of features and probabilities, how they scatter, and how well the means over other images predict them."""
    x, others = mine.inputs.double(), other.inputs.double().mean(0)
    p = mine.probabilities.double()
    alive, mean = x.std(0) > 0, x.mean(0)
    floor = mean.clamp(min=1e-12)
    off, spread = ((mean - others).abs() / floor)[alive], (x.std(0) / floor)[alive]
    skew, skew_p = (
        stats.skew(v.cpu().numpy()) for v in (x[:, alive], p[:, p.std(0) > 0])
    )
    return {
        "skew": float(np.median(np.abs(skew))),
        "off": float(off.median()),
        "spread": float(spread.median()),
        "top": float(p.mean(0).max()),
        "skew_p": float(np.median(np.abs(skew_p))),
        "dead": 1 - float(alive.double().mean()),
    }


def assumptions(
    ctx, seed, net, data, batch_size, init=None, scale=None, draws=SeedByRole
):
    """Skewness of the features, and how well other images predict their means.

    At every choice, means are predicted from images that no batch norm was frozen at.
    """
    clients = Clients(ctx, net, data, draws(seed))
    generator = clients.seeds.generator("batch")
    order = torch.randperm(len(clients.victims), generator=generator)[:batch_size]
    x = clients.victims.x[order]
    batch = Batch(x, None, None, {"held": len(x)})
    others = slice(None) if scale else slice(250, 500)
    for weights in [init] if init else INITS:
        views = clients.views([batch], weights, scale)
        for row, bridge, aux_inputs, (chain_batch,) in views:
            inputs = chain_batch.x, aux_inputs[others]
            mine, other = (head_pass(bridge.model, x) for x in inputs)
            yield {**row, "init": weights, **batch.about, **scatter(mine, other)}


RESNET = dict(net="resnet18-conv", init=INITS)
FIG2 = Experiment(
    "fig2",
    assumptions,
    quick=grid(**RESNET, data="synthetic", batch_size=256),
    paper=grid(**RESNET, data="cifar100", batch_size=512),
    trials=(2, 10),
    values=kinds("skew", "off", "spread", "top", "skew_p", "dead"),
    facts=FACTS,
    fixed=dict(rounds=0, scale="raw", redrawn="network"),
    arguments=dict(draws=OneSeed),
)
FIG2_CHOICES = Experiment(
    "fig2_choices",
    assumptions,
    quick=grid(net="resnet18-conv", data="synthetic", batch_size=64),
    paper=grid(net="resnet18-conv", data="cifar100", batch_size=512),
    trials=(1, 5),
    by=("scale", "widths", "init"),
    values=FIG2.values,
    facts=OF_BATCH,
    fixed=dict(rounds=0, redrawn="network"),
    tables="fig2",
)
