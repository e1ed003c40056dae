"""LIA-SA: Table I and Figs. 3 and 4, rounds of fresh clients, as printed and with every plausible choice of the constants.

The choices are those of ``data/published/lia_sa/choices.toml``.
"""

import dataclasses

import numpy as np
from torch import nn

from fedleak import metrics
from fedleak.attacks.labels import lia_sa
from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.kinds import MEAN, NUMBER
from notebooks.lia_sa.clients import ACTIVE, BASELINES, CONSTANTS, LIA, MORE, PAIRS
from notebooks.lia_sa.clients import PASSIVE, QUICK, SMALL, SPACED, VGGS, batches
from notebooks.lia_sa.clients import foreseen, head_sum, honest_mean, images
from notebooks.lia_sa.clients import rule_with, score


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


OWN = "the rule's own"


def rounds(rules, pairs, clients=5, batch_size=1024, **more):
    """Rounds for every rule, on pairs of a network and a data set."""
    same = dict(rule=rules, clients=clients, batch_size=batch_size, **more)
    return [s for net, data in pairs for s in grid(net=net, data=data, **same)]


def one_round(ctx, seed, net, data, rule, clients, batch_size, constants=OWN):
    """LnAcc of a rule in a round of fresh clients, and what it worked with: its constants, where they are no setting."""
    if constants not in (OWN, None):
        rule = rule_with(constants)
    pool = images(ctx, data)
    nothing = {"target": np.nan, "b_err": np.nan, "log10": np.nan}
    facts = dict(images=len(pool), held=len(pool) // clients, side=pool.shape[-1])
    if rule in BASELINES:
        layer, mean, truth = honest_mean(ctx, net, data, clients, batch_size, seed)
        result = BASELINES[rule].recover(mean, layer)
        accuracy = metrics.label_number_accuracy(result, truth).item()
        floor = (truth == 0).double().mean().item()
        facts |= {"constants": None} if constants == OWN else {}
        yield {**nothing, **facts, "all": accuracy, "floor": floor}
        return
    recipe = rule.removeprefix("LIA-SA, ")
    server, client = foreseen(ctx, net, data, recipe, clients, seed)
    condition = min(lia_sa.conditioning_of(server.inputs).condition, 1e20)
    _, truth = batches(ctx, data, clients, batch_size, seed)
    result = score(server, head_sum(client, truth, batch_size), truth, batch_size)
    if constants == OWN:
        facts["constants"] = CONSTANTS.get(recipe, recipe)
    yield {**result, **facts, "log10": np.log10(condition)}


RULED = dict(
    values=dict(all=MEAN, target=MEAN, b_err=NUMBER, log10=NUMBER, floor=NUMBER),
    facts=("images", "held", "side", "constants"),
    fixed=dict(gradients="closed form"),
    rounding=("b_err", "log10"),
)


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


RESNETS = [f"resnet{d}" for d in (18, 34, 50, 101, 152)]
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
TABLE1_TRIALS = dataclasses.replace(  # the baselines of Table I on CIFAR-10
    TABLE1,
    name="table1_trials",
    quick=rounds(PASSIVE, [("vgg11_bn", "photos")], batch_size=64),
    paper=rounds(PASSIVE, SMALL[2:3]),
    trials=(1, 50),
    tables=("table1",),
)


# --- by constants ---
OTHERS = dict(constants=list(SPACED))
WIDER = [("fcn3-256", "mnist"), ("fcn3-1024", "mnist")]
BY_CONSTANTS = dataclasses.replace(
    TABLE1,
    name="constants",
    quick=rounds(LIA[:1], [("fcn3", "mnist5k")], batch_size=16, **OTHERS),
    paper=rounds(LIA[:1], PAIRS, batch_size=[16, 64, 256, 1024], **OTHERS)
    + rounds(LIA[:1], PAIRS, MORE, 64, **OTHERS, trials=10)
    + rounds(LIA[:1], SMALL[:2], **OTHERS)
    + rounds(LIA[:1], DEPTHS[1:4] + DEPTHS[5:], **OTHERS, trials=10)
    + rounds(LIA[:1], WIDER, **OTHERS)
    + rounds(LIA[:1], WIDER, constants="0.1 u")
    + rounds(PASSIVE, [("fcn3", "mnist"), *WIDER], constants=None, trials=80),
    trials=(1, 20),
    facts=RULED["facts"][:-1],  # its constants are a setting
    tables=("table1", "fig3", "fig4"),
)
