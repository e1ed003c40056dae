"""LIA-SA: the experiments. A trial is a function of its context, its seed and its setting.

What trials share stands in ``clients.py``, what clients do and see in ``experiments_clients.py``. The evidence
page has all rows.
"""

import numpy as np
from fedleak.attacks.labels import lia_sa
from fedleak_book.experiments import Experiment
from notebooks.lia_sa.clients import ACTIVE, LIA, MORE, PAIRS, PASSIVE, QUICK, RULED
from notebooks.lia_sa.clients import SMALL, VGGS, images, one_round, rounds
from torch import nn


def curves(ctx):
    """Embeddings by the constant C, network and mode: levels of C, embeddings e(C) [levels, m], and e(1)."""
    levels, curves_by_net = [10**power for power in np.linspace(-5, 1, 13)], {}
    for net, data, mode in (
        ("vgg11_bn", "photos", "train"),
        ("vgg11_bn", "photos", "eval"),
        ("resnet18", "synthetic-100", "train"),
        ("fcn3", "mnist5k", "train"),
    ):
        pool = images(ctx, data)
        model = ctx.build(net, pool.shape, pool.n_classes, seed=0).train(
            mode == "train"
        )
        models = [
            lia_sa.fishing_model(model, "literal", 0, 1, 0) for _ in (*levels, 1.0)
        ]
        for fished, level in zip(models, (*levels, 1.0)):
            layer = fished.get_submodule(lia_sa.fishing_layer(fished))
            nn.init.constant_(layer.bias, level)
        e = lia_sa.preset(models, pool.shape).inputs.cpu()
        curves_by_net[net, mode] = levels, e[:-1], e[-1]
    return curves_by_net


RESNETS = [f"resnet{d}" for d in (18, 34, 50, 101, 152)]


FIG3 = Experiment(
    "fig3",
    one_round,
    quick=rounds(ACTIVE, QUICK, batch_size=[16, 64, 1024])
    + rounds(PASSIVE, QUICK, batch_size=16)
    + rounds(ACTIVE + PASSIVE, QUICK[:1], [2, 10], 64),
    paper=rounds(LIA, PAIRS, batch_size=[16, 64, 256])
    + rounds(PASSIVE, PAIRS, batch_size=[16, 64, 256, 1024], trials=10)
    + rounds(LIA[1:], PAIRS)
    + rounds(LIA[:1], PAIRS, trials=200)
    + rounds(ACTIVE + PASSIVE, PAIRS, MORE, 64, trials=10)
    + rounds([LIA[1]], PAIRS, MORE, 64, trials=3),
    trials=(1, 20),
    **RULED,
)


PATTERNS = [("fcn3", "mnist5k"), ("resnet18", "synthetic-2"), *QUICK]
PATTERNS += [("resnet18", "synthetic-1000")]
DEEP = [("resnet50", "imagenet")]
TABLE1 = Experiment(
    "table1",
    one_round,
    quick=rounds(ACTIVE, PATTERNS) + rounds(PASSIVE, PATTERNS, batch_size=64),
    paper=rounds(LIA[1:], SMALL)
    + rounds(LIA[:1], SMALL[:2])
    + rounds(LIA[:1], PAIRS, trials=200)
    + rounds(PASSIVE, SMALL[:1], trials=10)
    + rounds(PASSIVE, SMALL[1:2], trials=75)
    + rounds(PASSIVE, SMALL[2:3], trials=20)
    + rounds(PASSIVE, SMALL[3:], trials=34)
    + rounds(ACTIVE, DEEP, trials=10)
    + rounds(PASSIVE, DEEP, trials=3),
    trials=(1, 20),
    **RULED,
)


DEPTHS = [(net, "cifar10") for net in VGGS] + [(net, "cifar100") for net in RESNETS]
FOUR = [("vgg11_bn", "photos"), ("vgg16_bn", "photos")]
FOUR += [(net, "synthetic-100") for net in RESNETS[:2]]
FIG4 = Experiment(
    "fig4",
    one_round,
    quick=rounds(ACTIVE, FOUR) + rounds(PASSIVE, FOUR, batch_size=64),
    paper=rounds(ACTIVE + PASSIVE, DEPTHS[:4], trials=10)
    + rounds(ACTIVE, DEPTHS[4:], trials=10)
    + rounds(PASSIVE, DEPTHS[4:], trials=3),
    **RULED,
)
