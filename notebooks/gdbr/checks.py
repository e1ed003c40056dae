"""GDBR: small experiments that the chapter runs on the spot, on digits, and that are not recorded."""

import pandas as pd
import torch
from torch import nn

from fedleak import WithheldParameter, metrics
from fedleak.attacks.labels import gdbr, ilrg, llg, zlg
from fedleak.attacks.labels.counts import round_to_total
from fedleak.data import compose
from fedleak.federated import Update, fedsgd
from fedleak.federated.aggregation import FixedPoint
from fedleak.federated.restricted import last_layers, partially_encrypted
from fedleak.models import chain
from notebooks.gdbr.clients import (
    FORMS,
    SCHEMES,
    batch,
    chain_of,
    known_inputs,
    scores,
    sets,
    share,
    victims_inputs,
)

DIGITS = "mnist5k"


def client(ctx, net, init, seed, size=64):
    """One client with a random batch: the network's last layers, their inputs for the batch, labels and counts."""
    tail = chain_of(ctx, net, DIGITS, init, seed)
    generator = torch.Generator().manual_seed(seed)
    index, labels, truth = batch(ctx, DIGITS, "random", size, generator)
    return tail, victims_inputs(ctx, net, DIGITS, seed, index), labels, truth


def restricted(ctx, seed):
    """InsAcc of each attack on whole updates and on those without the last layer, mean of five clients."""
    victims, aux = sets(ctx, DIGITS)
    model = ctx.build(
        "lenet", victims.shape, victims.n_classes, seed=seed, init="positive"
    )
    generator = torch.Generator().manual_seed(seed)
    batches_drawn = [batch(ctx, DIGITS, "imbalanced", 64, generator) for _ in range(5)]
    whole = [
        fedsgd(model, victims.x[index], labels) for index, labels, _ in batches_drawn
    ]
    hide = FixedPoint(bits=40, bound=1e4)
    clear, _ = partially_encrypted(whole, last_layers(model), hide)
    attacks = {
        "LLG": llg.recover,
        "ZLG": lambda u, m: zlg.recover(u, m, aux),
        "iLRG": ilrg.recover,
    }
    attacks["GDBR"] = lambda u, m: gdbr.recover(u, m, aux)

    def outcome(attack, updates):
        try:
            results = [attack(update, model) for update in updates]
        except WithheldParameter:
            return "refuses: withheld"
        except ValueError as error:
            return "refuses: no bias" if "bias" in str(error) else str(error)
        hits = [
            scores(c, truth)["insacc"]
            for c, (_, _, truth) in zip(results, batches_drawn, strict=True)
        ]
        return f"{sum(hits) / len(hits):.0%}"

    given = {"whole update": whole, "last layer withheld": clear}
    rows = [
        {"attack": a} | {w: outcome(f, u) for w, u in given.items()}
        for a, f in attacks.items()
    ]
    return pd.DataFrame(rows)


def even_guess(seed, batches=2000):
    """InsAcc of naming every class equally often, by number of classes and composition (B = 64)."""
    generator, rows = torch.Generator().manual_seed(seed), []
    for n in (10, 100, 200, 1000):
        even, row = round_to_total(torch.full((n,), 64 / n), 64), {"classes": n}
        for scheme, name in SCHEMES.items():
            truth = metrics.counts(compose(name, 64, n, batches, generator), n)
            row[scheme] = (
                metrics.instance_accuracy(even.expand_as(truth), truth).mean().item()
            )
        rows.append(row)
    return pd.DataFrame(rows)


def errors_by_layer(ctx, seed):
    """One MLP-6 with positive weights, by layer: what each form pays, and the theorem of one vector checked."""
    tail, x, labels, truth = client(ctx, "mlp6", "positive", seed)
    tail, x = tail.double(), x.double()
    images = known_inputs(ctx, "mlp6", DIGITS, seed, "aux").double()
    delta = tail(x).softmax(1).detach() - nn.functional.one_hot(labels, 10)
    names, rows = [link.name for link in chain(tail).links[:-1]], []
    update = share(tail, x, labels, names)
    for number, name in enumerate(names[::-1], 1):
        bridge, row = gdbr.Bridge(tail, name), {"layer": f"#{number}"}
        features, mine = bridge.observe(images), bridge.observe(x)
        crossing = bridge.cross(features).matrix
        ratio = tail[: int(name) + 2](x).detach() / features.outputs
        units = (ratio / ratio.mean(1, keepdim=True) - 1).std()
        row["spread of units' factors"] = f"{units:.0e}"
        accuracies = {}
        for form in FORMS:
            start = bridge.first_step(update.gradient(f"{name}.weight"), features, form)
            if form != "paper":
                s = mine.inputs @ features.vector(form)
                by_theorem = (s[:, None] * delta).mean(0)
                error = (
                    crossing @ start - by_theorem
                ).abs().max() / by_theorem.abs().max()
                assert error < 1e-5, f"{form}, {name}"  # rounding, times the condition
                row[f"spread of r, {form}"] = f"{s.std():.2f}"
            if form == "one vector":
                grows = crossing.norm(p=2) * start.norm() / (crossing @ start).norm()
                row["amplification"] = f"{grows:.0e}"
            counts = bridge.recover(update, features, form).counts
            accuracies[f"InsAcc, {form}"] = scores(counts, truth)["insacc"]
        rows.append(row | accuracies)
    return pd.DataFrame(rows)


def random_weights(ctx, seed):
    """InsAcc of the whitened bridge where a client weighs its samples by random numbers of mean 1."""
    tail, x, labels, truth = client(ctx, "lenet", "positive", seed)
    bridge, rows = gdbr.Bridge(tail), []
    features, first = (
        bridge.observe(known_inputs(ctx, "lenet", DIGITS, seed, "aux")),
        bridge.links[0],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for spread in (0.0, 0.5, 1.0, 2.0):
            shape = torch.tensor(1 / max(spread, 1e-4) ** 2)
            weights = torch.distributions.Gamma(shape, shape).sample((64,))
            losses = nn.functional.cross_entropy(tail(x), labels, reduction="none")
            loss = (losses * weights.to(losses)).mean()
            (gradient,) = torch.autograd.grad(loss, first.layer.weight)
            update = Update({first.weight: gradient}, "gradient", 64)
            counts = bridge.recover(update, features, "whitened").counts
            rows.append(
                {
                    "deviation of the weights": spread,
                    "InsAcc": scores(counts, truth)["insacc"],
                }
            )
    return pd.DataFrame(rows)
