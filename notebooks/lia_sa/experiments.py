"""LIA-SA: the experiments. A trial is a function of its context, its seed and its setting.

What trials share stands in ``clients.py``, what clients do and see in ``experiments_clients.py``. The evidence
page has all rows.
"""

import numpy as np
import torch
from fedleak import metrics
from fedleak.attacks.labels import lia_sa, llg
from fedleak_book.experiments import Experiment, grid
from fedleak.federated import Update
from fedleak.federated.aggregation import FixedPoint, secure_sum
from fedleak_book.experiments.kinds import MEAN, NUMBER
from fedleak.models import HeadPass
from notebooks.lia_sa.experiments_choices import (  # noqa: F401  declared here too
    CONSTANTS,
    FIG6_CONSTANTS,
    FIG6_TRIALS,
    REDUCED,
    TABLE1_TRIALS,
    TABLE2_CONSTANTS,
)
from notebooks.lia_sa.experiments_clients import (  # noqa: F401  declared here too
    FIG5,
    FIG6,
    FOOTPRINT,
    NOTICE,
    TABLE2,
)
from notebooks.lia_sa.clients import (
    ACTIVE,
    LIA,
    MORE,
    PAIRS,
    PASSIVE,
    QUICK,
    RECIPES,
    RULED,
    SMALL,
    VGGS,
    batches,
    enough,
    fishing,
    foreseen,
    head_gradients,
    head_sum,
    honest_head,
    honest_mean,
    images,
    on,
    one_round,
    rounds,
    score,
)
from torch import nn

FAR = dict(recipe="literal", clients=5, batch_size=1024)
NEAR = dict(recipe="vector", clients=3, batch_size=16)
MNIST = [("fcn3", "mnist")]


def honest_sum(ctx, seed, net, data, recipe, clients, batch_size):
    """The attack on honest clients' backward passes, and on the closed form."""
    pool, (index, truth) = (
        images(ctx, data),
        batches(ctx, data, clients, batch_size, seed),
    )
    server, client = foreseen(ctx, net, data, recipe, clients, seed)
    model = ctx.build(net, pool.shape, pool.n_classes, seed=seed)
    honest = honest_head(fishing(model, recipe, clients, seed), pool, index)
    closed = head_sum(client, truth, batch_size)
    off = [(t - closed[k]).abs().max() / t.abs().max() for k, t in honest.items()]
    scored = score(server, honest, truth, batch_size)
    exact = score(server, closed, truth, batch_size)["b_err"]
    yield {**scored, "off": max(off).item(), "closed": exact}


HONEST = Experiment(
    "honest",
    honest_sum,
    quick=on([("fcn3", "mnist5k"), *QUICK], **NEAR),
    paper=on(MNIST + PAIRS, **NEAR)
    + on(MNIST + PAIRS[:1], **FAR, trials=10)
    + on(PAIRS[1:], **FAR),
    trials=(1, 3),
    values=dict(
        target=MEAN, all=MEAN, floor=NUMBER, off=NUMBER, b_err=NUMBER, closed=NUMBER
    ),
    rounding=("off", "b_err", "closed"),
)


FEW, MANY = [2, 5, 10, 20], [2, 5, 10, 20, 50, 100]


def systems(few, many, mnist, cifar10, cifar100, **more):
    """Networks and modes, with the numbers of clients, and more of a setting by network."""
    return [
        setting
        for net, data, mode, clients in (
            ("fcn3", mnist, "train", many),
            ("vgg11_bn", cifar10, "train", many),
            ("vgg11_bn", cifar10, "eval", few),
            ("resnet18", cifar100, "train", many),
            ("resnet18", cifar100, "eval", few),
            ("resnet18-imagenet", cifar100, "train", few),
        )
        for setting in grid(
            net=net,
            data=data,
            mode=mode,
            recipe=RECIPES,
            clients=clients,
            **more.get(net, {}),
        )
    ]


def embeddings(ctx, net, data, mode, recipe, clients, s):
    """What the heads of the fishing models see, [U, m]."""

    def make():
        pool = images(ctx, data)
        model = ctx.build(net, pool.shape, pool.n_classes, seed=s)
        models = fishing(model.train(mode == "train"), recipe, clients, s)
        return lia_sa.preset(models, pool.shape).inputs

    return ctx.once(("embeddings", net, data, mode, recipe, clients, s), make)


def conditions(ctx, seed, net, data, mode, recipe, clients):
    """Rank and condition number of the system."""
    features = embeddings(ctx, net, data, mode, recipe, enough(recipe, clients), seed)
    conditioning = lia_sa.conditioning_of(features[:clients])
    yield {
        "log10": np.log10(min(conditioning.condition, 1e20)),
        "rank": conditioning.rank,
    }


CONDITIONING = Experiment(
    "conditioning",
    conditions,
    quick=systems([2, 5], [2, 5, 10], "mnist5k", "photos", "synthetic-100"),
    paper=systems(FEW, MANY, "mnist", "cifar10", "cifar100", fcn3={"trials": 20}),
    trials=(1, 5),
    values=dict(log10=NUMBER, rank=NUMBER),
    rounding="log10",
)


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
PRECISIONS = ("apart", "condition", "double", "single")


def precisions(ctx, seed, net, data, batch_size, clients):
    """B·err with honest clients, for a server in double precision and for one in the clients' own."""
    pool, (index, truth) = (
        images(ctx, data),
        batches(ctx, data, clients, batch_size, seed),
    )
    model = ctx.build(net, pool.shape, pool.n_classes, seed=seed)
    sent = fishing(model, "vector", clients, seed)
    gradient = honest_head(sent, pool, index)
    double = lia_sa.preset(sent, pool.shape)
    single = lia_sa.preset(sent, pool.shape, torch.float32)
    single = HeadPass(single.inputs.double(), single.probabilities.double())
    off = (double.inputs - single.inputs).abs().max() / double.inputs.abs().max()
    yield {
        "apart": off.item(),
        "condition": lia_sa.conditioning_of(double.inputs).condition,
        "double": score(double, gradient, truth, batch_size)["b_err"],
        "single": score(single, gradient, truth, batch_size)["b_err"],
    }


PRECISION = Experiment(
    "precision",
    precisions,
    quick=grid(net=["resnet18", "resnet50"], data="synthetic-100", batch_size=8),
    paper=grid(net=RESNETS, data="cifar100", batch_size=16),
    trials=(1, 5),
    values=dict.fromkeys(PRECISIONS, NUMBER),
    rounding=PRECISIONS,
    fixed=dict(clients=5),
)


def by_bits(ctx, seed, net, data, recipe, bits, clients, batch_size):
    """The attack on the sum from the masked protocol."""
    server, client = foreseen(ctx, net, data, recipe, clients, seed)
    _, truth = batches(ctx, data, clients, batch_size, seed)
    gradients = head_gradients(client, truth, batch_size)
    apart = [{k: t[u] for k, t in gradients.items()} for u in range(clients)]
    updates = [Update(tensors, "gradient", batch_size) for tensors in apart]
    bound = 2 * max(t.abs().max().item() for t in gradients.values())
    total, _ = secure_sum(updates, FixedPoint(bits, bound))
    yield score(server, total.tensors, truth, batch_size)


BITS = Experiment(
    "bits",
    by_bits,
    quick=grid(data="mnist5k", recipe=RECIPES, bits=[8, 16, 24, 32, 48]),
    paper=grid(data="mnist", recipe=RECIPES, bits=[8, 12, 16, 20, 24, 28, 32, 40, 48]),
    trials=(3, 20),
    values=dict(target=MEAN, all=MEAN, b_err=NUMBER, floor=NUMBER),
    rounding="b_err",
    fixed=dict(net="fcn3", clients=5, batch_size=64),
)


VECTOR = dict(recipe="vector", bits=[22, 20, 18, 16, 14])


def through_flower(ctx, seed, net, data, recipe, clients, bits, batch_size, lr):
    """Counts right after Flower's SecAgg+, and the spread of a count by the theory."""
    from fedleak.platforms.flower import fish  # Flower takes seconds to import

    pool = images(ctx, data)
    model = ctx.build(net, pool.shape, pool.n_classes, seed=seed)
    index, truth = batches(ctx, data, clients, batch_size, seed)
    sent = fishing(model, recipe, clients, seed)
    recovered = fish(sent, pool.x[index], pool.y[index], lr, quantization_range=2**bits)
    step = 2 * 8.0 / 2**bits / (batch_size / 1000)  # Flower's clip and largest weight
    inverse = torch.linalg.pinv(lia_sa.system(lia_sa.preset(sent, pool.shape).inputs))
    spread = batch_size / lr * step * inverse.square().sum().item() ** 0.5 / 6**0.5
    yield {"right": (recovered == truth).double().mean().item(), "spread": spread}


SECAGG = Experiment(
    "secagg",
    through_flower,
    quick=grid(**VECTOR, data="mnist5k", clients=[2, 5])
    + grid(recipe="literal", bits=[22, 18], data="mnist5k", clients=5),
    paper=grid(**VECTOR, data="mnist", clients=[2, 5, 10, 20])
    + grid(recipe="literal", bits=[22, 20, 18], data="mnist", clients=[2, 5]),
    trials=(2, 5),
    values=dict(right=MEAN, spread=NUMBER),
    rounding="spread",
    fixed=dict(net="fcn3", batch_size=64, lr=0.1),
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
    + rounds(PASSIVE, SMALL[:2], trials=10)
    + rounds(PASSIVE, SMALL[2:3], trials=20)
    + rounds(PASSIVE, SMALL[3:], trials=10)
    + rounds(ACTIVE, DEEP, trials=10)
    + rounds(PASSIVE, DEEP, trials=3),
    trials=(1, 20),
    **RULED,
)


def saturated(ctx, seed, net, data, batch_size, scale):
    """LnAcc of LLG among five clients, and the largest mean probability of a class."""
    layer, mean, truth = honest_mean(ctx, net, data, 5, batch_size, seed, scale)
    recovered, share = llg.recover(mean, layer), truth / truth.sum()
    accuracy = metrics.label_number_accuracy(recovered, truth).item()
    yield {"all": accuracy, "largest": (mean.tensors["bias"] + share).max().item()}


SATURATED = Experiment(
    "saturated",
    saturated,
    quick=grid(
        net="resnet18", data="synthetic-100", batch_size=[10, 100], scale=[1, 1000]
    ),
    paper=grid(net="resnet18", data="cifar100", batch_size=[102, 1024], scale=[1, 1000])
    + grid(net="resnet50", data="imagenet", batch_size=1024, scale=1, trials=3),
    trials=(1, 10),
    values=dict(all=MEAN, largest=NUMBER),
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
