"""LIA-SA: Table II, what clients could notice, and what the rivals send them."""

import dataclasses

import numpy as np
import torch
from torch import nn

from fedleak.attacks.images import eluding_sa, mandrake
from fedleak.federated import fedsgd
from fedleak.federated.aggregation import plain_sum
from fedleak.models import build, count_parameters, head
from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.kinds import NUMBER
from notebooks.lia_sa.clients import LIA, SPACED, fishing, images, rule_with


def crafted_model(rule, model, pool, s):
    """What a malicious server sends a client in place of the model."""
    if rule.startswith("LIA-SA"):
        return fishing(model, rule.split(", ")[1], 5, s)[2]
    if rule == "EludingSA":
        return eluding_sa.muted_model(model)
    if rule == "MANDRAKE":
        bins = mandrake.thresholds(pool.x[:500].mean((1, 2, 3)))
        return mandrake.fronted_model(model, pool.shape, 0, 10, bins)
    return model


def cosine(a, b, names):
    """Cosine similarity of two updates over some of their tensors, 0 where one vanishes."""
    flat = [torch.cat([t[n].flatten() for n in names]) for t in (a, b)]
    return nn.functional.cosine_similarity(*flat, dim=0).item()


NETS = ["vgg11_bn", "resnet18"]
SENT = ["EludingSA", "MANDRAKE", LIA[0], LIA[2]]


def similarities(ctx, seed, net, data, rule, batch_size, constants=None):
    """Cosine similarities of a client's gradient under attack with the benign one, in several readings."""
    rule = rule_with(constants) if constants else rule
    pool, generator = images(ctx, data), torch.Generator().manual_seed(seed)
    model = ctx.build(net, pool.shape, pool.n_classes, seed=seed)
    index = torch.randint(len(pool), (batch_size,), generator=generator)
    x, y, last = pool.x[index], pool.y[index], head(model)
    got = fedsgd(crafted_model(rule, model, pool, seed), x, y).tensors
    a = {k.removeprefix("model."): t for k, t in got.items() if k not in mandrake.FRONT}
    b = fedsgd(model, x, y).tensors
    for reading, names in (
        ("all", list(b)),
        ("head", [last.weight, last.bias]),
        ("head weights", [last.weight]),
    ):
        yield {"reading": reading, "cosine": cosine(a, b, names), "images": len(pool)}
    layers = float(np.mean([cosine(a, b, [n]) for n in b]))
    yield {"reading": "layers", "cosine": layers, "images": len(pool)}


TABLE2 = Experiment(
    "table2",
    similarities,
    quick=grid(net=NETS, data="synthetic-100", rule=SENT, batch_size=16),
    paper=grid(net=NETS, data="cifar100", rule=SENT, batch_size=64),
    trials=(1, 30),
    by="reading",
    values=dict(cosine=NUMBER),
    facts="images",
    tables="similarity",
)


PRESET = dict(net=NETS, rule=LIA[0], constants=[*SPACED, "log-spaced"])
TABLE2_CONSTANTS = dataclasses.replace(
    TABLE2,
    name="table2_constants",
    quick=grid(**PRESET, data="synthetic-100", batch_size=16),
    paper=grid(**PRESET, data="cifar100", batch_size=64),
    trials=(1, 3),
    tables=("similarity_liasa",),
)

EVERY = grid(net=NETS, rule=["EludingSA", "MANDRAKE", "LIA-SA"], classes=[10, 100])


def footprint(ctx, seed, net, rule, classes):
    """Modified parameters, and their share [%] of the model as it is sent: counted, not quoted."""
    model = ctx.build(net, (3, 32, 32), classes, seed=seed)
    if rule == "MANDRAKE":
        bins = torch.linspace(0.1, 0.9, 256)
        fronted = mandrake.fronted_model(model, (3, 32, 32), 0, 10, bins)
        front = [p for name, p in fronted.named_parameters() if name in mandrake.FRONT]
        changed = sum(p.numel() for p in front)
        size = count_parameters(model) + changed
    else:
        rule += ", vector" * (rule == "LIA-SA")
        crafted = crafted_model(rule, model, None, seed)
        pairs = zip(model.parameters(), crafted.parameters())
        changed = int(sum((a != b).sum() for a, b in pairs))
        size = count_parameters(model)
    yield {"nomp": changed, "ratio": 100 * changed / size}


FOOTPRINT = Experiment(
    "footprint",
    footprint,
    quick=EVERY,
    paper=EVERY,
    values=dict(nomp=NUMBER, ratio=NUMBER),
    exact=True,
    tables="table2",
)


def rivals(pool, seed):
    """EludingSA and MANDRAKE on four clients: the target and what is found of it, two batches and what is found."""
    clients, target = 4, 1
    network = build("cnn", pool.shape, pool.n_classes, seed=2)
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(len(pool), (clients, 6), generator=generator)
    x, y = pool.x[index], pool.y[index]
    muted = eluding_sa.clients_models(network, target, clients, layer="4")
    summed = plain_sum([fedsgd(m, a[:1], b[:1]) for m, a, b in zip(muted, x, y)])
    eluded = eluding_sa.reconstruct(summed, network, iterations=60, seed=1)
    bins, users = mandrake.thresholds(pool.x.mean((1, 2, 3)), 256), range(clients)
    fronted = [
        mandrake.fronted_model(network, pool.shape, u, clients, bins) for u in users
    ]
    summed = plain_sum([fedsgd(m, a, b) for m, a, b in zip(fronted, x, y)])
    reconstructions = [
        mandrake.reconstruct(summed, fronted[0], client=u) for u in (0, 1)
    ]
    return (
        x[target, :1],
        eluded,
        [a[a.mean((1, 2, 3)).argsort()] for a in x[:2]],
        reconstructions,
    )
