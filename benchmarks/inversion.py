"""How fast gradients are inverted, beside the package `breaching` 0.1.2, in one run: same model, images and threads.

InvG's descent on an untrained ResNet20-4 and noise images of 3 x 32 x 32. Measured are processor seconds an iteration,
on a GPU seconds, each package in turn, several times; kept are the median, and the ratio's range over the rounds:

- B = 1 and B = 4, one reconstruction;
- several independent images of B = 1 in one optimisation, which breaching does one after the other.

With `--quality`, one photograph's patch: how long each needs for the PSNR that breaching's InvG ends with. With
`--memory`, by how much a fresh process of each grows in five iterations.

Our first gradient must have the direction of automatic differentiation's on the same objective, else the exit code
is 1. breaching has the same cosine; its total variation also counts differences to a border of zeros.
`breaching` comes with the extra `bench`: `pip install -e ".[bench]"`. Without it, ours alone is measured, and the exit
code is 0.

    python benchmarks/inversion.py [--iterations 10] [--rounds 5] [--together 4] [--threads 1] [--quality 1000]
                                   [--device cuda] [--memory]
"""

import dataclasses
import functools
import importlib.util
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn

from fedleak import data, metrics
from fedleak.attacks.images import agic, invg
from fedleak.attacks.images.objective import View
from fedleak.attacks.images.problem import Problem
from fedleak.federated import Update, fedsgd
from fedleak.models import build
from fedleak_book.experiments.units import processor

SHAPE, CLASSES = (3, 32, 32), 10


class Record(dict):
    """A dictionary whose entries are attributes, as breaching wants its metadata."""

    __getattr__ = dict.__getitem__


def peer(model: nn.Module, update: Update, labels: Tensor, iterations: int) -> Callable[[], Any] | None:
    """Return breaching's InvG on this update, or None if it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import breaching

            cfg = breaching.get_config(overrides=["attack=invertinggradients"])
    except ImportError:
        return None
    cfg.attack.optim.max_iterations = iterations
    cfg.attack.regularization.total_variation.scale = invg.INVG.total_variation
    setup = {"device": labels.device, "dtype": torch.float}
    attacker = breaching.attacks.prepare_attack(model, nn.CrossEntropyLoss(), cfg.attack, setup)

    about = Record(mean=(0.0,), std=(1.0,), shape=SHAPE, modality="vision", classes=CLASSES)
    payload = [{"parameters": list(model.parameters()), "buffers": list(model.buffers()), "metadata": about}]
    sent = Record(num_data_points=len(labels), labels=labels, local_hyperparams=None)
    shared = [
        {"gradients": [update.gradient(n) for n, _ in model.named_parameters()], "buffers": None, "metadata": sent}
    ]
    return lambda: attacker.reconstruct(payload, shared, {}, dryrun=False)


def seconds(run: Callable[[], Any], iterations: int, device: str) -> float:
    """Processor seconds an iteration, on a GPU seconds."""
    if device == "cpu":
        start = time.process_time()
        run()
        return (time.process_time() - start) / iterations
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / iterations


def first_gradients_agree(model: nn.Module, update: Update, labels: Tensor) -> bool:
    """Compare the engine's first gradient with plain automatic differentiation of the cosine distance."""
    problem = Problem([View([update], model, labels[None])], invg.INVG, SHAPE)
    (start,) = problem.start(0)
    _, (ours,) = problem.evaluate([start])
    x = start.detach().clone().requires_grad_()
    loss = nn.functional.cross_entropy(model(problem.pixels(x)[0]), labels)
    gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    target = [update.gradient(n) for n, _ in model.named_parameters()]
    dot = sum((f * t).sum() for f, t in zip(gradients, target, strict=True))
    sizes = [sum((t**2).sum() for t in side) for side in (gradients, target)]
    tv = x.diff(dim=-1).abs().mean() + x.diff(dim=-2).abs().mean()
    (plain,) = torch.autograd.grad(1 - dot / (sizes[0] * sizes[1]).sqrt() + invg.INVG.total_variation * tv, x)
    return bool(nn.functional.cosine_similarity(ours.flatten(), plain.flatten(), dim=0) > 0.9999)


def equal_quality(model: nn.Module, iterations: int) -> None:
    """Print the processor seconds to the PSNR with which breaching's InvG ends after this many iterations."""
    image = data.load("photos", "test", size=SHAPE[1]).x[:1]
    labels = torch.tensor([3])
    update = fedsgd(model, image, labels)
    other = peer(model, update, labels, iterations)
    if other is None:
        return
    start = time.process_time()
    reconstruction = other()[0]["data"]
    theirs = time.process_time() - start
    target = metrics.psnr(reconstruction.clamp(0, 1), image).item()
    typer.echo(f"breaching's InvG, {iterations} iterations: {target:.1f} dB after {theirs:.0f} s")
    steady = {"signed": False, "decay": ()}
    looks = range(1, iterations)
    for name, descent, weights in (
        ("InvG, steady", dataclasses.replace(invg.INVG, **steady), lambda update, model: {}),
        ("AGIC, steady", dataclasses.replace(agic.AGIC, **steady), agic.layer_weights()),
    ):
        start = time.process_time()
        done = agic.invert_many(
            [[update]],
            [model],
            [labels[None]],
            weights=weights,
            descent=descent,
            iterations=iterations,
            snapshots=looks,
        )
        seconds = (time.process_time() - start) / iterations
        curve = {t: metrics.psnr(x[0], image).item() for t, x in {**done.snapshots, iterations: done.images}.items()}
        first = next((t for t, value in curve.items() if value >= target), None)
        when = f"{first * seconds:.0f} s, {theirs / first / seconds:.1f} times as soon" if first else "never"
        typer.echo(f"{name}: reaches it after {when}; ends with {curve[iterations]:.1f} dB")


def draw_updates(model: nn.Module, batch: int, many: int, device: str) -> tuple[list[Update], Tensor]:
    """Return the updates of this many batches of noise images, and their labels ``[many, batch]``."""
    x = torch.rand(many, batch, *SHAPE, generator=torch.Generator().manual_seed(0)).to(device)
    y = (torch.arange(many * batch).view(many, batch) % CLASSES).to(device)
    return [fedsgd(model, a, b) for a, b in zip(x, y, strict=True)], y


def growth(who: str, batch: int, many: int) -> int:
    """Return by how many MiB this process grows in five iterations of ours or of the peer."""
    model = build("resnet20-4", SHAPE, CLASSES, seed=0).eval()
    updates, y = draw_updates(model, batch, many, "cpu")
    others = [peer(model, update, labels, 5) for update, labels in zip(updates, y, strict=True)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if who == "ours":
        invg.invert_many(updates, model, y, iterations=5)
    for other in others if who == "breaching" else ():
        other()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024  # of KiB, on Linux


def main(
    iterations: Annotated[int, typer.Option(min=1, help="Iterations of a measurement.")] = 10,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each; the median counts.")] = 5,
    together: Annotated[int, typer.Option(min=1, help="Independent images inverted at once.")] = 4,
    threads: Annotated[int, typer.Option(min=1, help="Threads of both.")] = 1,
    quality: Annotated[int, typer.Option(min=0, help="Iterations of the peer for equal quality; 0: leave it out.")] = 0,
    device: Annotated[str, typer.Option(help="Where both compute: cpu or cuda.")] = "cpu",
    memory: Annotated[bool, typer.Option(help="Print by how much a process of each grows instead.")] = False,
    grown: Annotated[str, typer.Option("--growth", hidden=True)] = "",
) -> None:
    """Measure ours and the peer in turn."""
    torch.set_num_threads(threads)
    if grown:
        who, batch, many = grown.split(",")
        typer.echo(growth(who, int(batch), int(many)))
        return
    if memory:
        if importlib.util.find_spec("breaching") is None:
            raise typer.BadParameter("breaching is not installed: nothing to compare with")
        for batch, many in ((1, 1), (4, 1), (1, together)):
            sizes = {}
            for who in ("ours", "breaching"):
                words = [sys.executable, "-W", "ignore", __file__, "--growth", f"{who},{batch},{many}"]
                words += ["--threads", str(threads)]
                sizes[who] = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True).stdout.split()[-1]
            typer.echo(f"B = {batch}, {many} at once: " + ", ".join(f"{who} {size} MiB" for who, size in sizes.items()))
        return
    if device == "cuda":
        torch.backends.cudnn.allow_tf32 = False  # for both, as `first_gradients_agree` wants it
    typer.echo(processor() if device == "cpu" else torch.cuda.get_device_name())
    model = build("resnet20-4", SHAPE, CLASSES, seed=0).eval().to(device)
    for batch, many in ((1, 1), (4, 1), (1, together)):
        updates, y = draw_updates(model, batch, many, device)
        if not first_gradients_agree(model, updates[0], y[0]):
            typer.echo("the first step's gradients differ", err=True)
            raise typer.Exit(1)
        other = peer(model, updates[0], y[0], iterations)
        ours, theirs = [], []
        for _ in range(rounds):
            all_at_once = functools.partial(invg.invert_many, updates, model, y, iterations=iterations)
            ours.append(seconds(all_at_once, iterations, device) / many)
            if other is not None:
                theirs.append(seconds(other, iterations, device))
        line = f"B = {batch}, {many} at once: ours {statistics.median(ours):.4f} s an iteration and reconstruction"
        if theirs:
            ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
            line += f"; breaching {statistics.median(theirs):.4f} s; {statistics.median(ratios):.2f} times as fast"
            line += f" ({min(ratios):.2f} to {max(ratios):.2f} over {rounds} rounds)"
        typer.echo(line)
    if not theirs:
        typer.echo("breaching is not installed: nothing to compare with")
    if quality:
        equal_quality(model, quality)


if __name__ == "__main__":
    typer.run(main)
