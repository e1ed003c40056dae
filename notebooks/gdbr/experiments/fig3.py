"""GDBR: Figs. 3 and 5 (a), the baselines ZLG and LLG+ with stand-ins for a last layer's gradient that is withheld (Sec. V-D 4)."""

import dataclasses
import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from fedleak.attacks.labels import gdbr, llg, zlg
from fedleak.attacks.labels.counts import round_to_total
from fedleak.data import draw
from fedleak.models import chain, head_pass
from fedleak_book.experiments import Experiment, OneSeed, SeedByRole, grid
from notebooks.gdbr.clients import BATCHES, HALF, MODES, NETS, NOTHING, TRUE
from notebooks.gdbr.clients import Clients, scores, share
from notebooks.gdbr.experiments import FACTS, PENULTIMATE, POSITIVE, SCANNED, kinds
from notebooks.gdbr.experiments import pairs


# --- the baselines ---
def stand_in(gradient: Tensor, mode: str, generator: torch.Generator) -> Tensor:
    """Make a gradient that has something in common with the true one, ``[..., n, m]``: a row a class.

    ``"stats"``: normal draws with the mean and deviation of all entries; ``"stats (col)"``: the same by column;
    ``"shuffle (col)"``: each column's entries in random order; ``"mask"``: half of the entries, chosen at random,
    replaced by the mean of these. Another mode is a `ValueError`.
    """

    def drawn(kind: Callable[..., Tensor]) -> Tensor:
        values = kind(gradient.shape, generator=generator, dtype=gradient.dtype)
        return values.to(gradient.device)

    over = {"stats": (-2, -1), "stats (col)": (-2,)}
    if mode in over:
        mean, std = (f(over[mode], keepdim=True) for f in (gradient.mean, gradient.std))
        return mean + std * drawn(torch.randn)
    if mode == "shuffle (col)":
        return gradient.gather(-2, drawn(torch.rand).argsort(dim=-2))
    if mode == "mask":
        size = gradient.shape[-2] * gradient.shape[-1]
        order = drawn(torch.rand).flatten(-2).argsort(dim=-1).argsort(dim=-1)
        masked = (order < size // 2).view_as(gradient)
        mean = (gradient * masked).sum((-2, -1), keepdim=True) / max(size // 2, 1)
        return gradient.where(~masked, mean)
    names = ", ".join(MODES[:-1])
    raise ValueError(f"unknown stand-in {mode!r}; there are: {names}")


def baseline_counts(passed, aux, gradient, size, generator):
    """ZLG's and LLG+'s counts from a gradient of the last layer, with the attacker's auxiliary images."""
    g, n = gradient.double().sum(1), aux.n_classes
    features, p = passed.inputs.double().sum(1).mean(), passed.probabilities.double()
    labels = torch.arange(n)[None, :, None].expand(2, n, size)
    drawn = draw(aux, labels, generator)
    offsets = llg.impact_and_offset(passed.row_sums(drawn, labels).double(), size)
    by_llg = llg.extract(g, *offsets, size, stop_at_samples=True)
    return {"ZLG": zlg.estimate(g, p.mean(0), features, size), "LLG+": by_llg}


class Attackers:
    """GDBR from the penultimate layer of a chain, and ZLG and LLG+, which need the last one's gradient, true or made up."""

    def __init__(self, tail, aux, inputs):
        self.tail, self.aux, self.bridge = tail, aux, gdbr.Bridge(tail)
        self.last = chain(tail).links[-1]
        self.features = self.bridge.observe(inputs)
        self.passed = head_pass(tail, inputs)

    def read(self, x, labels, truth, modes, generator):
        """The scores on one batch by attack and mode; the baselines have every mode."""
        size, weight = len(labels), self.last.weight
        update = share(self.tail, x, labels, [self.bridge.layer, self.last.name])
        true, clear = update.gradient(weight), update.without(weight)
        answers = {("GDBR", "–"): self.bridge.recover(clear, self.features).counts}
        for mode in modes:
            substitute = true if mode == TRUE else stand_in(true, mode, generator)
            named = baseline_counts(self.passed, self.aux, substitute, size, generator)
            answers |= {(name, mode): counts for name, counts in named.items()}
        for name, counts in answers.items():
            if counts.sum() != size:
                answers[name] = round_to_total(counts.double(), size)
        return {name: scores(counts, truth) for name, counts in answers.items()}


# --- Figs. 3 and 5 (a) ---
SIZES = [2, 4, 8, 16, 32, 64, 128, 256, 512]
FEW = 433
"""Images that SVHN leaves either side here."""


def parts_of(clients, reduced):
    """By level the victims' images and the attacker's, as an index: all, and as few of both sides as SVHN has."""
    parts = {"whole": (clients.victims, torch.arange(len(clients.aux)))}
    if reduced and clients.data != "svhn":
        generator = clients.seeds.generator("part")
        victims, auxiliary = (
            torch.randperm(len(images), generator=generator)[:FEW]
            for images in (clients.victims, clients.aux)
        )
        parts[f"{FEW} + {FEW}"] = clients.victims.take(victims), auxiliary
    return parts


def against_baselines(
    ctx,
    seed,
    net,
    data,
    scheme,
    composition=None,
    scale=None,
    sizes=(64,),
    modes=MODES,
    reduced=None,
    draws=SeedByRole,
):
    """GDBR from the penultimate layer, ZLG and LLG+ from simulated gradients of the last one.

    `reduced` says whether the same is done with few images, too.
    """
    clients, drawn = Clients(ctx, net, data, draws(seed)), []
    parts, seeds = parts_of(clients, reduced), {size: draws(seed) for size in sizes}
    named = [c for s, c in BATCHES if s == scheme and composition in (None, c)]
    for level, size, kind in itertools.product(parts, sizes, named):
        role = "batch" if reduced is None else f"batch of {level}"
        batch = clients.batch(scheme, kind, size, seeds[size], role, parts[level][0])
        batch.about.update(level=level, images=len(parts[level][0]))
        drawn.append(batch)
    for row, bridge, aux_inputs, chain_batches in clients.views(drawn, scale=scale):
        attackers = {
            level: Attackers(bridge.model, clients.aux.take(chosen), aux_inputs[chosen])
            for level, (_, chosen) in parts.items()
        }
        for batch in chain_batches:
            attacker = attackers[batch.about["level"]]
            generator = seeds[batch.about["batch_size"]].generator("baselines")
            of = {**row, **batch.about, "aux": len(attacker.aux)}
            how = batch.x, batch.labels, batch.truth, modes, generator
            try:
                scored = attacker.read(*how)
            except ValueError:  # positive weights on negative pixels: all units are off
                names = ("GDBR", "–"), *itertools.product(("ZLG", "LLG+"), modes)
                scored = dict.fromkeys(names, NOTHING)
            for (attack, mode), result in scored.items():
                yield {**of, "attack": attack, "mode": mode, **result}


BELOW = POSITIVE | PENULTIMATE
RAW = BELOW | dict(scale="raw")
SHUFFLED = dict(sizes=SIZES, modes=["shuffle (col)"])
COMPARED = dict(
    by=("batch_size", "attack", "mode"), values=kinds("insacc", "clsacc"), facts=FACTS
)
FIG3 = Experiment(
    "fig3",
    against_baselines,
    quick=pairs(False, ["lenet", "resnet18-conv"]),
    paper=pairs(True, NETS[:4], large=30),
    fixed=RAW | dict(scheme="subclassed", composition=HALF),
    arguments=dict(draws=OneSeed) | SHUFFLED,
    **COMPARED,
)
FIG3_CHOICES = Experiment(
    "fig3_choices",
    against_baselines,
    quick=pairs(False, ["lenet"]),
    paper=grid(net="lenet", data="mnist", trials=20)
    + grid(net="vgg11", data="cifar10", trials=3),
    by=("scale", "widths", "composition", "batch_size", "attack", "mode"),
    fixed=BELOW | dict(scheme="subclassed"),
    tables="fig3",
    arguments=SHUFFLED,
    **SCANNED,
)
FIG3_MNIST = dataclasses.replace(  # enough trials for a bound of 0.85
    FIG3_CHOICES,
    name="fig3_mnist",
    paper=grid(net="lenet", data="mnist"),
    trials=(1, 24),
)
FIG5A = Experiment(
    "fig5a",
    against_baselines,
    quick=pairs(False, ["alexnet"]),
    paper=pairs(True, ["alexnet"]),
    fixed=RAW | dict(scheme="random"),
    arguments=dict(draws=OneSeed),
    **COMPARED,
)
FIG5A_CHOICES = Experiment(
    "fig5a_choices",
    against_baselines,
    quick=grid(net="mlp6", data="mnist5k"),
    paper=grid(net=["alexnet", "mlp6"], data=["svhn", "mnist", "cifar10"], trials=6),
    by=("level", "scale", "widths", "attack", "mode"),
    fixed=BELOW | dict(scheme="random", batch_size=64),
    tables="fig5a",
    arguments=dict(reduced=True),
    **SCANNED,
)
