"""LLG: Fig. 7, what defences leave of the attack."""

import dataclasses

import numpy as np
import torch

from fedleak import metrics
from fedleak.attacks.labels import guess, llg
from fedleak.federated.defences import protect
from fedleak_book.experiments import Experiment, grid, spawned
from fedleak_book.experiments.kinds import NUMBER, rate
from notebooks.llg.clients import ASR, LEVELS, LR, SIZES, STEPS, WHOLE, client, counted
from notebooks.llg.clients import make_defence, probes, sets, success


def defended(ctx, seed, data, algorithm):
    """LLG+ on the same update under every defence: one row a batch size and defence."""
    (images, auxiliary), steps = sets(ctx, data), STEPS[algorithm]
    model = ctx.build("cnn", images.shape, images.n_classes, seed=seed)
    for size, probe_gradients in probes(model, auxiliary, SIZES, seed).items():
        update, index = client(model, images, "unbalanced", size, steps, seed)
        shared = [update] + [
            protect(update, make_defence(*defence, seed + 2)) for defence in LEVELS[1:]
        ]
        g = torch.stack([llg.class_gradients(u, model) for u in shared])
        scale = llg.impact_and_offset(probe_gradients, size, steps)
        counts = llg.extract(g, *scale, update.samples, stop_at_samples=True).cpu()
        truth = counted(images, index).expand_as(counts)
        success_rates = metrics.attack_success_rate(counts, truth).tolist()
        for (kind, level), asr in zip(LEVELS, success_rates):
            row = dict(batch_size=size, defence=kind, level=level, asr=asr)
            yield row | {"images": len(images) + len(auxiliary)}


FIG7 = Experiment(
    "fig7",
    defended,
    quick=grid(data="mnist5k", algorithm=list(STEPS)),
    paper=grid(data="mnist", algorithm=list(STEPS)),
    trials=(10, 400),
    by=("batch_size", "defence", "level"),
    values=ASR,
    facts="images",
    fixed={"net": "cnn", "composition": "unbalanced", "lr": LR},
)


# --- thousands of networks ---
# A block of twenty is one trial: its networks, batches and noise are drawn anew, so that blocks are independent, and an
# interval over blocks is one over networks. A record keeps what it needs of them, at a twentieth of the rows.
BLOCK = 20
NOISE = [("noise", level) for level in (0.01, 0.1, 1.0)]
CLIPPED, GUESS = ("dp", 1.0), ("random guess", 0.0)
CELLS = {
    "FedSGD": {16: [*NOISE, CLIPPED, GUESS], 32: NOISE, 64: NOISE, 128: NOISE},
    "FedAvg": {size: [CLIPPED, GUESS] for size in SIZES},
}
"""By algorithm and batch size, the defences of LLG+ and the baseline that claims compare."""
CELLS_WHOLE = {
    algorithm: {size: [CLIPPED, GUESS] for size in sizes}
    for algorithm, sizes in (("FedSGD", SIZES[4:]), ("FedAvg", SIZES))
}
"""The same where the whole update is clipped."""


def one_network(ctx, seed, data, algorithm, whole):
    """ASR of LLG+ on one network by batch size and defence, {(B, defence, level): ASR}, and the data set's images."""
    (images, auxiliary), steps = sets(ctx, data), STEPS[algorithm]
    cells = (CELLS_WHOLE if whole else CELLS)[algorithm]
    weights = spawned(seed, "weights")
    model = ctx.build("cnn", images.shape, images.n_classes, seed=weights)
    chosen, rates = spawned(seed, "probes"), {}
    for size, p in probes(model, auxiliary, list(cells), chosen).items():
        drawn = spawned(seed, f"batch of {size}")
        update, index = client(model, images, "unbalanced", size, steps, drawn)
        impact, offset = llg.impact_and_offset(p, size, steps)
        for kind, level in cells[size]:
            if (kind, level) == GUESS:
                counts = guess.recover(update, model, seed=spawned(seed, "guess"))
            else:
                noise = spawned(seed, "noise") % 2**62
                shared = protect(update, make_defence(kind, level, noise, whole=whole))
                g = llg.class_gradients(shared, model)
                counts = llg.extract(
                    g, impact, offset, update.samples, stop_at_samples=True
                )
            rates[size, kind, level] = success(counts, counted(images, index))
    return rates, len(images) + len(auxiliary)


def blocks(ctx, seed, data, algorithm, block=BLOCK, clipping=None):
    """Mean ASR over the networks of a block, and the sum of the squared deviations from it."""
    seeds = [spawned(seed, f"network {k}") for k in range(block)]
    whole = clipping == WHOLE
    networks = [one_network(ctx, s, data, algorithm, whole) for s in seeds]
    for size, kind, level in networks[0][0]:
        asr = np.array([rates[size, kind, level] for rates, _ in networks])
        yield {
            "batch_size": size,
            "defence": kind,
            "level": level,
            "asr": asr.mean(),
            "squares": np.square(asr - asr.mean()).sum(),
            "images": networks[0][1],
        }


FIG7_BLOCKS = Experiment(
    "fig7_blocks",
    blocks,
    quick=grid(data="mnist5k", algorithm=list(STEPS)),
    paper=grid(data="mnist", algorithm="FedSGD", trials=80)
    + grid(data="mnist", algorithm="FedAvg", trials=215),
    trials=(1, 80),
    by=("batch_size", "defence", "level"),
    values=dict(asr=rate("batch_size", {"algorithm": STEPS}, "block"), squares=NUMBER),
    facts="images",
    fixed={"net": "cnn", "composition": "unbalanced", "lr": LR, "block": BLOCK},
    tables="fig7",
)


FIG7_WHOLE = dataclasses.replace(
    FIG7_BLOCKS,
    name="fig7_whole",
    paper=grid(data="mnist", algorithm=list(STEPS), trials=40),
    fixed=FIG7_BLOCKS.fixed | {"clipping": WHOLE},
)
