"""The arena: what a client sees of a model that it is sent, honest or crafted."""

import copy
from itertools import pairwise
from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.nn.utils import prune

from fedleak import metrics
from fedleak.attacks.images import eluding_sa, mandrake
from fedleak.attacks.labels import lia_sa
from fedleak.attacks.labels.fishing import fishing_layer
from fedleak_book.experiments import Experiment, grid, networks, spawned
from fedleak.federated import fedsgd
from fedleak.federated.aggregation import plain_sum
from fedleak.platforms.inspection import inspect_model
from fedleak_book.experiments.kinds import MEAN, rate
from fedleak.models import head

NETS = ["lenet", "cnn", "fcn3", "mlp6", "resnet20", "vgg16-quarter"]
RIGHT_BEFORE = {  # the last layer whose activation is followed by the head
    "lenet": "9",
    "cnn": "4",
    "fcn3": "3",
    "mlp6": "11",
    "resnet20": "stem.1",  # it has no activation there: its first batch norm
    "vgg16-quarter": "classifier.3",
}
STAGES = [0, 1, 10, 100]
LAST = f"{STAGES[-1]} steps"
PRUNED = {"90 % of weights pruned": 0.9, "half of units pruned": 0.5}
BATCHES = ["mixed", "one class"]
RECIPES = ["LIA-SA, literal", "LIA-SA, log", "LIA-SA, vector"]
CRAFTED = [*RECIPES, "class fishing", "EludingSA", "MANDRAKE"]
NOISE = [0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0]
DISGUISES = [(noise, 0.0) for noise in NOISE]
NONE = DISGUISES[0]
SPARED = (0.0, 0.2)  # no noise, and a fifth of the layer's units as they were
ADAPTIVE = ["LIA-SA, vector", "EludingSA", "MANDRAKE"]
SIZE, CLIENTS, LR = 32, 5, 0.05
FOUND = 0.01  # mean squared error of an image that counts as found: 20 dB
CHECKS = {
    "dead": "dead units",
    "duplicated": "duplicated rows",
    "bins": "bins",
    "shut_out": "class shut out",
    "silent": "silent activations",
    "saturated": "saturated softmax",
}


def stages(ctx, seed, net, pool):
    """An honest network by stage: fresh, after local steps of SGD, and pruned then."""
    model = ctx.build(net, pool.shape, pool.n_classes, seed=spawned(seed, "weights"))
    generator = torch.Generator().manual_seed(spawned(seed, "training"))
    models = {"0 steps": copy.deepcopy(model)}
    for before, stage in pairwise([0, *STAGES]):
        networks.train(model, pool, stage - before, generator, LR, 0, SIZE)
        models[f"{stage} steps"] = copy.deepcopy(model)
    for name, share in PRUNED.items():
        models[name] = pruned(copy.deepcopy(model), share, units="units" in name)
    return models


def pruned(model, share, units):
    """A network without a share of each layer's smallest weights, or of its units."""
    last = head(model).layer
    for m in list(model.modules()):
        if not isinstance(m, nn.Linear | nn.Conv2d) or (units and m is last):
            continue
        if units:
            prune.ln_structured(m, "weight", share, n=2, dim=0)
            if m.bias is not None:
                m.bias.data[(m.weight == 0).flatten(1).all(1)] = 0
        else:
            prune.l1_unstructured(m, "weight", share)
        prune.remove(m, "weight")
    return model


def crafted(model, kind, net, pool, client, seed):
    """What a server sends one of its clients in place of an honest network."""
    if kind in RECIPES:
        return lia_sa.fishing_model(model, kind.split(", ")[1], client, CLIENTS, seed)
    if kind == "EludingSA":
        return eluding_sa.muted_model(model, RIGHT_BEFORE[net])
    if kind == "MANDRAKE":
        bins = mandrake.thresholds(pool.x[:500].mean((1, 2, 3)))
        return mandrake.fronted_model(model, pool.shape, client, CLIENTS, bins)
    sent = copy.deepcopy(model)  # class fishing: as the paper's released code has it
    last = head(sent).layer
    with torch.no_grad():
        last.weight[0], last.weight[1:], last.bias[1:] = 0.5, 0, 1000
    return sent


@torch.no_grad()
def disguised(sent, kind, net, noise, spared, model, seed):
    """A crafted network with noise on what gives it away, or with some honest units."""
    if not noise and not spared:
        return sent
    generator, sent = torch.Generator().manual_seed(seed), copy.deepcopy(sent)
    layer = fishing_layer(sent) if kind in RECIPES else RIGHT_BEFORE[net]
    layers = ["front.bins", "front.back"] if kind == "MANDRAKE" else [layer]
    if spared:
        for part in ("weight", "bias"):
            new, old = (m.get_parameter(f"{layer}.{part}") for m in (sent, model))
            new[: int(spared * len(new))] = old[: int(spared * len(new))]
        return sent
    for name in layers:
        weight = sent.get_parameter(f"{name}.weight")
        z = noise * torch.randn(weight.shape, generator=generator).to(weight.device)
        weight.add_(z * weight if kind == "MANDRAKE" else z)
    return sent


def read(kind, model, plain, sent, x, y):
    """What the attack still reads, a share; the server presets without the noise.

    Of labels (LIA-SA, iAcc), of the first client's images (MANDRAKE), or how much of
    the sum is the target's, by squared norm (EludingSA).
    """
    if kind == "EludingSA":
        last = head(model)
        pairs = zip([model, *sent[1:]], x, y)
        updates = [fedsgd(m, a, b).tensors for m, a, b in pairs]
        names = {n for n in updates[0] if n != last.bias}
        target, rest = (
            sum(sum(g[n] for g in some).square().sum().item() for n in names)
            for some in (updates[:1], updates[1:])
        )
        return target / (target + rest)
    summed = plain_sum([fedsgd(m, a, b) for m, a, b in zip(sent, x, y)])
    if kind == "MANDRAKE":
        images = mandrake.reconstruct(summed, plain[0], client=0)
        if not len(images):
            return 0.0
        far = torch.cdist(x[0].flatten(1), images.flatten(1)).square() / x[0][0].numel()
        return (far.amin(1) <= FOUND).float().mean().item()
    counts = lia_sa.recover(summed, plain, SIZE, tuple(x.shape[2:]), force=True)
    truth = metrics.counts(y, counts.shape[1])
    return metrics.braun_blanquet(counts, truth).mean().item()


def looked_at(model, x):
    """Whether a client refuses a model by its weights, or with its own samples too."""
    state = model.state_dict()
    checks = {finding.check for finding in inspect_model(state, model, x)}
    row = {"refused": float(bool(checks)), "weights": float(bool(inspect_model(state)))}
    return row | {name: float(check in checks) for name, check in CHECKS.items()}


def inspected(ctx, seed, net, data):
    """What a client refuses, of honest and of crafted models, and what is still read."""
    pool = ctx.images(data)
    if net.startswith("vgg"):  # which takes 32 x 32
        pool = replace(pool, x=nn.functional.pad(pool.x, (2, 2, 2, 2)))
    generator = torch.Generator().manual_seed(spawned(seed, "batches"))
    index = torch.randint(len(pool), (CLIENTS, SIZE), generator=generator)
    x, y = pool.x[index], pool.y[index]
    alike = (pool.y.cpu() == y[0, 0].cpu()).nonzero()[:, 0]
    alike = alike[torch.randperm(len(alike), generator=generator)[:SIZE]]
    samples = {"mixed": x[0], "one class": pool.x[alike]}
    honest = stages(ctx, seed, net, pool)
    undisguised = {"noise": 0.0, "spared": 0.0}
    for stage, model in honest.items():
        for batch in BATCHES:
            row = looked_at(model, samples[batch]) | undisguised | {"read": np.nan}
            yield {"sent": "honest", "stage": stage, "batch": batch} | row
    for stage in (f"{STAGES[0]} steps", LAST):
        for kind in CRAFTED:
            if kind in RECIPES and net == "cnn":
                continue  # its only fully connected layer is the head
            model, adapts = honest[stage], stage == LAST and kind in ADAPTIVE
            plain = [crafted(model, kind, net, pool, u, seed) for u in range(CLIENTS)]
            tried = DISGUISES + [SPARED] * (kind != "MANDRAKE") if adapts else [NONE]
            for how in tried:
                sent = [
                    disguised(m, kind, net, *how, model, spawned(seed, f"noise {u}"))
                    for u, m in enumerate(plain)
                ]
                row = looked_at(sent[-1], samples["mixed"])
                row["read"] = read(kind, model, plain, sent, x, y) if adapts else np.nan
                place = {"stage": stage, "batch": "mixed"}
                yield {"sent": kind} | place | dict(zip(undisguised, how)) | row


INSPECTED = Experiment(
    "inspected",
    inspected,
    quick=grid(net=["lenet"], data="mnist5k"),
    paper=grid(net=NETS, data="mnist5k"),
    trials=(1, 10),
    by=("sent", "stage", "batch", "noise", "spared"),
    values={name: rate(1) for name in ("refused", "weights", *CHECKS)} | {"read": MEAN},
    fixed={"batch_size": SIZE, "clients": CLIENTS, "lr": LR},
)
