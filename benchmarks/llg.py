"""How fast LLG is in closed form, beside a straightforward loop over autograd of the same estimator, in one run.

FedSGD, unbalanced batches of 1 to 128 samples, the paper's CNN; LLG, LLG* (black images) and LLG+ (10 probe batches of
every class). Measured are

- "fresh": a freshly initialised model for every trial, one forward pass of the auxiliary pool per model;
- "single": one initialisation for all trials, as in the released code, the pool's pass done once for all;
- the peer: for every probe batch and every victim batch a forward and a backward pass, on a few of the same trials
  with the same models and images. Once with `loss.backward()`, as one would write it, and once with the gradient of
  the head's weight alone, which spares the peer most of the backward pass.

Both must name the same labels: if they do not, the exit code is 1.

    python benchmarks/llg.py [--data mnist] [--trials 100] [--peer-trials 2] [--threads 1]
"""

import time
from typing import Annotated

import torch
import typer
from torch import Tensor, nn

from fedleak import data, metrics
from fedleak.attacks.labels.llg import RUNS, extract, gradient_impact, impact_and_offset
from fedleak.data import Images
from fedleak.models import build, head, head_pass
from fedleak_book.experiments.experiment import seeds_of

SIZES = tuple(2**k for k in range(8))
ATTACKS = ("LLG", "LLG*", "LLG+")
Counts = dict[tuple[str, int], Tensor]
"""Label counts ``[trials, n]`` by attack and batch size."""


# --- what both use: the trials' batches --------------------------------------------------------------------------


class Batches:
    """The victims' and the probes' batches of some trials, drawn from disjoint halves of the data.

    A batch of B probe images is the beginning of the one of 128: batch sizes share the probes.
    """

    def __init__(self, victims: Images, pool: Images, trials: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        n = victims.n_classes
        self.labels = {size: data.compose("unbalanced", size, n, trials, generator) for size in SIZES}
        self.victims = {size: data.draw(victims, labels, generator) for size, labels in self.labels.items()}
        classes = [pool.of_class(label) for label in range(n)]
        order = [torch.rand(trials, RUNS, len(c), generator=generator).topk(max(SIZES)).indices for c in classes]
        self.probes = torch.stack([c[o] for c, o in zip(classes, order, strict=True)], dim=2)


# --- the fast path -----------------------------------------------------------------------------------------------


def fast(models: list[nn.Module], victims: Images, pool: Images, batches: Batches) -> Counts:
    """Attack trial i with model i, or all trials with the one model."""
    n = victims.n_classes
    classes = torch.arange(n)[:, None]
    sums: dict[int, list[tuple[Tensor, ...]]] = {size: [] for size in SIZES}
    for trial, model in enumerate(models):
        which = slice(trial, trial + 1) if len(models) > 1 else slice(None)
        index = torch.cat([batches.victims[size][which] for size in SIZES], dim=-1)
        used, place = index.unique(return_inverse=True)
        images = head_pass(model, victims.x[used])
        dummies = head_pass(model, torch.zeros(1, *pool.shape)).row_sums(torch.zeros_like(classes), classes)
        pooled = head_pass(model, pool.x)
        for size, places in zip(SIZES, place.split(SIZES, dim=-1), strict=True):
            probes = batches.probes[which, ..., :size]
            g = images.row_sums(places, batches.labels[size][which])
            real = pooled.row_sums(probes, classes.expand(probes.shape))
            sums[size].append((g, dummies.expand(len(g), 1, n, n), real))
    counts: Counts = {}
    for size in SIZES:
        g, *probes = (torch.cat(parts).double() for parts in zip(*sums[size], strict=True))
        estimates = [(gradient_impact(g, size), torch.zeros_like(g)), *(impact_and_offset(p, size) for p in probes)]
        for attack, (impact, offset) in zip(ATTACKS, estimates, strict=True):
            counts[attack, size] = extract(g, impact, offset, size, stop_at_samples=attack == "LLG+")
    return counts


# --- the peer ----------------------------------------------------------------------------------------------------


def autograd_row_sums(model: nn.Module, x: Tensor, y: Tensor, whole: bool) -> list[float]:
    """Return the row sums of the head's gradient for one batch, by a forward and a backward pass."""
    weight = head(model).layer.weight
    loss = nn.functional.cross_entropy(model(x), y)
    if whole:
        model.zero_grad()
        loss.backward()
        assert weight.grad is not None
        return weight.grad.sum(dim=1).tolist()
    return torch.autograd.grad(loss, weight)[0].sum(dim=1).tolist()


def loop_estimate(probes: list[list[list[float]]], size: int) -> tuple[float, list[float]]:
    """Estimate impact and offset from ``probes[run][label][class]``, term by term (Eqs. 19 and 20)."""
    runs, n = len(probes), len(probes[0])
    impact, offset = 0.0, [0.0] * n
    for run in probes:
        for label, gradient in enumerate(run):
            impact += gradient[label] / (runs * n * size) * (1 + 1 / n)
            for j in range(n):
                if j != label:
                    offset[j] += gradient[j] / (runs * (n - 1))
    return impact, offset


def loop_extract(gradient: list[float], impact: float, offset: list[float], samples: int, stop: bool) -> list[int]:
    """Extract the labels one by one (Algorithm 1)."""
    g, labels = list(gradient), []
    for i in sorted(range(len(g)), key=g.__getitem__):
        if gradient[i] < 0 and not (stop and len(labels) == samples):
            labels.append(i)
            g[i] -= impact
    g = [value - s for value, s in zip(g, offset, strict=True)]
    while len(labels) < samples:
        i = min(range(len(g)), key=g.__getitem__)
        labels.append(i)
        g[i] -= impact
    return labels


def peer(models: list[nn.Module], victims: Images, pool: Images, batches: Batches, trials: int, whole: bool) -> Counts:
    """Attack the first trials, batch after batch."""
    n = victims.n_classes
    rows: dict[tuple[str, int], list[Tensor]] = {(attack, size): [] for attack in ATTACKS for size in SIZES}
    for trial in range(trials):
        model = models[trial % len(models)]
        for size in SIZES:
            index, y = batches.victims[size][trial], batches.labels[size][trial]
            g = autograd_row_sums(model, victims.x[index], y, whole)
            estimates = {"LLG": (sum(v for v in g if v < 0) / size * (1 + 1 / n), [0.0] * n)}
            for attack in ("LLG*", "LLG+"):
                probes = []
                for run in range(RUNS):
                    probes.append([])
                    for label in range(n):
                        zeros = torch.zeros(size, *pool.shape)
                        x = pool.x[batches.probes[trial, run, label, :size]] if attack == "LLG+" else zeros
                        probes[-1].append(autograd_row_sums(model, x, torch.full((size,), label), whole))
                estimates[attack] = loop_estimate(probes, size)
            for attack, (impact, offset) in estimates.items():
                labels = torch.tensor(loop_extract(g, impact, offset, size, attack == "LLG+"))
                rows[attack, size].append(metrics.counts(labels, n))
    return {key: torch.stack(row) for key, row in rows.items()}


# --- side by side ------------------------------------------------------------------------------------------------


def main(
    dataset: Annotated[
        str, typer.Option("--data", help="mnist5k, or mnist from the folder in FEDLEAK_DATA.")
    ] = "mnist5k",
    trials: Annotated[int, typer.Option(min=2, help="Trials of the fast path.")] = 100,
    peer_trials: Annotated[int, typer.Option(min=1, help="How many of them the peer runs, too.")] = 2,
    threads: Annotated[int, typer.Option(min=1, help="Threads of PyTorch.")] = 1,
    seed: int = 0,
) -> None:
    """Measure LLG in closed form beside a loop over autograd of the same estimator."""
    torch.set_num_threads(threads)
    peer_trials = min(peer_trials, trials)
    victims, auxiliary = data.load(dataset).split_in_two(seed)
    taken = [auxiliary.of_class(label)[: RUNS * max(SIZES)] for label in range(auxiliary.n_classes)]
    pool = auxiliary.take(torch.cat(taken))  # the paper's adversary holds 10 batches of every class
    seeds = seeds_of(seed, trials)
    print(f"{dataset}: {len(pool)} auxiliary images, B = {SIZES[0]} ... {SIZES[-1]}, {threads} thread(s)")
    fast([build("cnn", pool.shape, pool.n_classes, seed=0)], victims, pool, Batches(victims, pool, 1, seed))

    agree = True
    line = "{:<8}{:<34}{:>8}{:>16}{:>10}  {}"
    print(line.format("models", "method", "trials", "s / trial", "ratio", "same labels"))
    for name, count in (("fresh", trials), ("single", 1)):
        start = time.perf_counter()
        models = [build("cnn", pool.shape, pool.n_classes, seed=s) for s in seeds[:count]]
        batches = Batches(victims, pool, trials, seed)
        answers = fast(models, victims, pool, batches)
        ours = (time.perf_counter() - start) / trials
        print(line.format(name, "closed form", trials, f"{ours:.5f}", "", ""))
        for whole, method in ((True, "autograd, loss.backward()"), (False, "autograd, the head's weight only")):
            start = time.perf_counter()
            looped = peer(models, victims, pool, batches, peer_trials, whole)
            theirs = (time.perf_counter() - start) / peer_trials
            same = all(torch.equal(answers[key][:peer_trials], counts) for key, counts in looped.items())
            agree &= same
            ratio = f"{theirs / ours:.0f}"
            print(line.format(name, method, peer_trials, f"{theirs:.5f}", ratio, "yes" if same else "NO"))
        _print_success(answers, batches, victims.n_classes)
    if not agree:
        print("the two predict different labels: one of them is wrong")
        raise typer.Exit(1)


def _print_success(answers: Counts, batches: Batches, n_classes: int) -> None:
    for attack in ATTACKS:
        rates = [
            metrics.attack_success_rate(answers[attack, size], metrics.counts(batches.labels[size], n_classes)).mean()
            for size in SIZES
        ]
        print(f"        ASR of {attack:<5}" + " ".join(f"{float(r):6.3f}" for r in rates))


if __name__ == "__main__":
    typer.run(main)
