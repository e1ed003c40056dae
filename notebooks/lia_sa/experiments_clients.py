"""LIA-SA: the experiments on what clients do, what they could notice, and what the rivals send them."""

import time

import numpy as np
import torch
from fedleak import metrics
from fedleak.attacks.images import eluding_sa, mandrake
from fedleak.attacks.labels import lia_sa
from fedleak_book.experiments import Experiment, grid
from fedleak.federated import fedsgd
from fedleak.federated.aggregation import plain_sum
from fedleak.federated.defences import PureNoise, Sparsification
from fedleak_book.experiments.kinds import MEAN, NUMBER
from fedleak.models import build, count_parameters, head
from notebooks.lia_sa.clients import CONSTANTS, LIA, ONE, RECIPES, batches, fishing
from notebooks.lia_sa.clients import foreseen, head_gradients, images, rule_with, score
from torch import nn


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


def timings(net, data, batch_sizes, numbers):
    """By batch size with the fewest clients, and by clients at the smallest batch."""
    return grid(net=net, data=data, clients=numbers[0], batch_size=batch_sizes) + grid(
        net=net, data=data, clients=numbers[1:], batch_size=batch_sizes[0]
    )


SECONDS = ("total_seconds", "client_seconds", "server_seconds")


def timed_round(ctx, seed, net, data, clients, batch_size):
    """A whole round of the attack with honest clients, in seconds by part."""
    pool = images(ctx, data)
    model = ctx.build(net, pool.shape, pool.n_classes, seed=seed)
    start = time.perf_counter()
    models = fishing(model, "vector", clients, seed)
    setup = time.perf_counter() - start
    index, truth = batches(ctx, data, clients, batch_size, seed)
    last, shared, start = head(model), [], time.perf_counter()
    for fished, i in zip(models, index):
        update = fedsgd(fished, pool.x[i], pool.y[i])
        of_head = {k: update.tensors[k] for k in (last.weight, last.bias)}
        shared.append(update.replace(of_head))
    honest, start = time.perf_counter() - start, time.perf_counter()
    recovered = lia_sa.recover(plain_sum(shared), models, batch_size, pool.shape)
    exact = metrics.label_number_accuracy(recovered, truth).mean().item()
    server = setup + time.perf_counter() - start
    seconds = dict(zip(SECONDS, (honest + server, honest, server)))
    yield {**seconds, "exact": exact, "hardware": ctx.device}


FIG5 = Experiment(
    "fig5",
    timed_round,
    quick=timings("vgg11_bn", "photos", [16, 64, 256], [2, 4, 8])
    + grid(net="fcn3", data="mnist5k", clients=20, batch_size=512),
    paper=timings("vgg11_bn", "cifar10", [64, 128, 256, 512], [5, 10, 20, 40])
    + grid(net="fcn3", data="mnist", clients=100, batch_size=5120),
    trials=(1, 3),
    values=dict.fromkeys(SECONDS, NUMBER) | dict(exact=MEAN),
    times=SECONDS,
    facts="hardware",
)


def honest_heads(ctx, net, data, recipe, batch_size, s):
    """What honest clients share of their heads, and the size below which a share of ALL their entries lies."""

    def make():
        pool = images(ctx, data)
        model = ctx.build(net, pool.shape, pool.n_classes, seed=s)
        last, shared, thresholds = head(model), [], []
        index, _ = batches(ctx, data, 5, batch_size, s)
        for fished, i in zip(fishing(model, recipe, 5, s), index):
            tensors = fedsgd(fished, pool.x[i], pool.y[i]).tensors
            flat = torch.cat([t.abs().flatten() for t in tensors.values()])
            sizes = flat.sort().values
            shared.append({"weight": tensors[last.weight], "bias": tensors[last.bias]})
            last_of = {v: max(1, round(v * len(sizes))) - 1 for v in (0.2, 0.4, 0.8)}
            thresholds.append({v: sizes[i].item() for v, i in last_of.items()})
        return shared, thresholds

    return ctx.once(("heads", net, data, recipe, batch_size, s), make)


def pruned_together(ctx, net, data, recipe, level, batch_size, s):
    """The sum of the clients' heads, each pruned with ONE threshold for all of its parameters."""
    total = {"weight": 0, "bias": 0}
    for tensors, sizes in zip(*honest_heads(ctx, net, data, recipe, batch_size, s)):
        for k, t in tensors.items():
            total[k] = total[k] + t * (t.abs() > sizes.get(level, -1.0))
    return total


LEVELS = {"noise": [0.0, 1e-4, 1e-3, 1e-2], "compression": [0.0, 0.2, 0.4, 0.8]}


def defences(recipes, data, batch_sizes):
    """Both defences, every level."""
    same = dict(data=data, recipe=recipes, batch_size=batch_sizes)
    same["net"] = ["resnet18", "vgg11_bn"]
    grids = (grid(defence=d, level=levels, **same) for d, levels in LEVELS.items())
    return [setting for settings in grids for setting in settings]


def together(data, batch_size, level, **more):
    """One threshold for all parameters."""
    same = dict(net="resnet18", data=data, recipe=["literal", "vector"], defence=ONE)
    return grid(**same, level=level, batch_size=batch_size, **more)


def defended(ctx, seed, net, data, recipe, defence, level, batch_size):
    """The attack when each client defends its head's gradients."""
    server, client = foreseen(ctx, net, data, recipe, 5, seed)
    _, truth = batches(ctx, data, 5, batch_size, seed)
    if defence == ONE:
        total = pruned_together(ctx, net, data, recipe, level, batch_size, seed)
    else:
        gradients = head_gradients(client, truth, batch_size)
        if level:
            noise, prune = PureNoise, Sparsification
            of = noise(level, seed) if defence == "noise" else prune(level, 5)
            gradients = of(gradients, torch.arange(5))
        total = {k: t.sum(0) for k, t in gradients.items()}
    size = len(images(ctx, data))
    yield {
        **score(server, total, truth, batch_size),
        "images": size,
        "held": size // 5,
        "gradients": "backward passes" if defence == ONE else "closed form",
        "constants": CONSTANTS.get(recipe, recipe),
    }


FIG6 = Experiment(
    "fig6",
    defended,
    quick=defences(["literal", "vector"], "photos", [16, 64])
    + together("photos", 16, 0.8, trials=1),
    paper=[
        s | dict(trials=30 if s["defence"] == "compression" else 20)
        for s in defences(RECIPES, "cifar10", [16, 64, 256, 1024])
    ]
    + together("cifar10", [16, 64], LEVELS["compression"], trials=30),
    trials=(2, 20),
    values=dict(target=MEAN, all=MEAN, b_err=NUMBER, floor=NUMBER),
    facts=("images", "held", "gradients", "constants"),
    rounding="b_err",
    fixed=dict(clients=5),
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
